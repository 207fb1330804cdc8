"""Opens what a verb is given: an engine file as it is, a model by building it first."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from hagane import api
from hagane.cli.progress import building
from hagane.core.errors import ModelError


def require_file(path: Path) -> Path:
    """The path, which must be a file. Raises: ModelError."""
    if path.is_dir():
        raise ModelError(f"{path} is a folder, not a file", next_step="give the path of the file itself")
    if not path.is_file():
        raise ModelError(f"there is no file {path}", next_step="hagane zoo list shows example models to pull")
    return path


@contextmanager
def as_engine_file(path: Path, **options: Any) -> Iterator[Path]:
    """The engine file itself, or one built from the model into a temporary folder."""
    from hagane.engine.read import is_engine_file

    if is_engine_file(require_file(path)):
        if any(options.values()):
            wrong = ", ".join("--" + name.replace("_", "-") for name, value in options.items() if value)
            raise typer.BadParameter(f"{path} is an engine already: {wrong} needs the model")
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / (path.stem + ".hgn")
        with building(path) as progress:
            api.build(path, progress=progress, **options).save(built)
        yield built
