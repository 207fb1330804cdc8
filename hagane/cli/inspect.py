"""hagane inspect: what is inside an engine and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hagane.cli.arguments import Batch, Dims, Engine, Json, parse_dims
from hagane.cli.opening import require_file
from hagane.cli.output import show_json

if TYPE_CHECKING:
    from hagane.debug.inspection import Inspection

NAME = "inspect"
EXAMPLE = "hagane inspect model.hgn --region 3 --kernels"


def command(
    engine: Engine,
    kernels: Annotated[bool, typer.Option("--kernels", help="print the kernels' sources")] = False,
    memory: Annotated[bool, typer.Option("--memory", help="print buffers and the arena")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="print the plan's text")] = False,
    graph: Annotated[bool, typer.Option("--graph", help="print the portable graph")] = False,
    region: Annotated[
        int | None, typer.Option(min=0, help="only this region, with more about it", show_default=False)
    ] = None,
    batch: Batch = 1,
    dim: Dims = None,
    verify: Annotated[bool, typer.Option("--verify", help="check the hashes of all content")] = False,
    diff: Annotated[
        Path | None,
        typer.Option(help="compare with this engine, ignoring numbering; exit status 1 if they differ"),
    ] = None,
    json: Json = False,
) -> None:
    """Prints regions with tactics and the model's node names; more with the options."""
    from hagane.debug.inspection import Inspection

    inspection = Inspection.of(require_file(engine))
    if verify:
        inspection.verify_weights()
    if diff is not None:
        _diff(inspection, Inspection.of(require_file(diff)), json)
        return
    dims = parse_dims(dim)
    if json:
        content = inspection.as_dict() | {"verified": verify}
        if memory:
            content["memory"] = [report.as_dict() for report in inspection.memory_reports(dims, batch)]
        show_json(content)
        return
    if plan:
        print(inspection.plan_text(), end="")
    if graph:
        print(inspection.graph_text(), end="")
    if not (plan or graph or kernels or memory) or region is not None:
        print(inspection.summary(region))
    if memory:
        print(inspection.memory(dims, batch))
    if kernels:
        print(inspection.kernel_sources(region))
    if verify:
        print("all hashes match")


def _diff(a: Inspection, b: Inspection, json: bool) -> None:
    from hagane.debug.engine_diff import diff_engines

    text = diff_engines(a.image, b.image)
    if json:
        show_json({"equal": not text, "diff": text.splitlines()})
    else:
        print(text or "equal but for numbering")
    if text:
        raise typer.Exit(1)
