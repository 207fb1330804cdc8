"""hagane run: one run on real data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import hagane
from hagane.cli.arguments import load_inputs
from hagane.cli.opening import as_engine_file
from hagane.cli.output import show_json, show_table

NAME = "run"
EXAMPLE = "hagane run model.hgn --input image=cat.npy --output results"


def command(
    model: Annotated[Path, typer.Argument(help="an engine file or an ONNX file")],
    input: Annotated[list[str], typer.Option(help="name=file.npy, or one .npz with all inputs")],
    output: Annotated[Path | None, typer.Option(help="folder for the outputs, one .npy each")] = None,
    threads: Annotated[int | None, typer.Option(help="worker threads")] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Runs an engine or a model once."""
    feed = load_inputs(input)
    with as_engine_file(model) as path, hagane.load(path, threads=threads) as session:
        results = session.run(feed)
    rows = []
    for name, array in results.items():
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
            np.save(output / (name.replace("/", "_").replace(":", "_") + ".npy"), array)
        rows.append((name, str(array.dtype), "x".join(map(str, array.shape)), _range(array)))
    if json:
        show_json([{"name": r[0], "dtype": r[1], "shape": r[2], "range": r[3]} for r in rows])
    else:
        show_table(("output", "type", "shape", "range"), rows)


def _range(array: np.ndarray) -> str:  # type: ignore[type-arg]
    if array.size == 0 or array.dtype == object:
        return "empty" if array.size == 0 else "text"
    numbers = array.astype(np.float64)
    return f"{np.nanmin(numbers):.6g} .. {np.nanmax(numbers):.6g}"
