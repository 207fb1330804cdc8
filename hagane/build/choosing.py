"""Which tactic and parameters each region gets."""

from __future__ import annotations

from dataclasses import dataclass, field

from hagane.core.targets import CpuTarget
from hagane.ir.region import Region
from hagane.kernels.catalog import fallback, fitting
from hagane.kernels.tactic import Params, Tactic
from hagane.lower.region_key import region_key


@dataclass
class Choices:
    """The choice for each region, by its key:
    the first tactic's best guess unless something better is known.
    """

    target: CpuTarget
    known: dict[str, tuple[Tactic, Params]] = field(default_factory=dict)

    def __call__(self, region: Region) -> tuple[Tactic, Params]:
        chosen = self.known.get(region_key(region))
        if chosen is not None:
            return chosen
        tactic = fitting(region, self.target)[0]
        return tactic, tactic.space(region, self.target)[0]

    def demote(self, region: Region) -> bool:
        """Gives the region the fallback tactic; False if it has that already or can't have it."""
        tactic = fallback()
        if self(region)[0] is tactic or not tactic.supports(region, self.target):
            return False
        self.known[region_key(region)] = tactic, tactic.space(region, self.target)[0]
        return True
