"""What a tactic for GPUs lowers a region to: launches of Triton kernels on one stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hagane.core.symbolic import Expr
from hagane.kernels.tactic import Argument


@dataclass(frozen=True)
class TritonLaunch:
    """One kernel. write(name) gives its source, whose parameters are pointers, then dims, then constants.

    slug: a readable part of the kernel's name. signature: the types of pointers and dims, in Triton's terms.
    grid: programs along up to three axes. constants: values of the compile-time parameters. num_warps,
    num_stages: warps of a program, and loads in flight in its loops.
    """

    slug: str
    write: Callable[[str], str]
    args: tuple[Argument, ...]
    dims: tuple[Expr, ...]
    signature: tuple[str, ...]
    grid: tuple[Expr, ...]
    constants: Mapping[str, int] = field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 3


@dataclass(frozen=True)
class TritonLowering:
    """A region as launches in order; temporaries in bytes."""

    launches: tuple[TritonLaunch, ...]
    temporaries: tuple[Expr, ...] = ()
