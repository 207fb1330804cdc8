"""What a way of computing a region has to say:
whether it applies, its parameters, layouts, and the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from hagane.codegen.llvm import Module
from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr, const
from hagane.core.targets import CpuTarget
from hagane.ir.layout import ANY, AnyLayout, Layouts
from hagane.ir.region import Region
from hagane.plan.model import Recipe

__all__ = ["ANY", "AnyLayout", "Layouts"]  # re-exported: tactics need them beside the classes here

Params = Mapping[str, int | str | bool]


@dataclass(frozen=True)
class Input:
    """Kernel argument: operand `position` of the region."""

    position: int


@dataclass(frozen=True)
class Output:
    """Kernel argument: output `position` of the region."""

    position: int = 0


@dataclass(frozen=True)
class Temporary:
    """Kernel argument: memory shared by the lowering's launches, by its number in Lowering.temporaries."""

    number: int


@dataclass(frozen=True)
class Packed:
    """Kernel argument: a constant made when the engine is built, from the model's weights by a recipe."""

    recipe: Recipe
    dtype: DType
    shape: tuple[int, ...]


Argument = Input | Output | Temporary | Packed
Emit = Callable[[Module, str], None]


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel: `emit(module, name)` writes the function `void name(ptr args, ptr dims, ptr scratch, i64
    tid, i64 nthreads)` into the module. args are 8-byte pointers in the order given here, dims the i64
    values.

    slug: a readable part of the kernel's name. serial: thread 0 alone runs it. unmisched: compile with LLVM's
    machine scheduler off.
    """

    slug: str
    emit: Emit
    args: tuple[Argument, ...]
    dims: tuple[Expr, ...] = ()
    serial: bool = False
    unmisched: bool = False


@dataclass(frozen=True)
class Lowering:
    """A region as launches in order, with a barrier after each; sizes in bytes.

    error_factor: how much larger the rounding error may be than that of plain sums. spreads_nan: a NaN or
    infinity reaches outputs beside those that depend on it.
    """

    launches: tuple[KernelLaunch, ...]
    temporaries: tuple[Expr, ...] = ()
    scratch_bytes: Expr = field(default_factory=lambda: const(0))
    error_factor: float = 1.0
    spreads_nan: bool = False


class Tactic(Protocol):
    """One way to compute regions of some kind."""

    name: str

    def supports(self, region: Region, target: CpuTarget) -> bool:
        """True if the tactic computes this region, whatever the values of symbolic dims."""
        ...

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        """The layouts that the kernels need; called once supports() holds, before layouts are chosen."""
        ...

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        """Parameter sets worth trying, the best guess first."""
        ...

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        """The kernels; layouts are those of region.operands and region.outputs by now."""
        ...


def describe(tactic: Tactic, params: Params) -> str:
    """Name and parameters in one word, the same for equal ones: what reports and the timing cache show."""
    shown = ",".join(f"{key}={params[key]}" for key in sorted(params))
    return f"{tactic.name}({shown})" if shown else tactic.name
