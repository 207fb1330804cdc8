"""hagane compare: are the answers the same?"""

from __future__ import annotations

from dataclasses import asdict
from importlib.util import find_spec
from typing import Annotated

import typer

from hagane.api import load
from hagane.cli.arguments import (
    Batch,
    Dims,
    Inputs,
    Json,
    Model,
    Threads,
    check_dims,
    load_inputs,
    one_of,
    parse_dims,
)
from hagane.cli.opening import as_engine_file, require_file
from hagane.cli.output import show_json, show_table
from hagane.debug.compare import Difference, compare_nodes, compare_outputs, reference_outputs
from hagane.debug.feeds import default_dims, make_feed

NAME = "compare"
EXAMPLE = "hagane compare model.onnx --against onnxruntime --per-node"


def command(
    model: Model,
    against: Annotated[
        str,
        typer.Option(
            help="reference (the interpreter, in float64) or onnxruntime",
            callback=one_of("reference", "onnxruntime"),
        ),
    ] = "reference",
    per_node: Annotated[
        bool, typer.Option("--per-node", help="compare every node with the interpreter")
    ] = False,
    batch: Batch = 1,
    dim: Dims = None,
    input: Inputs = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Compares an engine built from the model with a reference; exit status 1 if they differ."""
    if against == "onnxruntime" and find_spec("onnxruntime") is None:
        raise typer.BadParameter("onnxruntime is not installed: pip install onnxruntime")
    with as_engine_file(require_file(model)) as engine, load(engine, threads=threads) as session:
        dims = check_dims(parse_dims(dim), session.symbols)
        ports = session.inputs
        feed = load_inputs(input) or make_feed(ports, default_dims(ports, session.symbols, dims, batch))
        results = compare_outputs(session.run(feed), reference_outputs(model, feed, against))
    nodes = compare_nodes(model, feed) if per_node else []
    if json:
        show_json(
            {
                "outputs": [asdict(r) | {"ok": r.ok} for r in results],
                "nodes": [asdict(r) | {"ok": r.ok} for r in nodes],
            }
        )
    else:
        _show(results, nodes)
    if not all(r.ok for r in (*results, *nodes)):
        raise typer.Exit(1)


def _show(results: list[Difference], nodes: list[Difference]) -> None:
    show_table(("output", ">max error", ">relative", ""), [_row(r) for r in results])
    if not nodes:
        return
    print()
    worst = sorted(nodes, key=lambda r: -r.relative)[:10]
    show_table(
        ("tensor (worst first)", ">max error", ">relative", "", "node"), [(*_row(r), r.where) for r in worst]
    )
    first = next((r for r in nodes if not r.ok), None)
    if first is not None:
        print(f"first that differs: {first.name}, {first.where}")
    else:
        print(f"all {len(nodes)} tensors agree")


def _row(result: Difference) -> tuple[str, str, str, str]:
    verdict = "ok" if result.ok else "DIFFERS"
    return result.name, f"{result.max_error:.3g}", f"{result.relative:.3g}", verdict
