"""Shape rules that op families share: broadcasting, axis numbers, reading operands under broadcasting."""

from __future__ import annotations

from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, const, emax, emin, provably_nonneg
from hagane.ir.graph import Node, Shape, Value
from hagane.ir.scalar import Index, Read, Scalar


def broadcast_dims(a: Expr, b: Expr) -> Expr:
    """One dim of a broadcast result.

    A dim that can't be 1 decides: the other is it or 1. Of two dims that may be 1, the result is the maximum,
    or 0 where one of them is 0.
    Raises: ShapeError if both are constants that neither agree nor are 1.
    """
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if a.is_const and b.is_const:
        raise ShapeError(f"dims {a} and {b} can't be broadcast together")
    decisive = [dim for dim in (a, b) if _never_one(dim)]
    if decisive:
        return next((dim for dim in decisive if dim.is_const), decisive[0])
    return emax(a, b) if _never_zero(a) and _never_zero(b) else emax(a, b) * emin(a, b, 1)


def _never_zero(dim: Expr) -> bool:
    return provably_nonneg(dim - 1)


def _never_one(dim: Expr) -> bool:
    lowest = dim.bounds()[0]
    return dim.divisor() != 1 or (lowest is not None and lowest > 1)


def broadcast_shapes(*shapes: Shape) -> Shape:
    """NumPy's broadcast of shapes. Raises: ShapeError."""
    rank = max(len(s) for s in shapes)
    result = [const(1)] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, rank - len(shape)):
            try:
                result[axis] = broadcast_dims(result[axis], dim)
            except ShapeError as error:
                shown = " and ".join("[" + ", ".join(map(str, s)) + "]" for s in shapes)
                raise ShapeError(f"shapes {shown} can't be broadcast together: {error.what}") from None
    return tuple(result)


def broadcast_index(shape: Shape, out_shape: Shape, index: Index) -> Index:
    """The index into an operand of `shape` for an index into the broadcast result."""
    skipped = len(out_shape) - len(shape)
    result: list[Expr] = []
    for axis, dim in enumerate(shape):
        position = index[axis + skipped]
        if dim == 1:
            result.append(const(0))
        elif dim == out_shape[axis + skipped]:
            result.append(position)
        else:  # either the whole extent or 1, known at run time only
            result.append(emin(position, dim - 1))
    return tuple(result)


def read_broadcast(node: Node, read: Read, position: int, index: Index, output: int = 0) -> Scalar:
    """Input `position` of a broadcasting node at an index into its output."""
    value = node.input(position)
    return read(position, broadcast_index(value.shape, node.outputs[output].shape, index))


def normal_axis(axis: int, rank: int) -> int:
    """The axis number counted from the front. Raises: ShapeError if it is out of range."""
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank if rank else 0


def require_same(value: Value, other: Value) -> None:
    """Raises: ShapeError unless both values have one element type."""
    if value.dtype is not other.dtype:
        raise ShapeError(f"element types differ: {value} and {other}")


def broadcast_elements(node: Node) -> list[tuple[Expr, Expr]] | None:
    """The pairs that a broadcasting binary node combines, where the contents of both operands are known."""
    a, b = node.input(0).elements, node.input(1).elements
    if a is None or b is None:
        return None
    length = 0 if 0 in (len(a), len(b)) else max(len(a), len(b))
    if any(len(side) not in (0, 1, length) for side in (a, b)):
        return None
    return [(a[i % len(a)], b[i % len(b)]) for i in range(length)]
