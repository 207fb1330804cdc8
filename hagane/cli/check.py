"""hagane check: what of a model is supported, and what will be slow, without building."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import typer

from hagane.cli.arguments import Batch, Json, Model, Shapes, Target, parse_shapes
from hagane.cli.opening import require_file
from hagane.cli.output import show_json, show_table

if TYPE_CHECKING:
    from hagane.debug.checking import ModelCheck

NAME = "check"
EXAMPLE = "hagane check model.onnx"


def command(
    model: Model,
    target: Target = "native",
    shapes: Shapes = None,
    batch: Batch = 1,
    json: Json = False,
) -> None:
    """Lists ports, regions by tactic, slow regions, and every problem; exit status 1 if there is one."""
    from hagane.debug.checking import check_model

    report = check_model(require_file(model), target, parse_shapes(shapes), batch)
    if json:
        show_json(report.as_dict())
    else:
        _show(report)
    if report.problems:
        raise typer.Exit(1)


def _show(report: ModelCheck) -> None:
    if report.ports:
        show_table(("port", "type"), report.ports)
        print()
    if report.regions:
        counts = Counter((r.kind, r.tactic.partition("(")[0]) for r in report.regions)
        shares: Counter[tuple[str, str]] = Counter()
        for region in report.regions:
            shares[region.kind, region.tactic.partition("(")[0]] += region.share  # type: ignore[assignment]
        rows = [(k, t, str(n), f"{shares[k, t]:.1%}") for (k, t), n in sorted(counts.items())]
        show_table(("kind", "tactic", ">regions", ">of the work"), rows)
        print()
    for slow in report.slow:
        print(f"slow: {slow.share:.0%} of the work is {slow.kind} by the {slow.tactic} kernel: {slow.where}")
    for step in report.host_steps:
        print(f"host step: {step}")
    for problem in report.problems:
        print(f"{type(problem).__name__}: {problem}")
    count = len(report.problems)
    print(f"{count} problem{'' if count == 1 else 's'}" if count else "supported")
