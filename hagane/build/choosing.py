"""Which tactic and parameters each region gets."""

from __future__ import annotations

from hagane.core.targets import CpuTarget
from hagane.ir.region import Region
from hagane.kernels.catalog import fitting
from hagane.kernels.tactic import Params, Tactic
from hagane.lower.program import Choose


def choose_first(target: CpuTarget) -> Choose:
    """The most specific tactic with its best guess of parameters: no measurement, so no time spent."""

    def choose(region: Region) -> tuple[Tactic, Params]:
        tactic = fitting(region, target)[0]
        return tactic, tactic.space(region, target)[0]

    return choose
