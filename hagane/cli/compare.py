"""hagane compare: are the answers the same?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import hagane
from hagane.cli.arguments import load_inputs, parse_dims
from hagane.cli.opening import as_engine_file, require_file
from hagane.cli.output import show_json, show_table
from hagane.debug.compare import Difference, compare_nodes, compare_outputs, reference_outputs
from hagane.debug.feeds import default_dims, make_feed

NAME = "compare"
EXAMPLE = "hagane compare model.onnx --against onnxruntime --per-node"


def command(
    model: Annotated[Path, typer.Argument(help="an ONNX file")],
    against: Annotated[str, typer.Option(help="reference (float64 interpreter) or onnxruntime")] = "reference",
    per_node: Annotated[bool, typer.Option(help="compare every node, show the first that diverges")] = False,
    batch: Annotated[int, typer.Option(help="size of dynamic leading dims")] = 1,
    dim: Annotated[list[str], typer.Option(help="name=size of another dynamic dim")] = [],
    input: Annotated[list[str], typer.Option(help="name=file.npy instead of made-up inputs")] = [],
    threads: Annotated[int | None, typer.Option(help="worker threads")] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Compares an engine built from the model with a reference; exit status 1 if they differ."""
    if against not in ("reference", "onnxruntime"):
        raise typer.BadParameter("--against takes reference or onnxruntime")
    with as_engine_file(require_file(model)) as engine, hagane.load(engine, threads=threads) as session:
        ports = session.inputs
        feed = load_inputs(input) or make_feed(ports, default_dims(ports, session.symbols, parse_dims(dim), batch))
        results = compare_outputs(session.run(feed), reference_outputs(model, feed, against))
    if per_node:
        results = compare_nodes(model, feed)
    _show(results, per_node, json)
    if not all(r.ok for r in results):
        raise typer.Exit(1)


def _show(results: list[Difference], per_node: bool, json: bool) -> None:
    if json:
        show_json([asdict(r) | {"ok": r.ok} for r in results])
        return
    worst = sorted(results, key=lambda r: -r.relative)[:10] if per_node else results
    rows = [(r.name, f"{r.max_error:.3g}", f"{r.relative:.3g}", "ok" if r.ok else "DIFFERS", r.where) for r in worst]
    show_table(("tensor", ">max error", ">relative", "", "node"), rows)
    first = next((r for r in results if not r.ok), None)
    if first is not None:
        print(f"first that differs: {first.name} {first.where}")
