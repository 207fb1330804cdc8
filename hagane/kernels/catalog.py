"""Which tactics there are for CPUs: every module of kernels.llvm with a TACTIC is enrolled by being there."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from hagane.core.errors import BuildError
from hagane.core.targets import CpuTarget
from hagane.ir.layout import AnyLayout, Layout, Layouts, merge_halos, satisfies
from hagane.ir.region import Region
from hagane.kernels import llvm
from hagane.kernels.tactic import Tactic

FALLBACK = "generic"
# tried in this order where several tactics apply; those not named here come next, the fallback last
PREFERRED = ("conv_spatial", "conv_depthwise", "conv_stem", "conv_winograd", "conv_direct", "matmul_packed")


@cache
def all_tactics() -> tuple[Tactic, ...]:
    """All tactics, the most specific first and the generic one last."""
    found: list[Tactic] = []
    for module in pkgutil.iter_modules(llvm.__path__):
        tactic = getattr(importlib.import_module(f"{llvm.__name__}.{module.name}"), "TACTIC", None)
        if tactic is not None:
            found.append(tactic)
    rank = {name: k for k, name in enumerate(PREFERRED)} | {FALLBACK: 1000}
    return tuple(sorted(found, key=lambda t: (rank.get(t.name, 100), t.name)))


def fallback() -> Tactic:
    """The tactic that computes any region with a tensor expression."""
    return all_tactics()[-1]


def supporting(region: Region, target: CpuTarget) -> list[Tactic]:
    """The tactics that compute the region, most specific first.

    Raises: BuildError if there is none.
    """
    found = [t for t in all_tactics() if t.supports(region, target)]
    if not found:
        operands = ", ".join(map(str, region.operands))
        raise BuildError(
            f"no kernel computes this {region.kind} on {target}",
            where={"node": str(region.node.loc), "inputs": operands},
            tried=", ".join(t.name for t in all_tactics()),
            next_step="please report the model: every numeric op is meant to have a kernel",
        )
    return found


def fitting(region: Region, target: CpuTarget) -> list[Tactic]:
    """The tactics that compute the region in the layouts that its values have now."""
    return [t for t in supporting(region, target) if _fits(t.layouts(region, target), region)]


def _fits(layouts: Layouts, region: Region) -> bool:
    inputs = zip(region.node.inputs, layouts.inputs, strict=True)
    outputs = zip(region.outputs, layouts.outputs, strict=True)
    return all(v is None or v.is_const or satisfies(v.layout, want) for v, want in inputs) and all(
        satisfies(v.layout, want) for v, want in outputs
    )


class CpuModel:
    """Answers the passes' questions for a CPU (see ir.target_model)."""

    def __init__(self, target: CpuTarget) -> None:
        self.target = target

    def layouts(self, region: Region) -> Layouts:
        """The first tactic's layouts, with halos that suit the others of the same layouts too."""
        first, *rest = (t.layouts(region, self.target) for t in supporting(region, self.target))
        inputs, outputs = list(first.inputs), list(first.outputs)
        for other in rest:
            if all(map(_compatible, inputs, other.inputs)) and all(map(_compatible, outputs, other.outputs)):
                inputs = [_merged(a, b) for a, b in zip(inputs, other.inputs, strict=True)]
        return Layouts(tuple(inputs), tuple(outputs))

    def computes(self, region: Region) -> bool:
        """True if there is a tactic for the region."""
        return any(t.supports(region, self.target) for t in all_tactics())


def _compatible(a: Layout | AnyLayout | None, b: Layout | AnyLayout | None) -> bool:
    if isinstance(a, Layout) and isinstance(b, Layout):
        return merge_halos(a, b) is not None
    return a == b


def _merged(a: Layout | AnyLayout | None, b: Layout | AnyLayout | None) -> Layout | AnyLayout | None:
    if isinstance(a, Layout) and isinstance(b, Layout):
        return merge_halos(a, b)
    return a
