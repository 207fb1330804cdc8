"""Sliding windows over spatial axes, shared by convolutions and pools: extents, positions, padding, views."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, IntLike, ceildiv, const, emin, to_expr
from hagane.ir.graph import Array, Shape
from hagane.ir.registry import Attrs
from hagane.ir.scalar import Scalar, at_least, below

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Windows:
    """Kernel extents, strides, padding and dilations, one of each per spatial axis."""

    kernel: Shape
    strides: Shape
    pads_begin: Shape
    pads_end: Shape
    dilations: Shape

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def reach(self, axis: int) -> Expr:
        """Elements from a window's first one to its last one, both included."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def outputs(self, spatial: Shape, ceil_mode: bool = False) -> Shape:
        """Number of windows along each axis. Raises: ShapeError if not even one fits.

        With ceil_mode a last window may stick out at the end, if it starts in the input or its front padding.
        """
        result: list[Expr] = []
        for axis, extent in enumerate(spatial):
            slack = extent + self.pads_begin[axis] + self.pads_end[axis] - self.reach(axis)
            if slack.is_const and slack.value < 0:
                raise ShapeError(
                    f"a window of {self.reach(axis)} doesn't fit into spatial axis {axis}, which has "
                    f"{extent} elements and {self.pads_begin[axis]} + {self.pads_end[axis]} of padding"
                )
            stride = self.strides[axis]
            if ceil_mode:
                starts = (extent + self.pads_begin[axis] - 1) // stride
                result.append(emin(ceildiv(slack, stride), starts) + 1)
            else:
                result.append(slack // stride + 1)
        return tuple(result)

    def position(self, axis: int, window: Expr, tap: Expr) -> Expr:
        """Input position of a tap of a window; it may lie in the padding."""
        return window * self.strides[axis] + tap * self.dilations[axis] - self.pads_begin[axis]

    def positions(self, windows: tuple[Expr, ...], taps: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(self.position(a, w, t) for a, (w, t) in enumerate(zip(windows, taps, strict=True)))

    def inside(self, positions: tuple[Expr, ...], spatial: Shape, ceil_mode: bool = False) -> list[Scalar]:
        """The conditions for positions to lie in the input, only those that padding makes necessary."""
        conditions: list[Scalar] = []
        for axis, position in enumerate(positions):
            if not _at_most_zero(self.pads_begin[axis]):
                conditions.append(at_least(position, const(0)))
            if ceil_mode or not _at_most_zero(self.pads_end[axis]):
                conditions.append(below(position, spatial[axis]))
        return conditions


def _at_most_zero(pad: Expr) -> bool:
    return pad.is_const and pad.value <= 0


def windows_of(attrs: Attrs, kernel: tuple[IntLike, ...], spatial_rank: int) -> Windows:
    """The windows that a node's attributes describe. Raises: ShapeError for bad lengths or values."""

    def per_axis(name: str) -> Shape:
        values: tuple[IntLike, ...] = attrs[name]
        if len(values) != spatial_rank:
            raise ShapeError(f"{name}={values} should have one entry for each of {spatial_rank} spatial axes")
        return tuple(to_expr(v) for v in values)

    if len(kernel) != spatial_rank:
        raise ShapeError(
            f"a kernel of {len(kernel)} axes doesn't fit an input of {spatial_rank} spatial axes"
        )
    found = Windows(
        tuple(to_expr(k) for k in kernel),
        per_axis("strides"),
        per_axis("pads_begin"),
        per_axis("pads_end"),
        per_axis("dilations"),
    )
    if any(v.is_const and v.value < 1 for v in (*found.strides, *found.dilations, *found.kernel)):
        raise ShapeError(f"kernel {kernel}, strides and dilations must be positive: {attrs}")
    return found


def pad_spatial(x: Array, begin: Ints, end: Ints, value: float = 0) -> Array:
    """x[N, C, *spatial] with padding; negative padding crops."""
    crop = tuple(
        slice(max(-b, 0), x.shape[a + 2] - max(-e, 0))
        for a, (b, e) in enumerate(zip(begin, end, strict=True))
    )
    x = x[(slice(None), slice(None), *crop)]
    if not any(p > 0 for p in (*begin, *end)):
        return x
    widths = [(0, 0), (0, 0)] + [(max(b, 0), max(e, 0)) for b, e in zip(begin, end, strict=True)]
    return np.pad(x, widths, constant_values=value)


def view_windows(
    x: Array, kernel: Ints, attrs: Attrs, outputs: Ints | None = None, value: float = 0
) -> Array:
    """A read-only view [N, C, *outputs, *kernel] of x padded with the value; outputs=None: as many as fit."""
    strides, dilations, begin = attrs["strides"], attrs["dilations"], attrs["pads_begin"]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    end = tuple(attrs["pads_end"])
    if outputs is not None:  # with ceil_mode the last window may need more padding than the attributes say
        needed = [(o - 1) * s + r for o, s, r in zip(outputs, strides, reach, strict=True)]
        extents = zip(needed, x.shape[2:], begin, end, strict=True)
        end = tuple(max(e, n - d - b) for n, d, b, e in extents)
    padded = pad_spatial(x, begin, end, value)
    fitting = [(n - r) // s + 1 for n, r, s in zip(padded.shape[2:], reach, strides, strict=True)]
    if min(fitting, default=1) <= 0:
        return np.zeros((*x.shape[:2], *(max(0, n) for n in fitting), *kernel), x.dtype)
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=tuple(range(2, x.ndim)))
    steps = [slice(None, None, s) for s in strides] + [slice(None, None, d) for d in dilations]
    view = view[(slice(None), slice(None), *steps)]
    if outputs is not None:
        view = view[(slice(None), slice(None), *(slice(o) for o in outputs))]
    return view


def at_tap(view: Array, tap: Ints) -> Array:
    """The part of a view of windows that lies under one tap."""
    index: Any = (..., *tap)
    return np.asarray(view[index])


def taps(kernel: Ints) -> list[Ints]:
    """All positions in a kernel, the last axis fastest."""
    return list(product(*(range(k) for k in kernel)))
