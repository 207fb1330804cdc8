"""Engines kept in a folder under a hash of all that decides their content, so each is built once."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import hagane
from hagane.build.builder import build_engine
from hagane.build.options import BuildOptions
from hagane.core.errors import BuildError, ModelError
from hagane.core.hashing import content_hash
from hagane.core.targets import parse_target

# Options that change how long a build takes or what it tells, not what it makes
_NO_CONTENT = ("progress", "threads", "timing_cache")
# Packages that have no say in what a build makes
_NO_COMPILER = ("cli", "debug", "zoo", "serve", "surgery", "runtime")


def cached_engine(path: Path, cache_dir: Path, options: BuildOptions | None = None) -> Path:
    """The engine file of a model in the cache folder, built if it isn't there.

    Several processes may ask at once: one builds, the others wait. Raises: ModelError, BuildError.
    """
    options = options or BuildOptions()
    place = place_in_cache(path, cache_dir, options)
    if place.is_file():
        return place
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _alone(place.with_suffix(".lock")):
            if not place.is_file():
                build_engine(str(path), options).save(place)
    except OSError as error:
        raise BuildError(
            f"the engine can't be kept: {error}",
            where={"folder": str(cache_dir)},
            next_step="make room or name a folder that can be written",
        ) from error
    return place


def place_in_cache(path: Path, cache_dir: Path, options: BuildOptions) -> Path:
    """Where the cache has, or would have, the engine of a model."""
    return cache_dir / f"{path.stem}-{cache_key(path, options)[:16]}.hgn"


def cache_key(path: Path, options: BuildOptions) -> str:
    """A hash of the model's bytes, its external data, the options, the target, and the compiler's code."""
    wanted = {k: v for k, v in vars(options).items() if k not in _NO_CONTENT}
    wanted["target"] = str(parse_target(options.target))
    wanted["shapes"] = sorted((name, [repr(d) for d in dims]) for name, dims in options.shapes.items())
    try:
        parts: list[Any] = [path.read_bytes(), *(p.read_bytes() for p in external_files(path))]
    except OSError as error:
        raise ModelError(f"can't read {error.filename or path}: {error.strerror}") from error
    return content_hash(*parts, repr(sorted(wanted.items())), compiler_version())


def external_files(path: Path) -> list[Path]:
    """The files beside an ONNX file that hold its tensors; an empty list if it isn't readable as ONNX."""
    import onnx
    from onnx.external_data_helper import _get_all_tensors, uses_external_data

    try:
        model = onnx.load(path, load_external_data=False)
    except (
        Exception
    ):  # whatever protobuf raises on a broken file; the frontend will say what is wrong with it
        return []
    tensors = [t for t in _get_all_tensors(model) if uses_external_data(t)]
    names = {e.value for t in tensors for e in t.external_data if e.key == "location"}
    found = [path.parent / name for name in sorted(names)]
    return [p for p in found if p.is_file() and p.resolve().is_relative_to(path.parent.resolve())]


@cache
def compiler_version() -> str:
    """A hash of the version, of the package's source, and of llvmlite's version."""
    root = Path(hagane.__file__).parent
    sources = [p for p in sorted(root.rglob("*.py")) if p.relative_to(root).parts[0] not in _NO_COMPILER]
    return content_hash(hagane.__version__, metadata.version("llvmlite"), *(p.read_bytes() for p in sources))


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
