"""Writes at positions that a tensor holds, plain or combined with what is there: scatter_elements and _nd.

Of plain writes to one place the last stays. A definition looks at an output element from the other side: it
reduces over all updates that hit it. That is exact but slow; the scatter kernels write in order instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, const, product
from hagane.ir.graph import Array, Node, Type
from hagane.ir.layout import linear_offset
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Fn, Guard, Index, IndexValue, Read, Scalar, below, both, fn, lit
from hagane.ops.indexing import let_index, wrapped_position
from hagane.ops.loops import Loops, loops
from hagane.ops.shapes import normal_axis, require_same

COMBINE: dict[str, tuple[str, str]] = {
    "add": ("sum", "add"),
    "mul": ("prod", "mul"),
    "max": ("max", "max"),
    "min": ("min", "min"),
}
"""Reduction attribute: the `Reduce` over the updates, and the function that joins its result to the data."""

_UFUNCS: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _check(node: Node) -> None:
    data, positions, updates = node.input(0), node.input(1), node.input(2)
    require_same(data, updates)
    if not positions.dtype.is_int:
        raise ShapeError(f"positions must be integers, not {positions}")
    if node.attrs["reduction"] not in ("none", *COMBINE):
        raise ModelError(f"{node.op} has no reduction {node.attrs['reduction']!r}")


def _identity(op: str, dtype: DType) -> Scalar:
    """What leaves a reduction's result as it is."""
    if op in ("sum", "prod"):
        return lit(dtype, int(op == "prod"))
    if dtype is DType.BOOL:
        return lit(dtype, op == "min")
    if dtype.is_float:
        return lit(dtype, float("-inf") if op == "max" else float("inf"))
    low, high = (
        (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.is_signed else (0, (1 << dtype.bits) - 1)
    )
    return lit(dtype, low if op == "max" else high)


def _combined(node: Node, data: Scalar, nest: Loops, hit: Scalar, update: Scalar) -> Scalar:
    """data joined with the updates of the loops at which `hit` holds."""
    reduce_op, join = COMBINE[node.attrs["reduction"]]
    if data.dtype is DType.BOOL:
        reduce_op, join = {"sum": ("any", "or"), "max": ("any", "or")}.get(reduce_op, ("all", "and"))
        neutral: Scalar = lit(DType.BOOL, reduce_op == "all")
    else:
        neutral = _identity(reduce_op, data.dtype)
    return fn(join, data, nest.reduce(reduce_op, Guard(data.dtype, hit, update, neutral)))


def _last_hit(
    node: Node,
    index: Index,
    data: Scalar,
    nest: Loops,
    extents: tuple[Expr, ...],
    hit: Scalar,
    update: Callable[[Index], Scalar],
) -> Scalar:
    """The update of the last loop position at which `hit` holds, or data if there is none."""
    if any(extent == 0 for extent in extents):
        return data
    number = IndexValue(DType.I64, linear_offset(extents, nest.positions))
    last = nest.reduce("max", Guard(DType.I64, hit, number, lit(DType.I64, -1)))
    found = Fn(DType.BOOL, "ge", (last, lit(DType.I64, 0)))

    def unravelled(flat: Expr) -> Scalar:
        position: list[Expr] = []
        for extent in reversed(extents):
            position.insert(0, flat % extent if len(position) + 1 < len(extents) else flat)
            flat = flat // extent
        return update(tuple(position))

    total = product(extents)
    return Guard(data.dtype, found, let_index(node, index, last, total, unravelled), data)


def _equals(value: Scalar, position: Expr) -> Scalar:
    return fn("eq", value, IndexValue(DType.I64, position), dtype=DType.BOOL)


def _infer_elements(node: Node) -> list[Type]:
    _check(node)
    data, positions, updates = node.input(0), node.input(1), node.input(2)
    axis = normal_axis(node.attrs["axis"], data.rank)
    if not data.rank == positions.rank == updates.rank or data.rank == 0:
        raise ShapeError(
            f"scatter_elements needs operands of one rank above 0, not {data}, {positions}, {updates}"
        )
    for other, (p, d) in enumerate(zip(positions.shape, data.shape, strict=True)):
        if other != axis and p.is_const and d.is_const and p.value > d.value:
            raise ShapeError(f"the positions {positions} are larger than {data} along axis {other}")
    return [data.type]


def _define_elements(node: Node, read: Read, index: Index, output: int) -> Scalar:
    data, positions = node.input(0), node.input(1)
    axis = normal_axis(node.attrs["axis"], data.rank)
    extent = positions.shape[axis]
    nest = loops(index, [extent])

    def at(k: Expr) -> Index:
        return (*index[:axis], k, *index[axis + 1 :])

    old = read(0, index)
    inside = at(nest.positions[0])
    hit = _equals(wrapped_position(read(1, inside), data.shape[axis]), index[axis])
    if node.attrs["reduction"] == "none":
        result = _last_hit(node, index, old, nest, (extent,), hit, lambda found: read(2, at(found[0])))
    else:
        result = _combined(node, old, nest, hit, read(2, inside))
    covered = [
        below(index[other], p)
        for other, (p, d) in enumerate(zip(positions.shape, data.shape, strict=True))
        if other != axis and p != d
    ]
    return Guard(data.dtype, both(*covered), result, old) if covered else result


def _scatter_elements(attrs: Attrs, data: Array, positions: Array, updates: Array) -> Array:
    result = data.copy()
    grids = list(np.indices(positions.shape))
    axis = attrs["axis"] % data.ndim
    grids[axis] = np.where(
        positions < 0, positions.astype(np.int64) + data.shape[axis], positions.astype(np.int64)
    )
    places = tuple(g.reshape(-1) for g in grids)
    _write(result, places, updates.reshape(-1), attrs["reduction"])
    return result


def _write(result: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> None:
    """Writes in order; of several updates to one place the last stays, or all are combined."""
    if reduction == "none":
        for k in range(len(updates)):
            result[tuple(p[k] for p in places)] = updates[k]
    else:
        with np.errstate(all="ignore"):
            _UFUNCS[reduction].at(result, places, updates)


def _elements_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((4, 5, 19)).astype(np.float32)
    for reduction in ("none", *COMBINE):
        positions = rng.integers(-5, 5, (3, 7, 12))
        updates = rng.standard_normal((3, 7, 12)).astype(np.float32)
        yield Sample(
            (data, positions, updates),
            {"axis": 1, "reduction": reduction},
            dynamic=((0, 0), (0, 1), (1, 1), (2, 1)),
        )
        flat = rng.integers(0, 19, 9).astype(np.int32)
        numbers = rng.integers(-99, 99, (2, 19))
        yield Sample((numbers[0], flat, numbers[1, :9]), {"axis": -1, "reduction": reduction})
    nan = np.array([np.nan, 1, np.inf], np.float32)
    for reduction in ("add", "max", "min"):
        yield Sample((nan, np.array([1, 1, 0]), nan), {"axis": 0, "reduction": reduction})
    yield Sample((data, positions[:0], updates[:0]), {"axis": 1, "reduction": "none"})


register(
    OpDef(
        "scatter_elements",
        "scatter",
        _infer_elements,
        _scatter_elements,
        define=_define_elements,
        samples=_elements_samples,
    )
)


def _tuple_length(node: Node) -> int:
    data, positions = node.input(0), node.input(1)
    if positions.rank == 0 or not positions.shape[-1].is_const:
        raise ShapeError(f"the last axis of the positions must have a known extent, not {positions}")
    length = positions.shape[-1].value
    if not 1 <= length <= data.rank:
        raise ShapeError(f"tuples of {length} positions don't fit {data}")
    return length


def _infer_nd(node: Node) -> list[Type]:
    _check(node)
    data, positions, updates = node.input(0), node.input(1), node.input(2)
    expected = (*positions.shape[:-1], *data.shape[_tuple_length(node) :])
    if updates.rank != len(expected):
        raise ShapeError(f"updates of rank {len(expected)} are due for {data} and {positions}, not {updates}")
    for due, dim in zip(expected, updates.shape, strict=True):
        if due.is_const and dim.is_const and due != dim:
            raise ShapeError(f"the updates {updates} don't fit {data} and {positions}")
    return [data.type]


def _define_nd(node: Node, read: Read, index: Index, output: int) -> Scalar:
    data, positions = node.input(0), node.input(1)
    length = _tuple_length(node)
    extents = positions.shape[:-1]
    nest = loops(index, extents)
    rest = index[length:]
    hits = [
        _equals(wrapped_position(read(1, (*nest.positions, const(k))), data.shape[k]), index[k])
        for k in range(length)
    ]
    hit, old = both(*hits), read(0, index)
    if node.attrs["reduction"] == "none":
        return _last_hit(node, index, old, nest, extents, hit, lambda found: read(2, (*found, *rest)))
    return _combined(node, old, nest, hit, read(2, (*nest.positions, *rest)))


def _scatter_nd(attrs: Attrs, data: Array, positions: Array, updates: Array) -> Array:
    result = data.copy()
    length = positions.shape[-1]
    tuples = positions.reshape(-1, length).astype(np.int64)
    places = tuple(np.where(p < 0, p + n, p) for p, n in zip(tuples.T, data.shape, strict=False))
    _write(result, places, updates.reshape(len(tuples), *data.shape[length:]), attrs["reduction"])
    return result


def _nd_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((4, 5, 7)).astype(np.float32)
    for reduction in ("none", *COMBINE):
        attrs = {"reduction": reduction}
        updates = rng.standard_normal((3, 6, 7)).astype(np.float32)
        dynamic = ((0, 0), (1, 1), (2, 1))
        yield Sample((data, rng.integers(-4, 4, (3, 6, 2)), updates), attrs, dynamic)
        yield Sample(
            (data, rng.integers(0, 4, (5, 1)), rng.standard_normal((5, 5, 7)).astype(np.float32)), attrs
        )
        numbers = rng.integers(-9, 9, (9, 20))
        yield Sample((numbers[:4], rng.integers(0, 4, (9, 2)).astype(np.int32), numbers[:, 0].copy()), attrs)
    yield Sample((data, np.array([1, 2, 3]), np.asarray(5, np.float32)), {"reduction": "none"})
    yield Sample((data, np.zeros((0, 3), np.int64), np.zeros(0, np.float32)), {"reduction": "none"})


register(OpDef("scatter_nd", "scatter", _infer_nd, _scatter_nd, define=_define_nd, samples=_nd_samples))
