"""Padding and cropping of each axis: constant, reflect (without the edge), edge, wrap.

A negative amount crops. Cropping comes first: the other modes repeat what is left of the axis.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, emax, emin, provably_nonneg, to_expr
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Guard, Index, Read, Scalar, at_least, below, both, lit
from hagane.ops.shapes import require_same

MODES = ("constant", "reflect", "edge", "wrap")


def _infer(node: Node) -> list[Type]:
    x, fill, mode = node.input(0), node.optional(1), node.attrs["mode"]
    before, after = node.attrs["before"], node.attrs["after"]
    if mode not in MODES:
        raise ModelError(f"pad has no mode {mode!r}", next_step=f"use one of: {', '.join(MODES)}")
    if not len(before) == len(after) == x.rank:
        raise ShapeError(f"pad names {len(before)} and {len(after)} amounts for the {x.rank} axes of {x}")
    if fill is not None:
        require_same(x, fill)
        if fill.rank and fill.static_shape != (1,):
            raise ShapeError(f"the fill value must be a scalar, not {fill}")
    shape = tuple(d + b + a for d, b, a in zip(x.shape, before, after, strict=True))
    for axis, dim in enumerate(shape):
        if dim.is_const and dim.value < 0:
            raise ShapeError(f"pad crops axis {axis} of {x} by more than it has")
    return [Type(x.dtype, shape)]


def _reference(attrs: Attrs, x: Array, fill: Array | None = None) -> Array:
    before, after, mode = attrs["before"], attrs["after"], attrs["mode"]
    for axis, (b, a) in enumerate(zip(before, after, strict=True)):
        x = np.take(x, np.arange(max(0, -b), x.shape[axis] - max(0, -a)), axis=axis)
    widths = [(max(0, b), max(0, a)) for b, a in zip(before, after, strict=True)]
    if mode == "constant":
        value = np.zeros((), x.dtype) if fill is None else fill.reshape(())
        return np.pad(x, widths, constant_values=value)
    return np.pad(x, widths, mode)


def _source(mode: str, position: Expr, dim: Expr, near: bool) -> Expr:
    """Where in [0, dim) a position outside comes from. near: it is less than dim away from the axis."""
    if mode == "edge":
        return emax(0, emin(position, dim - 1))
    if mode == "wrap":
        return position % dim
    if near:
        distance = emax(position, -position)
        return emin(distance, 2 * (dim - 1) - distance)
    period = emax(1, 2 * (dim - 1))
    phase = position % period
    return emin(phase, period - phase)


def _is_near(dim: Expr, before: Expr, after: Expr) -> bool:
    return provably_nonneg(dim - 1 - before) and provably_nonneg(dim - 1 - after)


def _define(node: Node, read: Read, index: Index, output: int) -> Scalar:
    x, mode = node.input(0), node.attrs["mode"]
    position: list[Expr] = []
    inside: list[Scalar] = []
    for i, dim, b, a in zip(index, x.shape, node.attrs["before"], node.attrs["after"], strict=True):
        before, after = to_expr(b), to_expr(a)
        if mode == "constant":
            if not provably_nonneg(i - before):
                inside.append(at_least(i, before))
            if not provably_nonneg(dim + before - 1 - i):
                inside.append(below(i, dim + before))
            position.append(i - before)
            continue
        if (before == 0 and after == 0) or dim == 0:
            position.append(i)
            continue
        skipped = emax(0, -before)
        kept = dim - skipped - emax(0, -after)
        near = _is_near(kept, before, after)
        position.append(_source(mode, i - emax(0, before), kept, near) + skipped)
    value = read(0, tuple(position))
    if not inside:
        return value
    fill = node.optional(1)
    other = lit(x.dtype, 0) if fill is None else read(1, (to_expr(0),) * fill.rank)
    return Guard(x.dtype, both(*inside), value, other)


def _elements(node: Node) -> tuple[Expr, ...] | None:
    known, fill = node.input(0).elements, node.optional(1)
    amounts = (*node.attrs["before"], *node.attrs["after"])
    if known is None or node.attrs["mode"] != "constant" or len(amounts) != 2:
        return None
    before, after = (to_expr(a) for a in amounts)
    filler = (to_expr(0),) if fill is None else fill.elements
    if not (before.is_const and after.is_const) or filler is None or before.value + after.value > 64:
        return None
    cropped = known[max(0, -before.value) : len(known) - max(0, -after.value)]
    return filler * max(0, before.value) + cropped + filler * max(0, after.value)


def _samples() -> Iterable[Sample]:
    x = np.random.default_rng(0).standard_normal((3, 5, 19)).astype(np.float32)

    def attrs(before: tuple[int, ...], after: tuple[int, ...], mode: str) -> dict[str, Any]:
        return {"before": before, "after": after, "mode": mode}

    for mode in MODES:
        yield Sample((x,), attrs((0, 1, 2), (0, 3, 4), mode), dynamic=((0, 0), (0, 2)))
        yield Sample((x,), attrs((0, 0, -2), (0, -1, 3), mode), dynamic=((0, 2),))
        yield Sample((x[0, 0],), attrs((18,), (0,), mode), dynamic=((0, 0),))
    for mode in ("reflect", "wrap"):
        yield Sample((x[0, :2],), attrs((5, 0), (3, 40), mode))
    for mode in ("reflect", "edge", "wrap"):
        yield Sample((x[:1],), attrs((2, 0, 0), (1, 0, 0), mode))
    yield Sample(
        (x, np.asarray(np.nan, np.float32)), attrs((1, 0, 0), (0, 0, 0), "constant"), dynamic=((0, 0),)
    )
    yield Sample((x.astype(np.int64), np.array([-7])), attrs((0, 2, -3), (1, 0, 5), "constant"))
    yield Sample((x[:0],), attrs((1, 0, 0), (1, 0, 0), "constant"))
    yield Sample((x > 0,), attrs((0, -2, 0), (0, -3, 0), "constant"))
    yield Sample((np.arange(4),), attrs((1,), (2,), "constant"))


register(OpDef("pad", "movement", _infer, _reference, _define, _elements, _samples))
