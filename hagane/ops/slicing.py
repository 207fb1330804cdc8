"""Strided slices, given over all axes with starts and sizes already normalised and clamped."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, to_expr
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Index, Read, Scalar


def _infer(node: Node) -> list[Type]:
    x = node.input(0)
    starts, steps, sizes = (node.attrs[name] for name in ("starts", "steps", "sizes"))
    if not len(starts) == len(steps) == len(sizes) == x.rank:
        raise ShapeError(f"slice names {len(starts)} starts, {len(steps)} steps, {len(sizes)} sizes for {x}")
    for axis, (start, step, size, dim) in enumerate(zip(starts, steps, sizes, x.shape, strict=True)):
        if step == 0:
            raise ShapeError(f"the step of axis {axis} is zero")
        first, count = to_expr(start), to_expr(size)
        if not (first.is_const and count.is_const and dim.is_const) or count == 0:
            continue
        last = first.value + (count.value - 1) * step
        if count.value < 0 or min(first.value, last) < 0 or max(first.value, last) >= dim.value:
            raise ShapeError(f"slice {first}:{last}:{step} leaves axis {axis} of {x}")
    return [Type(x.dtype, tuple(to_expr(s) for s in sizes))]


def _reference(attrs: Attrs, x: Array) -> Array:
    for axis, (start, step, size) in enumerate(
        zip(attrs["starts"], attrs["steps"], attrs["sizes"], strict=True)
    ):
        x = np.take(x, start + step * np.arange(size, dtype=np.int64), axis=axis)
    return x


def _define(node: Node, read: Read, index: Index, output: int) -> Scalar:
    starts, steps = node.attrs["starts"], node.attrs["steps"]
    return read(0, tuple(i * step + start for i, start, step in zip(index, starts, steps, strict=True)))


def _elements(node: Node) -> tuple[Expr, ...] | None:
    known = node.input(0).elements
    if known is None or not node.attrs["starts"]:
        return known
    (start,), (step,), (size,) = (node.attrs[name] for name in ("starts", "steps", "sizes"))
    first, count = to_expr(start), to_expr(size)
    if not (first.is_const and count.is_const):
        return None
    return tuple(known[first.value + step * i] for i in range(count.value))


def _samples() -> Iterable[Sample]:
    x = np.random.default_rng(0).standard_normal((4, 9, 37)).astype(np.float32)

    def sample(
        array: Array, starts: tuple[int, ...], steps: tuple[int, ...], sizes: tuple[int, ...], *axes: int
    ) -> Sample:
        attrs = {"starts": starts, "steps": steps, "sizes": sizes}
        return Sample((array,), attrs, dynamic=tuple((0, axis) for axis in axes))

    yield sample(x, (0, 2, 5), (1, 1, 1), (4, 3, 32), 0, 2)
    yield sample(x, (1, 8, 36), (1, -2, -1), (2, 5, 37))
    yield sample(x, (0, 0, 1), (2, 3, 5), (2, 3, 8), 1)
    yield sample(x.astype(np.int64), (3, 0, 0), (-1, 1, 1), (4, 0, 37))
    yield sample(x[0, 0], (7,), (1,), (1,), 0)
    yield sample(x[0] > 0, (0, 4), (1, 4), (9, 7))


register(OpDef("slice", "movement", _infer, _reference, _define, _elements, _samples))
