"""Integer contractions: matmul_integer and conv_integer of 8-bit operands with zero points, into i32."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.symbolic import const
from hagane.ir.graph import Array, Node, Shape, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Index, Read, Scalar, cast, fn
from hagane.ops.conv import conv_attrs, conv_output_shape, convolve, define_sum
from hagane.ops.loops import loops
from hagane.ops.shapes import broadcast_index, broadcast_shapes

_EIGHT_BITS = (DType.I8, DType.U8)


def _require_bytes(node: Node) -> None:
    for position, value in enumerate(node.inputs):
        if value is not None and value.dtype not in _EIGHT_BITS:
            raise ShapeError(f"{node.op} takes i8 or u8, not {value}")
        if value is not None and position > 1 and value.dtype is not node.input(position - 2).dtype:
            raise ShapeError(f"{node.op} has a zero point {value} for {node.input(position - 2)}")


def _centred(node: Node, read: Read, position: int, index: Index, zero_index: Index) -> Scalar:
    """Operand minus its zero point, in i32."""
    element = cast(read(position, index), DType.I32)
    if node.optional(position + 2) is None:
        return element
    return fn("sub", element, cast(read(position + 2, zero_index), DType.I32))


# ---- matmul_integer(x, w, x zero point, w zero point): zero points have one element, one per row of x or per
# column of w, or a shape that broadcasts against the operand


def _infer_matmul(node: Node) -> list[Type]:
    _require_bytes(node)
    a, b = node.input(0), node.input(1)
    if a.rank == 0 or b.rank == 0:
        raise ShapeError("matmul_integer takes no scalars")
    k_a, k_b = a.shape[-1], b.shape[-2] if b.rank > 1 else b.shape[0]
    if k_a.is_const and k_b.is_const and k_a != k_b:
        raise ShapeError(f"matmul_integer sums over {k_a} elements of {a} and {k_b} of {b}")
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return [Type(DType.I32, (*batch, *a.shape[-2:-1], *(b.shape[-1:] if b.rank > 1 else ())))]


def _zero_index(node: Node, position: int, index: Index, along: int) -> Index:
    """Index into an operand's zero point for an index into the operand; vectors lie along an axis."""
    zero, shape = node.optional(position + 2), node.input(position).shape
    if zero is None:
        return ()
    if zero.rank == 1 and len(shape) > 1:
        return (const(0),) if zero.shape[0] == 1 else (index[along],)
    return broadcast_index(zero.shape, shape, index)


def _define_matmul(node: Node, read: Read, index: Index, output: int) -> Scalar:
    a, b = node.input(0), node.input(1)
    nest = loops(index, [a.shape[-1]])
    (k,) = nest.positions
    columns = index[-1:] if b.rank > 1 else ()
    rest = index[: len(index) - len(columns)]
    rows = rest[-1:] if a.rank > 1 else ()
    rest = rest[: len(rest) - len(rows)]
    batch: Shape = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    at_a = (*broadcast_index(a.shape[:-2], batch, rest), *rows, k)
    at_b = (*broadcast_index(b.shape[:-2], batch, rest), k, *columns)
    left = _centred(node, read, 0, at_a, _zero_index(node, 0, at_a, -2))
    right = _centred(node, read, 1, at_b, _zero_index(node, 1, at_b, -1))
    return nest.reduce("sum", fn("mul", left, right))


def _exact(x: Array, zero: Array | None) -> Array:
    """x minus its zero point as float64, in which sums of such products are exact."""
    return x.astype(np.float64) if zero is None else x.astype(np.float64) - zero.astype(np.float64)


def _wrapped(x: Array) -> Array:
    return x.astype(np.int64).astype(np.int32)


def _matmul(
    attrs: Attrs, x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None
) -> Array:
    if x_zero is not None and x_zero.ndim == 1 and x.ndim > 1:
        x_zero = x_zero[:, None]
    return _wrapped(np.asarray(np.matmul(_exact(x, x_zero), _exact(w, w_zero))))


# ---- conv_integer(x, w, x zero point, w zero point): zero points have one element, that of w may be [M]


