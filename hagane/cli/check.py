"""hagane check: what of a model is supported, and what will be slow, without building."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from hagane.cli.opening import require_file
from hagane.cli.output import show_json, show_table

NAME = "check"
EXAMPLE = "hagane check model.onnx"


def command(
    model: Annotated[Path, typer.Argument(help="an ONNX file")],
    target: Annotated[str, typer.Option(help="as for build")] = "native",
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Lists the model's ports, its regions by tactic, and regions that only the generic kernel computes."""
    from hagane.debug.checking import check_model

    report = check_model(require_file(model), target)
    if json:
        show_json(report.as_dict())
    else:
        show_table(("port", "type"), [(name, type) for name, type in report.ports])
        counts = Counter((r.kind, r.tactic) for r in report.regions)
        show_table(("kind", "tactic", ">regions"), [(k, t, str(n)) for (k, t), n in sorted(counts.items())])
        for region in report.slow:
            print(f"slow: {region.kind} by the {region.tactic} kernel, {region.share:.0%} of the work: {region.where}")
        for problem in report.problems:
            print(problem)
    if report.problems:
        raise typer.Exit(1)
