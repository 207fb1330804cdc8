"""hagane profile: where the time goes."""

from __future__ import annotations

from typing import Annotated

import typer

from hagane.api import load
from hagane.cli.arguments import (
    Batch,
    Dims,
    Inputs,
    Json,
    ModelOrEngine,
    Threads,
    check_dims,
    load_inputs,
    parse_dims,
)
from hagane.cli.opening import as_engine_file
from hagane.cli.output import show_json, show_table
from hagane.debug.feeds import default_dims, make_feed

NAME = "profile"
EXAMPLE = "hagane profile model.hgn --top 20"


def command(
    model: ModelOrEngine,
    batch: Batch = 1,
    dim: Dims = None,
    input: Inputs = None,
    threads: Threads = None,
    top: Annotated[int, typer.Option(min=0, help="regions to show, slowest first; 0: all in order")] = 0,
    repeats: Annotated[int, typer.Option(min=1, help="runs, of which the fastest counts")] = 20,
    json: Json = False,
) -> None:
    """Times each region on data in the cache: share, rates, share of the roofline, the model's node names."""
    from hagane.debug.profiling import profile_session

    with as_engine_file(model) as path, load(path, threads=threads) as session:
        ports = session.inputs
        dims = default_dims(ports, session.symbols, check_dims(parse_dims(dim), session.symbols), batch)
        rows = profile_session(session, load_inputs(input) or make_feed(ports, dims), repeats)
    if json:
        show_json([row.as_dict() for row in rows])
        return
    total = sum(row.us for row in rows) or 1.0
    shown = sorted(rows, key=lambda row: -row.us)[:top] if top else rows
    table = [
        (
            str(row.region),
            f"{row.us:.1f}",
            f"{row.us / total:.1%}",
            f"{row.gflops:.1f}",
            f"{row.gbytes:.1f}",
            f"{row.roofline:.0%}",
            row.tactic,
            row.where,
        )
        for row in shown
    ]
    show_table((">#", ">us", ">share", ">GFLOP/s", ">GB/s", ">roofline", "tactic", "nodes"), table)
    print(f"total {total:.1f} us in {len(rows)} regions")