def _infer_conv(node: Node) -> list[Type]:
    _require_bytes(node)
    filters = node.input(1).shape[0]
    for position in (2, 3):
        zero = node.optional(position)
        lengths = (const(1), filters)[: position - 1]
        if zero is not None and not (zero.rank == 0 or (zero.rank == 1 and zero.shape[0] in lengths)):
            raise ShapeError(f"conv_integer can't use the zero point {zero}")
    return [Type(DType.I32, conv_output_shape(node))]


def _define_conv(node: Node, read: Read, index: Index, output: int) -> Scalar:
    def zero_index(position: int, at: Index) -> Index:
        zero = node.optional(position)
        if zero is None or zero.rank == 0:
            return ()
        return (const(0),) if zero.shape[0] == 1 else at[:1]

    def read_x(position: int, at: Index) -> Scalar:
        return _centred(node, read, 0, at, zero_index(2, at))

    def read_w(position: int, at: Index) -> Scalar:
        return _centred(node, read, 1, at, zero_index(3, at))

    return define_sum(node, read_x, read_w, index)


def _conv(
    attrs: Attrs, x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None
) -> Array:
    if w_zero is not None:
        w_zero = w_zero.reshape((-1,) + (1,) * (w.ndim - 1))
    return _wrapped(convolve(attrs, _exact(x, x_zero), _exact(w, w_zero)))


# ---- samples


def _bytes(seed: int, *shape: int, signed: bool = False) -> Array:
    low, kind = (-128, np.int8) if signed else (0, np.uint8)
    return np.random.default_rng(seed).integers(low, low + 256, shape).astype(kind)


def _one(value: int, kind: type[np.generic]) -> Array:
    return np.asarray(value, kind)


def _matmul_samples() -> Iterable[Sample]:
    x, w = _bytes(0, 7, 33), _bytes(1, 33, 17, signed=True)
    yield Sample((x, w, None, None), dynamic=((0, 0),))
    yield Sample(
        (_bytes(0, 7, 33), _bytes(1, 33, 17, signed=True), _one(120, np.uint8), _one(-3, np.int8)),
        dynamic=((0, 0),),
    )
    yield Sample((_bytes(0, 7, 33), _bytes(1, 33, 17), _bytes(2, 1), _bytes(3, 17)))
    yield Sample(
        (_bytes(0, 2, 7, 9), _bytes(1, 9, 5), _bytes(2, 2, 7, 1), _bytes(3, 1, 5)), dynamic=((0, 0),)
    )
    yield Sample((_bytes(0, 7, 9), _bytes(1, 2, 9, 5), _bytes(2, 7), None))
    yield Sample((_bytes(0, 9), _bytes(1, 9, 5), _one(1, np.uint8), None))


def _conv_samples() -> Iterable[Sample]:
    same: Attrs = {"pads_begin": (1, 1), "pads_end": (1, 1)}
    free = ((0, 0), (0, 2), (0, 3))
    x, w = _bytes(0, 2, 4, 7, 9), _bytes(1, 6, 4, 3, 3, signed=True)
    yield Sample((x, w, None, None), conv_attrs(2, **same), dynamic=free)
    yield Sample((x, w, _one(100, np.uint8), None), conv_attrs(2, strides=(2, 1), **same), dynamic=free)
    yield Sample(
        (x, w[:, :2], _one(7, np.uint8), _one(-5, np.int8)), conv_attrs(2, group=2, dilations=(2, 2))
    )
    yield Sample((x, w, _one(7, np.uint8), _bytes(2, 6, signed=True)), conv_attrs(2, **same), dynamic=free)
    yield Sample((x[:, :, :, 0], _bytes(1, 5, 4, 2), _bytes(2, 1), _bytes(3, 1)), conv_attrs(1))


_KIND = "contraction"
register(
    OpDef("matmul_integer", _KIND, _infer_matmul, _matmul, define=_define_matmul, samples=_matmul_samples)
)
register(OpDef("conv_integer", _KIND, _infer_conv, _conv, define=_define_conv, samples=_conv_samples))
