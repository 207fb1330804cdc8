"""Concatenation along an axis: guards on the axis' index, so that no operand is read out of bounds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, const, provably_nonneg
from hagane.ir.graph import Node, Type
from hagane.ir.registry import OpDef, Sample, register
from hagane.ir.scalar import Guard, Index, Read, Scalar, below
from hagane.ops.shapes import normal_axis, require_same


def _infer(node: Node) -> list[Type]:
    first = node.input(0)
    axis = normal_axis(node.attrs["axis"], first.rank)
    shape = list(first.shape)
    for position in range(1, len(node.inputs)):
        value = node.input(position)
        require_same(first, value)
        if value.rank != first.rank:
            raise ShapeError(f"concat joins values of one rank, not {first} and {value}")
        for other, (dim, theirs) in enumerate(zip(shape, value.shape, strict=True)):
            if other == axis:
                shape[axis] = dim + theirs
            elif dim.is_const and theirs.is_const and dim != theirs:
                raise ShapeError(f"concat along axis {axis} needs equal other axes, not {first} and {value}")
            elif theirs.is_const:
                shape[other] = theirs
    return [Type(first.dtype, tuple(shape))]


def _define(node: Node, read: Read, index: Index, output: int) -> Scalar:
    axis = normal_axis(node.attrs["axis"], len(index))
    position = index[axis]
    offsets = [const(0)]
    for operand in range(len(node.inputs)):
        offsets.append(offsets[-1] + node.input(operand).shape[axis])

    def pick(first: int, last: int) -> Scalar:
        """The element, known to be in one of the operands first..last."""
        if first == last:
            return read(first, (*index[:axis], position - offsets[first], *index[axis + 1 :]))
        middle = (first + last + 1) // 2
        if provably_nonneg(offsets[middle] - 1 - position):
            return pick(first, middle - 1)
        if provably_nonneg(position - offsets[middle]):
            return pick(middle, last)
        dtype = node.output.dtype
        return Guard(dtype, below(position, offsets[middle]), pick(first, middle - 1), pick(middle, last))

    return pick(0, len(node.inputs) - 1)


def _elements(node: Node) -> tuple[Expr, ...] | None:
    joined: list[Expr] = []
    for position in range(len(node.inputs)):
        known = node.input(position).elements
        if known is None:
            return None
        joined += known
    return tuple(joined)


def _samples() -> Iterable[Sample]:
    x = np.random.default_rng(0).standard_normal((3, 5, 19)).astype(np.float32)
    yield Sample((x, x[:, :2]), {"axis": 1}, dynamic=((0, 1), (1, 1)))
    yield Sample((x, x[..., :7], x[..., :1], x[..., 3:]), {"axis": -1}, dynamic=((1, 2),))
    yield Sample((x, x[:0], x[1:], x[:1], x), {"axis": 0})
    yield Sample((x[0, 0].astype(np.int64), x[0, 1].astype(np.int64)), {"axis": 0})
    yield Sample((x > 0,), {"axis": 2})


def _reference(attrs: dict[str, int], *inputs: np.ndarray) -> np.ndarray:
    return np.concatenate(inputs, axis=attrs["axis"])


register(OpDef("concat", "movement", _infer, _reference, _define, _elements, _samples))
