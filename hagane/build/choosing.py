"""Which tactic and parameters each region gets."""

from __future__ import annotations

from dataclasses import dataclass, field

from hagane.core.targets import CpuTarget
from hagane.ir.region import Region
from hagane.kernels.catalog import fitting
from hagane.kernels.tactic import Params, Tactic
from hagane.lower.region_key import region_key


@dataclass
class Choices:
    """The choice for each region, by its key: the first tactic's best guess unless something better is known.

    refused: names of tactics that gave wrong results.
    """

    target: CpuTarget
    known: dict[str, tuple[Tactic, Params]] = field(default_factory=dict)
    refused: dict[str, set[str]] = field(default_factory=dict)

    def __call__(self, region: Region) -> tuple[Tactic, Params]:
        chosen = self.known.get(region_key(region))
        if chosen is not None:
            return chosen
        tactic = fitting(region, self.target)[0]
        return tactic, tactic.space(region, self.target)[0]

    def demote(self, region: Region) -> Tactic | None:
        """Gives the region the next tactic that fits its layouts, the fallback last; None if none is left."""
        key = region_key(region)
        refused = self.refused.setdefault(key, set())
        refused.add(self(region)[0].name)
        left = [t for t in fitting(region, self.target) if t.name not in refused]
        if not left:
            return None
        self.known[key] = left[0], left[0].space(region, self.target)[0]
        return left[0]
