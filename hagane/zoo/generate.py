"""Writes the zoo's generated networks into the cache.

A network lies under the hash of the code that writes networks, so that a change of it is never served
stale.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from hagane.core.errors import ModelError
from hagane.core.hashing import content_hash


def generate(function: str, name: str, folder: Path) -> Path:
    """The path of the network's ONNX file, after writing it where the cache lacks it.

    Raises: ModelError when onnx isn't installed or the folder can't be written.
    """
    sources = sorted((Path(__file__).parent / "networks").glob("*.py"))
    key = content_hash(*[source.read_bytes() for source in sources])[:16]
    path = folder / key / f"{name}.onnx"
    if path.is_file():
        return path
    try:
        from hagane.zoo import networks
    except ModuleNotFoundError as error:
        raise ModelError(
            f"writing the network {name!r} needs the package {error.name}, which isn't installed",
            next_step="pip install 'hagane[build]'",
        ) from error
    data = getattr(networks, function)().SerializeToString(deterministic=True)
    _put(path, data)
    return path


def _put(path: Path, data: bytes) -> None:
    """Writes the file beside its place and renames it."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(data)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise ModelError(
            f"{path.name} can't be put into the cache: {error}",
            where={"folder": str(path.parent)},
            next_step="make room or set HAGANE_CACHE to a folder that can be written",
        ) from error
