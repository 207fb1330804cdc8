"""Reads at positions that a tensor holds: gather, gather_elements, gather_nd, reverse_sequence.

Negative positions count from the end. Those out of range are a fault of the model; they read a clamped place.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, emax, emin, provably_nonneg
from hagane.ir.graph import Array, Node, Type, Value
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Guard, Index, IndexValue, Read, Scalar, cast, fn
from hagane.ops.indexing import let_index, let_position
from hagane.ops.shapes import normal_axis


def _require_positions(node: Node) -> None:
    if not node.input(1).dtype.is_int:
        raise ShapeError(f"positions must be integers, not {node.input(1)}")


def _infer_gather(node: Node) -> list[Type]:
    _require_positions(node)
    x, positions = node.input(0), node.input(1)
    axis = normal_axis(node.attrs["axis"], x.rank)
    if x.rank == 0:
        raise ShapeError(f"gather needs an axis to read along, and {x} has none")
    if positions.data is not None and positions.data.size and x.shape[axis].is_const:
        low, high, extent = int(positions.data.min()), int(positions.data.max()), x.shape[axis].value
        if low < -extent or high >= extent:
            wrong = high if high >= extent else low
            raise ShapeError(f"gather reads position {wrong} of axis {axis} of {x}, which has {extent}")
    return [Type(x.dtype, (*x.shape[:axis], *positions.shape, *x.shape[axis + 1 :]))]


def _define_gather(node: Node, read: Read, index: Index, output: int) -> Scalar:
    x, positions = node.input(0), node.input(1)
    axis = normal_axis(node.attrs["axis"], x.rank)
    after = axis + positions.rank
    at = index[axis:after]
    known = _known_position(positions, x.shape[axis])
    if known is not None:
        return read(0, (*index[:axis], known, *index[after:]))

    def element(p: Expr) -> Scalar:
        return read(0, (*index[:axis], p, *index[after:]))

    if _surely_inside(positions, x.shape[axis]):
        return let_index(node, at, cast(read(1, at), DType.I64), x.shape[axis], element)
    return let_position(node, at, read(1, at), x.shape[axis], element)


def _known_position(positions: Value, extent: Expr) -> Expr | None:
    """The only position, where its value is known: a constant, or dims that surely lie within the axis.

    A constant is held within a dynamic axis, except for the first and the last element, which any axis has.
    """
    if positions.elements is None or len(positions.elements) != 1:
        return None
    position = positions.elements[0]
    if position.is_const and -1 <= position.value <= 0:
        return position if position == 0 else extent - 1
    if position.is_const:
        return emin(position, extent - 1) if position.value > 0 else emax(position + extent, 0)
    inside = provably_nonneg(position) and provably_nonneg(extent - 1 - position)
    return position if inside else None


def _surely_inside(positions: Value, extent: Expr) -> bool:
    """Whether the positions are constants that need neither wrapping nor clamping."""
    data = positions.data
    if data is None or data.size == 0 or not extent.is_const:
        return False
    return bool(data.min() >= 0 and data.max() < extent.value)


def _gather_elements_content(node: Node) -> tuple[Expr, ...] | None:
    known, positions = node.input(0).elements, node.input(1).elements
    if (
        known is None
        or positions is None
        or node.input(0).rank != 1
        or not all(p.is_const for p in positions)
    ):
        return None
    if node.input(1).rank > 1 or not all(-len(known) <= p.value < len(known) for p in positions):
        return None
    return tuple(known[p.value] for p in positions)


def _gather_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((7, 5, 19)).astype(np.float32)
    i = rng.integers(-7, 7, (3, 4))
    yield Sample((x, i), {"axis": 0}, dynamic=((0, 0), (1, 0)))
    yield Sample((x, rng.integers(-5, 5, 6).astype(np.int32)), {"axis": 1}, dynamic=((0, 2),))
    yield Sample((x, rng.integers(0, 19, (2, 1, 3))), {"axis": -1})
    yield Sample((x, np.asarray(-2)), {"axis": 1}, dynamic=((0, 0), (0, 1)))
    yield Sample((x.astype(np.int64)[0, 0], i), {"axis": 0})
    yield Sample((x[:, :1], np.zeros((2, 2), np.int64)), {"axis": 1})
    yield Sample((x, i[:0]), {"axis": 0})


def _gather(attrs: Attrs, x: Array, positions: Array) -> Array:
    return np.take(x, positions.astype(np.int64), axis=attrs["axis"])


register(
    OpDef(
        "gather",
        "movement",
        _infer_gather,
        _gather,
        define=_define_gather,
        elements=_gather_elements_content,
        samples=_gather_samples,
    )
)


def _infer_gather_elements(node: Node) -> list[Type]:
    _require_positions(node)
    x, positions = node.input(0), node.input(1)
    normal_axis(node.attrs["axis"], x.rank)
    if x.rank != positions.rank or x.rank == 0:
        raise ShapeError(
            f"gather_elements needs data and positions of one rank above 0, not {x} and {positions}"
        )
    return [Type(x.dtype, positions.shape)]


def _define_gather_elements(node: Node, read: Read, index: Index, output: int) -> Scalar:
    x = node.input(0)
    axis = normal_axis(node.attrs["axis"], x.rank)
    return let_position(
        node, index, read(1, index), x.shape[axis], lambda p: read(0, (*index[:axis], p, *index[axis + 1 :]))
    )


def _gather_elements(attrs: Attrs, x: Array, positions: Array) -> Array:
    axis = attrs["axis"] % x.ndim
    corner = tuple(slice(None) if a == axis else slice(0, n) for a, n in enumerate(positions.shape))
    p = positions.astype(np.int64)
    return np.take_along_axis(x[corner], np.where(p < 0, p + x.shape[axis], p), axis=axis)


def _gather_elements_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 5, 19)).astype(np.float32)
    yield Sample((x, rng.integers(-5, 5, (4, 3, 19))), {"axis": 1}, dynamic=((0, 0), (0, 1), (1, 1)))
    yield Sample((x, rng.integers(0, 19, (2, 5, 33)).astype(np.int32)), {"axis": -1}, dynamic=((1, 2),))
    yield Sample((x.astype(np.int64)[0], rng.integers(-5, 5, (7, 19))), {"axis": 0})
    yield Sample((x, np.zeros((0, 5, 3), np.int64)), {"axis": 2})


register(
    OpDef(
        "gather_elements",
        "movement",
        _infer_gather_elements,
        _gather_elements,
        define=_define_gather_elements,
        samples=_gather_elements_samples,
    )
)


def _tuple_length(node: Node, batch_dims: int) -> int:
    """How many axes one tuple of positions addresses."""
    x, positions = node.input(0), node.input(1)
    if positions.rank == 0 or not positions.shape[-1].is_const:
        raise ShapeError(f"the last axis of the positions must have a known extent, not {positions}")
    length = positions.shape[-1].value
    if not 1 <= length <= x.rank - batch_dims or batch_dims >= positions.rank:
        raise ShapeError(f"{length} positions and {batch_dims} batch dims don't fit {x} and {positions}")
    return length


def _infer_gather_nd(node: Node) -> list[Type]:
    _require_positions(node)
    x, positions, batch = node.input(0), node.input(1), node.attrs["batch_dims"]
    length = _tuple_length(node, batch)
    return [Type(x.dtype, (*positions.shape[:-1], *x.shape[batch + length :]))]


def _define_gather_nd(node: Node, read: Read, index: Index, output: int) -> Scalar:
    x, positions, batch = node.input(0), node.input(1), node.attrs["batch_dims"]
    length = _tuple_length(node, batch)
    outer, inner = index[: positions.rank - 1], index[positions.rank - 1 :]

    def bind(number: int, found: Index) -> Scalar:
        if number == length:
            return read(0, (*index[:batch], *found, *inner))
        value = read(1, (*outer, positions.shape[-1] * 0 + number))
        extent = x.shape[batch + number]
        return let_position(node, outer, value, extent, lambda p: bind(number + 1, (*found, p)), number)

    return bind(0, ())


def _gather_nd(attrs: Attrs, x: Array, positions: Array) -> Array:
    batch, length = attrs["batch_dims"], positions.shape[-1]
    grids = np.ogrid[tuple(slice(0, n) for n in positions.shape[:-1])]
    at = [grids[axis] for axis in range(batch)]
    at += [positions[..., k].astype(np.int64) for k in range(length)]
    return np.asarray(x[tuple(at)])


def _gather_nd_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 5, 19)).astype(np.float32)
    yield Sample((x, rng.integers(-4, 4, (3, 7, 2))), {"batch_dims": 0}, dynamic=((0, 0), (1, 1)))
    yield Sample((x, rng.integers(0, 4, (6, 1))), {"batch_dims": 0}, dynamic=((0, 2),))
    yield Sample((x, rng.integers(0, 4, (3, 3)).astype(np.int64)), {"batch_dims": 0})
    yield Sample((x, rng.integers(0, 5, (4, 2, 1))), {"batch_dims": 1}, dynamic=((0, 0), (1, 0)))
    yield Sample((x, rng.integers(0, 5, (4, 5, 1))), {"batch_dims": 2})
    yield Sample((x, np.zeros((0, 2), np.int64)), {"batch_dims": 0})


register(
    OpDef(
        "gather_nd",
        "movement",
        _infer_gather_nd,
        _gather_nd,
        define=_define_gather_nd,
        samples=_gather_nd_samples,
    )
)


def _infer_reverse(node: Node) -> list[Type]:
    x, lengths = node.input(0), node.input(1)
    axes = {normal_axis(node.attrs[name], x.rank) for name in ("batch_axis", "time_axis")}
    if lengths.rank != 1 or not lengths.dtype.is_int or len(axes) != 2:
        raise ShapeError(
            f"reverse_sequence takes lengths along a batch axis beside the time axis, not {lengths}"
        )
    return [x.type]


def _define_reverse(node: Node, read: Read, index: Index, output: int) -> Scalar:
    """Element t of a sequence of n comes from n - 1 - t where t < n, else from t."""
    x = node.input(0)
    batch, time = (normal_axis(node.attrs[name], x.rank) for name in ("batch_axis", "time_axis"))
    at = (index[batch],)
    length = cast(read(1, at), DType.I64)
    here = IndexValue(DType.I64, index[time])
    mirrored = fn("sub", length, IndexValue(DType.I64, index[time] + 1))
    source = Guard(DType.I64, fn("lt", here, length, dtype=DType.BOOL), mirrored, here)
    return let_position(
        node,
        (index[batch], index[time]),
        source,
        x.shape[time],
        lambda p: read(0, (*index[:time], p, *index[time + 1 :])),
    )


def _reverse_sequence(attrs: Attrs, x: Array, lengths: Array) -> Array:
    batch, time = attrs["batch_axis"] % x.ndim, attrs["time_axis"] % x.ndim
    ordered = np.moveaxis(x, (batch, time), (0, 1)).copy()
    for row, length in zip(ordered, lengths.tolist(), strict=True):
        row[:length] = row[:length][::-1].copy()
    return np.moveaxis(ordered, (0, 1), (batch, time))


def _reverse_samples() -> Iterable[Sample]:
    x = np.random.default_rng(0).standard_normal((4, 7, 5)).astype(np.float32)
    lengths = np.array([7, 1, 4, 2])
    yield Sample((x, lengths), {"batch_axis": 0, "time_axis": 1}, dynamic=((0, 0), (0, 1), (1, 0)))
    yield Sample((x.swapaxes(0, 1).copy(), lengths), {"batch_axis": 1, "time_axis": 0}, dynamic=((0, 2),))
    yield Sample((x[..., 0].astype(np.int64), lengths.astype(np.int32)), {"batch_axis": -2, "time_axis": -1})


register(
    OpDef(
        "reverse_sequence",
        "movement",
        _infer_reverse,
        _reverse_sequence,
        define=_define_reverse,
        samples=_reverse_samples,
    )
)
