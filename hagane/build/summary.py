"""An engine's content in one page of text."""

from __future__ import annotations

from collections.abc import Iterator

from hagane.core.symbolic import Expr
from hagane.engine.image import EngineImage
from hagane.plan.model import Plan


def summarise(image: EngineImage) -> str:
    """One table for each target: a region a line, with kind, tactic, work, and the model's own node names."""
    return "\n".join(line for target, plan in image.plans.items() for line in _lines(target, plan, image))


def _lines(target: str, plan: Plan, image: EngineImage) -> Iterator[str]:
    megabytes = sum(w.nbytes for w in image.weights.values()) / 1e6
    counts = f"{len(plan.regions)} regions, {len(image.sources)} kernels"
    yield f"target {target}: {counts}, {megabytes:.1f} MB of weights"
    yield f"{'#':>4}  {'kind':<14} {'tactic':<32} {'Mflop':>9} {'KB':>9}  nodes"
    for number, region in enumerate(plan.regions):
        nodes = ", ".join(region.nodes[:3]) + (f" +{len(region.nodes) - 3}" if len(region.nodes) > 3 else "")
        yield (
            f"{number:>4}  {region.kind:<14} {region.tactic[:32]:<32} {_amount(region.flops, 1e6):>9} "
            f"{_amount(region.bytes, 1e3):>9}  {nodes}"
        )


def _amount(value: Expr, unit: float) -> str:
    return f"{value.value / unit:.2f}" if value.is_const else "dynamic"
