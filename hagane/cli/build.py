"""hagane build: from a model to an engine file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

import hagane
from hagane.cli.arguments import parse_shapes
from hagane.cli.opening import require_file
from hagane.cli.output import show_json
from hagane.cli.progress import building

NAME = "build"
EXAMPLE = "hagane build model.onnx -o model.hgn --shapes image=1:8:64x3x224x224"


def command(
    model: Annotated[Path, typer.Argument(help="an ONNX file")],
    output: Annotated[Path, typer.Option("-o", "--output", help="the engine file to write")],
    target: Annotated[str, typer.Option(help="native, cpu, or such as cpu:x86-64-v4+vnni")] = "native",
    shapes: Annotated[list[str], typer.Option(help="input=1x3x224x224 or input=min:opt:maxx3x224x224")] = [],
    precision: Annotated[str, typer.Option(help="fp32")] = "fp32",
    time_budget: Annotated[float, typer.Option(help="seconds for measuring alternatives; 0: best guesses")] = 0.0,
    timing_cache: Annotated[Path | None, typer.Option(help="file of measurements to use and extend")] = None,
    verify: Annotated[str, typer.Option(help="off, quick or full checks against the reference")] = "quick",
    pack: Annotated[str, typer.Option(help="embed packed weights, or make them on-load")] = "embed",
    summary: Annotated[bool, typer.Option(help="print the regions")] = False,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Builds an engine from a model."""
    start = time.perf_counter()
    with building(require_file(model)) as progress:
        engine = hagane.build(
            model,
            target=target,
            shapes=parse_shapes(shapes),
            precision=precision,
            time_budget=time_budget,
            timing_cache=timing_cache,
            verify=verify,
            pack=pack,
            progress=progress,
        )
    engine.save(output)
    seconds = time.perf_counter() - start
    size = output.stat().st_size
    if json:
        plans = engine.image.plans
        show_json(
            {
                "engine": str(output),
                "seconds": round(seconds, 3),
                "bytes": size,
                "targets": list(plans),
                "regions": {target: len(plan.regions) for target, plan in plans.items()},
            }
        )
        return
    if summary:
        print(engine.summary())
    print(f"{output}: {size / 1e6:.1f} MB, built in {seconds:.1f} s")
