"""Spatial padding of convolutions and pools: attributes, auto_pad, and what they mean for dynamic extents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hagane.core.errors import ModelError
from hagane.core.symbolic import Expr, IntLike, ceildiv, const, emax
from hagane.frontends.onnx.context import NodeContext
from hagane.ir.graph import Value

AUTO_PAD = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True)
class Window:
    """Kernel, strides and so on, one number per spatial axis."""

    kernel: tuple[IntLike, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[IntLike, ...]
    end: tuple[IntLike, ...]

    @property
    def attrs(self) -> dict[str, Any]:
        """As attributes of an IR op, without the kernel."""
        return {
            "strides": self.strides,
            "dilations": self.dilations,
            "pads_begin": self.begin,
            "pads_end": self.end,
        }


def spatial_ints(ctx: NodeContext, name: str, rank: int, default: int, least: int) -> tuple[int, ...]:
    """An attribute with one number per spatial axis. Raises: ModelError."""
    values = ctx.attrs.ints(name)
    if values is None:
        return (default,) * rank
    if len(values) != rank or any(v < least for v in values):
        raise ModelError(
            f"{name}={list(values)} should be {rank} numbers of {least} or more, one per spatial axis"
        )
    return values


def read_window(ctx: NodeContext, x: Value, kernel: tuple[IntLike, ...]) -> Window:
    """The window of a convolution or pool over x[N, C, *spatial]. Raises: ModelError."""
    rank = len(kernel)
    if x.rank != rank + 2:
        raise ModelError(
            f"a kernel of {rank} axes doesn't fit the input {x.type}, which has {x.rank - 2} spatial axes"
        )
    strides = spatial_ints(ctx, "strides", rank, 1, 1)
    dilations = spatial_ints(ctx, "dilations", rank, 1, 1)
    auto = ctx.attrs.choice("auto_pad", "NOTSET", AUTO_PAD)
    pads = spatial_pads(ctx, rank)
    if auto == "NOTSET":
        return Window(kernel, strides, dilations, pads[:rank], pads[rank:])
    begin, end = [], []
    for axis in range(rank):
        first, last = const(0), const(0)
        if auto != "VALID":
            reach = (kernel[axis] - 1) * dilations[axis] + 1
            first, last = same_pads(x.shape[axis + 2], reach, strides[axis], upper=auto == "SAME_UPPER")
        begin.append(as_int(first))
        end.append(as_int(last))
    return Window(kernel, strides, dilations, tuple(begin), tuple(end))


def spatial_pads(ctx: NodeContext, rank: int) -> tuple[int, ...]:
    """The pads attribute: all begins, then all ends. Raises: ModelError."""
    pads = ctx.attrs.ints("pads")
    if pads is None:
        return (0,) * (2 * rank)
    if len(pads) != 2 * rank:
        raise ModelError(f"pads={list(pads)} should be {2 * rank} numbers for {rank} spatial axes")
    return pads


def same_pads(extent: Expr, reach: IntLike, stride: int, upper: bool) -> tuple[Expr, Expr]:
    """Padding that gives ceil(extent / stride) windows; an odd element goes to the end if `upper`."""
    if stride == 1:
        total = const(0) + reach - 1
    else:
        total = emax((ceildiv(extent, stride) - 1) * stride + reach - extent, 0)
    small = total // 2
    return (small, total - small) if upper else (total - small, small)


def as_int(value: Expr) -> IntLike:
    """A plain int where the expression is constant."""
    return value.value if value.is_const else value
