"""hagane bench: latency and throughput, alone or beside a peer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

import hagane
from hagane.cli.arguments import load_inputs, parse_dims, parse_shapes
from hagane.cli.opening import as_engine_file
from hagane.cli.output import show_json, show_table
from hagane.debug.duel import Times, duel
from hagane.debug.feeds import default_dims, make_feed

NAME = "bench"
EXAMPLE = "hagane bench model.onnx --against onnxruntime --threads 2"
PEERS = ("onnxruntime", "openvino")


def command(
    model: Annotated[Path, typer.Argument(help="an engine file or an ONNX file")],
    against: Annotated[list[str], typer.Option(help="a peer: onnxruntime or openvino (needs the ONNX file)")] = [],
    batch: Annotated[int, typer.Option(help="size of dynamic leading dims")] = 1,
    dim: Annotated[list[str], typer.Option(help="name=size of another dynamic dim")] = [],
    shapes: Annotated[list[str], typer.Option(help="build for these input shapes")] = [],
    input: Annotated[list[str], typer.Option(help="name=file.npy instead of made-up inputs")] = [],
    threads: Annotated[int | None, typer.Option(help="worker threads; default: one a core")] = None,
    seconds: Annotated[float, typer.Option(help="measuring time for each side")] = 3.0,
    time_budget: Annotated[float, typer.Option(help="seconds of tuning when building")] = 0.0,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Measures latency: back to back, and after 10 ms of idling."""
    unknown = [peer for peer in against if peer not in PEERS]
    if unknown:
        raise typer.BadParameter(f"unknown peer {unknown[0]}; use {' or '.join(PEERS)}")
    count = threads or len(os.sched_getaffinity(0))
    with as_engine_file(model, shapes=parse_shapes(shapes), time_budget=time_budget) as engine:
        if against and engine == model:
            raise typer.BadParameter("a peer needs the ONNX file, not the engine")
        feed = load_inputs(input) or _feed(engine, batch, parse_dims(dim))
        sides = [("hagane", str(engine)), *((peer, str(model)) for peer in against)]
        busy = duel(sides, feed, threads=count, seconds=seconds)
        idle = duel(sides, feed, threads=count, seconds=seconds / 3, blocks=2, idle_ms=10.0)
    _show(busy, idle, batch, count, json)


def _feed(engine: Path, batch: int, dims: dict[str, int]) -> dict[str, Any]:
    with hagane.load(engine, threads=1) as session:
        ports = session.inputs
        return make_feed(ports, default_dims(ports, session.symbols, dims, batch))


def _show(busy: list[Times], idle: list[Times], batch: int, threads: int, json: bool) -> None:
    if json:
        rows = {b.kind: b.as_dict() | {"after_idle_median_us": i.median_us} for b, i in zip(busy, idle, strict=True)}
        show_json({"threads": threads, "batch": batch, "times": rows})
        return
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
