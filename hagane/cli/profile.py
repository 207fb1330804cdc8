"""hagane profile: where the time goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import hagane
from hagane.cli.arguments import load_inputs, parse_dims
from hagane.cli.opening import as_engine_file
from hagane.cli.output import show_json, show_table
from hagane.debug.feeds import default_dims, make_feed

NAME = "profile"
EXAMPLE = "hagane profile model.hgn --top 20"


def command(
    model: Annotated[Path, typer.Argument(help="an engine file or an ONNX file")],
    batch: Annotated[int, typer.Option(help="size of dynamic leading dims")] = 1,
    dim: Annotated[list[str], typer.Option(help="name=size of another dynamic dim")] = [],
    input: Annotated[list[str], typer.Option(help="name=file.npy instead of made-up inputs")] = [],
    threads: Annotated[int | None, typer.Option(help="worker threads")] = None,
    top: Annotated[int, typer.Option(help="regions to show, slowest first; 0: all in order")] = 0,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Times each region, with its share, rate, and the model's node names."""
    from hagane.debug.profiling import profile_session

    with as_engine_file(model) as path, hagane.load(path, threads=threads) as session:
        ports = session.inputs
        dims = default_dims(ports, session.symbols, parse_dims(dim), batch)
        rows = profile_session(session, load_inputs(input) or make_feed(ports, dims))
    if json:
        show_json([r.as_dict() for r in rows])
        return
    total = sum(r.us for r in rows)
    shown = sorted(rows, key=lambda r: -r.us)[:top] if top else rows
    table = [
        (str(r.region), f"{r.us:.1f}", f"{r.us / total:.1%}", f"{r.gflops:.1f}", f"{r.gbytes:.1f}", r.tactic, r.where)
        for r in shown
    ]
    show_table((">#", ">us", ">share", ">GFLOP/s", ">GB/s", "tactic", "nodes"), table)
    print(f"total {total:.1f} us in {len(rows)} regions")
