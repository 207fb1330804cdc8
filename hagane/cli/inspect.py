"""hagane inspect: what is inside an engine and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hagane.cli.opening import require_file
from hagane.cli.output import show_json

NAME = "inspect"
EXAMPLE = "hagane inspect model.hgn --region 3 --kernels"


def command(
    engine: Annotated[Path, typer.Argument(help="an engine file")],
    kernels: Annotated[bool, typer.Option(help="print the kernels' sources")] = False,
    memory: Annotated[bool, typer.Option(help="print buffers and the arena")] = False,
    plan: Annotated[bool, typer.Option(help="print the plan's text")] = False,
    graph: Annotated[bool, typer.Option(help="print the portable graph")] = False,
    region: Annotated[int | None, typer.Option(help="only this region")] = None,
    verify: Annotated[bool, typer.Option(help="check the hashes of all weights too")] = False,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Prints regions with tactics and the model's node names; more with the options."""
    from hagane.debug.inspection import Inspection

    inspection = Inspection.of(require_file(engine))
    if verify:
        inspection.verify_weights()
    if json:
        show_json(inspection.as_dict())
        return
    print(inspection.summary(region))
    if memory:
        print(inspection.memory())
    if plan:
        print(inspection.plan_text())
    if graph:
        print(inspection.graph_text())
    if kernels:
        print(inspection.kernel_sources(region))
    if verify:
        print("all hashes match")
