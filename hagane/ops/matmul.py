"""Matrix product with NumPy's rules: leading dims broadcast, rank-1 operands gain and lose a dim."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, sym
from hagane.ir.graph import Node, Shape, Type
from hagane.ir.registry import OpDef, Sample, register
from hagane.ir.scalar import Axis, Index, Read, Reduce, Scalar, fn
from hagane.ops.shapes import broadcast_index, broadcast_shapes, require_same


def _infer(node: Node) -> list[Type]:
    a, b = node.input(0), node.input(1)
    require_same(a, b)
    if a.rank == 0 or b.rank == 0:
        raise ShapeError("matmul takes no scalars")
    k_a, k_b = a.shape[-1], b.shape[-2] if b.rank > 1 else b.shape[0]
    if k_a.is_const and k_b.is_const and k_a != k_b:
        raise ShapeError(f"matmul sums over {k_a} elements of the first operand and {k_b} of the second")
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = a.shape[-2:-1] if a.rank > 1 else ()
    columns = b.shape[-1:] if b.rank > 1 else ()
    return [Type(a.dtype, (*batch, *rows, *columns))]


def _batch_index(shape: Shape, batch: Shape, index: Index) -> Index:
    return broadcast_index(shape[:-2], batch, index)


def _define(node: Node, read: Read, index: Index, output: int) -> Scalar:
    a, b = node.input(0), node.input(1)
    extent = a.shape[-1]
    k = sym(f"k{len(index)}", 0, None, bound=extent)
    symbol = k.as_sym
    if symbol is None:  # an extent of one
        raise AssertionError("a symbol with an open range is never folded")
    columns: tuple[Expr, ...] = ()
    rest = index
    if b.rank > 1:
        rest, columns = rest[:-1], rest[-1:]
    rows: tuple[Expr, ...] = ()
    if a.rank > 1:
        rest, rows = rest[:-1], rest[-1:]
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left = read(0, (*_batch_index(a.shape, batch, rest), *rows, k))
    right = read(1, (*_batch_index(b.shape, batch, rest), k, *columns))
    return Reduce(a.dtype, "sum", (Axis(symbol, extent),), fn("mul", left, right))


def _samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)

    def x(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    yield Sample((x(7, 33), x(33, 45)), dynamic=((0, 0),))
    yield Sample((x(2, 3, 5, 16), x(3, 16, 40)), dynamic=((0, 0), (0, 2)))
    yield Sample((x(2, 1, 64), x(64, 17)))
    yield Sample((x(19), x(19, 8)))
    yield Sample((x(4, 5, 19), x(19)))
    yield Sample((x(2, 4, 5, 7), x(2, 4, 7, 6)), dynamic=((0, 2),))
    yield Sample((rng.integers(-9, 9, (6, 20)), rng.integers(-9, 9, (20, 12))))


register(
    OpDef(
        "matmul", "contraction", _infer, lambda attrs, a, b: np.matmul(a, b), define=_define, samples=_samples
    )
)
