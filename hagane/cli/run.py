"""hagane run: one run on real data."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hagane.api import load
from hagane.cli.arguments import Json, ModelOrEngine, Shapes, Threads, load_inputs, parse_shapes
from hagane.cli.opening import as_engine_file
from hagane.cli.output import show_json, show_table
from hagane.core.errors import RunError

NAME = "run"
EXAMPLE = "hagane run model.hgn --input image=cat.npy --output results"


def command(
    model: ModelOrEngine,
    input: Annotated[
        list[str], typer.Option(help="name=file.npy, or one .npz with all inputs", show_default=False)
    ],
    output: Annotated[
        Path | None, typer.Option(help="folder for the outputs, one .npy each", show_default=False)
    ] = None,
    shapes: Shapes = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Runs an engine or a model once."""
    feed = load_inputs(input)
    with as_engine_file(model, shapes=parse_shapes(shapes)) as path, load(path, threads=threads) as session:
        start = time.perf_counter()
        results = session.run(feed)
        seconds = time.perf_counter() - start
    rows = []
    for name, array in results.items():
        file = "" if output is None else str(_save(output, name, np.asarray(array)))
        rows.append((name, str(array.dtype), "x".join(map(str, array.shape)), _range(array), file))
    if json:
        keys = ("name", "dtype", "shape", "range", "file")
        show_json({"seconds": seconds, "outputs": [dict(zip(keys, row, strict=True)) for row in rows]})
    else:
        show_table(("output", "type", "shape", "range", "file" if output else ""), rows)


def _save(folder: Path, name: str, array: np.ndarray[Any, Any]) -> Path:
    """Writes a .npy file named after the output. Raises: RunError."""
    path = folder / ("".join(c if c.isalnum() or c in "._-" else "_" for c in name) + ".npy")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        np.save(path, array, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise RunError(
            f"can't write output {name!r} to {path}: {error}", next_step="name another folder with --output"
        ) from error
    return path


def _range(array: np.ndarray[Any, Any]) -> str:
    if array.size == 0 or array.dtype == object:
        return "empty" if array.size == 0 else "text"
    numbers = array.astype(np.float64)
    if np.isnan(numbers).all():
        return "nan"
    return f"{np.nanmin(numbers):.6g} .. {np.nanmax(numbers):.6g}"
