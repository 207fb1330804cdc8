"""hagane build: from a model to an engine file."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from hagane import api
from hagane.cli.arguments import Json, Model, Shapes, Target, TimeBudget, one_of, parse_shapes
from hagane.cli.opening import require_file
from hagane.cli.output import show_json
from hagane.cli.progress import building

NAME = "build"
EXAMPLE = "hagane build model.onnx -o model.hgn --shapes image=1:8:64x3x224x224"


def command(
    model: Model,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="the engine file to write", show_default=False)
    ],
    target: Target = "native",
    shapes: Shapes = None,
    precision: Annotated[str, typer.Option(help="fp32", callback=one_of("fp32"))] = "fp32",
    time_budget: TimeBudget = 0.0,
    timing_cache: Annotated[
        Path | None, typer.Option(help="file of measurements to use and extend", show_default=False)
    ] = None,
    verify: Annotated[
        str,
        typer.Option(
            help="checks against the reference: off, quick or full", callback=one_of("off", "quick", "full")
        ),
    ] = "quick",
    pack: Annotated[
        str,
        typer.Option(help="embed packed weights, or make them on-load", callback=one_of("embed", "on-load")),
    ] = "embed",
    summary: Annotated[bool, typer.Option("--summary", help="print the regions")] = False,
    json: Json = False,
) -> None:
    """Builds an engine from a model; the file appears only once it is complete."""
    _check_place(output)
    start = time.perf_counter()
    with building(require_file(model)) as progress:
        engine = api.build(
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


def _check_place(output: Path) -> None:
    """Before minutes of work: can the file be written at the end? Raises: typer.BadParameter."""
    if output.is_dir():
        raise typer.BadParameter(f"{output} is a folder; name a file", param_hint="--output")
    if not output.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {output.parent}", param_hint="--output")
    if not os.access(output.parent, os.W_OK):
        raise typer.BadParameter(f"the folder {output.parent} can't be written to", param_hint="--output")
