"""hagane bench: latency and throughput, alone or beside a peer."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from hagane.api import load
from hagane.cli.arguments import (
    Batch,
    Dims,
    Inputs,
    Json,
    ModelOrEngine,
    Shapes,
    Threads,
    TimeBudget,
    check_dims,
    load_inputs,
    num_threads,
    parse_dims,
    parse_shapes,
)
from hagane.cli.opening import as_engine_file
from hagane.cli.output import show_json, show_table
from hagane.cli.progress import working
from hagane.debug.duel import Times, duel
from hagane.debug.feeds import default_dims, make_feed

NAME = "bench"
EXAMPLE = "hagane bench model.onnx --against onnxruntime --threads 2"
PEERS = ("onnxruntime", "openvino")


def command(
    model: ModelOrEngine,
    against: Annotated[
        list[str] | None,
        typer.Option(help="onnxruntime or openvino; needs the ONNX file", show_default=False),
    ] = None,
    batch: Batch = 1,
    dim: Dims = None,
    shapes: Shapes = None,
    input: Inputs = None,
    threads: Threads = None,
    seconds: Annotated[float, typer.Option(min=0.01, help="measuring time for each side")] = 3.0,
    time_budget: TimeBudget = 0.0,
    json: Json = False,
) -> None:
    """Measures latency: back to back, and after 10 ms of idling."""
    _check_peers(against or [])
    count = num_threads(threads)
    with as_engine_file(model, shapes=parse_shapes(shapes), time_budget=time_budget) as engine:
        if against and engine == model:
            raise typer.BadParameter("a peer needs the ONNX file, not the engine")
        feed = load_inputs(input) or _feed(engine, batch, parse_dims(dim))
        sides = [("hagane", str(engine)), *((peer, str(model)) for peer in against or [])]
        with working("measuring"):
            busy = duel(sides, feed, threads=count, seconds=seconds)
            idle = duel(sides, feed, threads=count, seconds=seconds / 3, blocks=2, idle_ms=10.0)
    if json:
        _show_json(busy, idle, batch, count)
    else:
        _show(busy, idle, batch, count)


def _check_peers(peers: list[str]) -> None:
    for peer in peers:
        if peer not in PEERS:
            raise typer.BadParameter(f"the peer {peer!r} is unknown; use {' or '.join(PEERS)}")
        if find_spec(peer) is None:
            raise typer.BadParameter(f"{peer} is not installed: pip install {peer}")


def _feed(engine: Path, batch: int, dims: dict[str, int]) -> dict[str, Any]:
    with load(engine, threads=1) as session:
        known = check_dims(dims, session.symbols)
        ports = session.inputs
        return make_feed(ports, default_dims(ports, session.symbols, known, batch))


def _show_json(busy: list[Times], idle: list[Times], batch: int, threads: int) -> None:
    rows = {
        b.kind: b.as_dict() | {"after_idle_median_us": i.median_us, "items_per_s": batch * 1e6 / b.median_us}
        for b, i in zip(busy, idle, strict=True)
    }
    show_json({"threads": threads, "batch": batch, "times": rows})


def _show(busy: list[Times], idle: list[Times], batch: int, threads: int) -> None:
    first = busy[0].min_us
    table = [
        (
            b.kind,
            f"{b.min_us:.1f}",
            f"{b.median_us:.1f}",
            f"{b.p99_us:.1f}",
            f"{i.median_us:.1f}",
            f"{batch * 1e6 / b.median_us:.1f}",
            f"{b.min_us / first:.2f}",
        )
        for b, i in zip(busy, idle, strict=True)
    ]
    print(f"{threads} threads, batch {batch}; microseconds")
    show_table(("", ">min", ">median", ">p99", ">after idle", ">items/s", ">time ratio"), table)
