"""Tensors made from shapes and numbers: iota, shape_values, eye_like, one_hot; and trilu (a triangle)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, const, to_expr
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Guard, Index, IndexValue, Read, Scalar, at_least, below, cast, fn, lit
from hagane.ops.indexing import wrapped_position
from hagane.ops.primitives import cast_array
from hagane.ops.shapes import normal_axis

MAX_ELEMENTS = 64
"""Longest tensor whose symbolic content is tracked, as for constants."""


def _infer_iota(node: Node) -> list[Type]:
    shape = tuple(to_expr(d) for d in node.attrs["shape"])
    normal_axis(node.attrs["axis"], len(shape))
    return [Type(node.attrs["dtype"], shape)]


def _iota(attrs: Attrs) -> Array:
    axis = attrs["axis"] % len(attrs["shape"])
    steps = np.arange(attrs["shape"][axis]).reshape(
        [-1 if a == axis else 1 for a in range(len(attrs["shape"]))]
    )
    return cast_array(np.broadcast_to(steps, attrs["shape"]), attrs["dtype"])


def _define_iota(node: Node, read: Read, index: Index, output: int) -> Scalar:
    return cast(IndexValue(DType.I64, index[node.attrs["axis"]]), node.attrs["dtype"])


def _iota_elements(node: Node) -> tuple[Expr, ...] | None:
    shape = node.attrs["shape"]
    length = to_expr(shape[0])
    if (
        len(shape) != 1
        or not length.is_const
        or length.value > MAX_ELEMENTS
        or not node.attrs["dtype"].is_int
    ):
        return None
    return tuple(const(i) for i in range(length.value))


def _iota_samples() -> Iterable[Sample]:
    yield Sample((), {"dtype": DType.I64, "shape": (7,), "axis": 0})
    yield Sample((), {"dtype": DType.F32, "shape": (3, 5, 19), "axis": 1})
    yield Sample((), {"dtype": DType.I32, "shape": (3, 19), "axis": -1})
    yield Sample((), {"dtype": DType.F16, "shape": (0, 3), "axis": 0})


register(
    OpDef(
        "iota",
        "movement",
        _infer_iota,
        _iota,
        define=_define_iota,
        elements=_iota_elements,
        samples=_iota_samples,
    )
)


def _values(node: Node) -> tuple[Expr, ...]:
    return tuple(to_expr(v) for v in node.attrs["values"])


def _define_shape_values(node: Node, read: Read, index: Index, output: int) -> Scalar:
    values, position = _values(node), index[0]
    if position.is_const and position.value < len(values):
        return IndexValue(DType.I64, values[position.value])
    result: Scalar = IndexValue(DType.I64, values[-1]) if values else lit(DType.I64, 0)
    for k in reversed(range(len(values) - 1)):
        result = Guard(DType.I64, below(position, const(k + 1)), IndexValue(DType.I64, values[k]), result)
    return result


def _shape_values_samples() -> Iterable[Sample]:
    yield Sample((), {"values": (3, 5, 7)})
    yield Sample((), {"values": (-1,)})
    yield Sample((), {"values": ()})


register(
    OpDef(
        "shape_values",
        "shape",
        lambda node: [Type(DType.I64, (const(len(node.attrs["values"])),))],
        lambda attrs: np.array(attrs["values"], np.int64),
        define=_define_shape_values,
        elements=_values,
        samples=_shape_values_samples,
    )
)


def _infer_matrix(node: Node) -> list[Type]:
    x = node.input(0)
    if x.rank != 2:
        raise ShapeError(f"{node.op} takes a matrix, not {x}")
    return [Type(node.attrs["dtype"], x.shape)]


def _eye_like(attrs: Attrs, x: Array) -> Array:
    return cast_array(np.eye(x.shape[0], x.shape[1], attrs["k"], np.int64), attrs["dtype"])


def _define_eye(node: Node, read: Read, index: Index, output: int) -> Scalar:
    row, column = (IndexValue(DType.I64, e) for e in (index[0] + node.attrs["k"], index[1]))
    return cast(fn("eq", row, column, dtype=DType.BOOL), node.attrs["dtype"])


def _eye_samples() -> Iterable[Sample]:
    x = np.zeros((5, 7), np.float32)
    for k, dtype in ((0, DType.F32), (2, DType.I64), (-3, DType.BOOL), (9, DType.F16)):
        yield Sample((x,), {"k": k, "dtype": dtype}, dynamic=((0, 0), (0, 1)))
    yield Sample((x[:0],), {"k": 0, "dtype": DType.F32})


register(OpDef("eye_like", "movement", _infer_matrix, _eye_like, define=_define_eye, samples=_eye_samples))


def _infer_trilu(node: Node) -> list[Type]:
    x = node.input(0)
    if x.rank < 2:
        raise ShapeError(f"trilu takes matrices, not {x}")
    return [x.type]


def _trilu(attrs: Attrs, x: Array) -> Array:
    return np.asarray((np.triu if attrs["upper"] else np.tril)(x, attrs["k"]))


def _define_trilu(node: Node, read: Read, index: Index, output: int) -> Scalar:
    diagonal, column = index[-2] + node.attrs["k"], index[-1]
    kept = at_least(column, diagonal) if node.attrs["upper"] else at_least(diagonal, column)
    dtype = node.input(0).dtype
    return Guard(dtype, kept, read(0, index), lit(dtype, 0))


def _trilu_samples() -> Iterable[Sample]:
    x = np.random.default_rng(0).standard_normal((3, 5, 7)).astype(np.float32)
    for upper in (True, False):
        for k in (0, 1, -2, 9):
            yield Sample((x,), {"upper": upper, "k": k}, dynamic=((0, 1), (0, 2)))
        yield Sample((np.full((5, 5), np.inf, np.float32),), {"upper": upper, "k": 1})
        yield Sample((x[0] > 0,), {"upper": upper, "k": 0})
        yield Sample((np.arange(20).reshape(4, 5),), {"upper": upper, "k": -1})
        yield Sample((x[:, :0],), {"upper": upper, "k": 0})


register(OpDef("trilu", "movement", _infer_trilu, _trilu, define=_define_trilu, samples=_trilu_samples))


def _infer_one_hot(node: Node) -> list[Type]:
    positions, values = node.input(0), node.input(1)
    if values.rank != 1 or (values.shape[0].is_const and values.shape[0] != 2):
        raise ShapeError(f"one_hot takes the values for off and on, not {values}")
    if positions.dtype in (DType.BOOL, DType.STRING):
        raise ModelError(f"positions must be numbers, not {positions}")
    axis = normal_axis(node.attrs["axis"], positions.rank + 1)
    depth = to_expr(node.attrs["depth"])
    return [Type(values.dtype, (*positions.shape[:axis], depth, *positions.shape[axis:]))]


def _one_hot(attrs: Attrs, positions: Array, values: Array) -> Array:
    depth, axis = attrs["depth"], attrs["axis"] % (positions.ndim + 1)
    p = np.expand_dims(cast_array(positions, DType.I64), axis)
    steps = np.arange(depth).reshape([-1 if a == axis else 1 for a in range(p.ndim)])
    return np.asarray(np.where(np.where(p < 0, p + depth, p) == steps, values[1], values[0]))


def _define_one_hot(node: Node, read: Read, index: Index, output: int) -> Scalar:
    axis = normal_axis(node.attrs["axis"], len(index))
    position = cast(read(0, (*index[:axis], *index[axis + 1 :])), DType.I64)
    hit = fn(
        "eq",
        wrapped_position(position, node.output.shape[axis]),
        IndexValue(DType.I64, index[axis]),
        dtype=DType.BOOL,
    )
    return Guard(node.output.dtype, hit, read(1, (const(1),)), read(1, (const(0),)))


def _one_hot_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    off_on = np.array([-1, 2.5], np.float32)
    yield Sample((rng.integers(-12, 12, (3, 7)), off_on), {"depth": 10, "axis": -1}, dynamic=((0, 0), (0, 1)))
    yield Sample(
        (rng.integers(-5, 5, (3, 7)).astype(np.int32), off_on), {"depth": 5, "axis": 1}, dynamic=((0, 0),)
    )
    yield Sample((rng.uniform(-5, 5, 9).astype(np.float32), np.array([0, 1])), {"depth": 6, "axis": 0})
    yield Sample((np.asarray(2), np.array([False, True])), {"depth": 4, "axis": 0})
    yield Sample((np.zeros((0, 2), np.int64), off_on), {"depth": 4, "axis": -1})


register(
    OpDef("one_hot", "movement", _infer_one_hot, _one_hot, define=_define_one_hot, samples=_one_hot_samples)
)
