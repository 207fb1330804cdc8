"""What passes may ask about the target; the kernels package answers, the builder hands it over."""

from __future__ import annotations

from typing import Protocol

from hagane.ir.layout import Layouts
from hagane.ir.region import Region


class TargetModel(Protocol):
    """Facts about one target."""

    def layouts(self, region: Region) -> Layouts:
        """The layouts that the tactics for the region require."""
        ...

    def computes(self, region: Region) -> bool:
        """True if there is a kernel for the region."""
        ...
