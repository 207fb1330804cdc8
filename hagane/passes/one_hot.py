"""A rule of canonicalise: a product with one-hot rows reads rows of the other factor.

The rows come from comparing integers with 0, 1, 2 ...; where nothing is equal the row is zero, and so is the
product. That holds for finite factors only: zero times infinity isn't zero.
"""

from __future__ import annotations

import numpy as np

from hagane.core.symbolic import const
from hagane.ir.builder import Builder
from hagane.ir.graph import Node, Value


def gather_for_one_hot(node: Node, builder: Builder) -> Value | None:
    """matmul(cast(i[..., 1] == [0 .. K-1]), w[K, N]) as rows of w."""
    rows, weight = node.input(0), node.input(1)
    if weight.data is None or weight.rank != 2 or not np.isfinite(weight.data).all():
        return None
    index = _compared_index(rows)
    if index is None or rows.rank < 2 or rows.dtype is not node.output.dtype:
        return None
    depth = weight.shape[0].value
    inside = builder.op(
        "and",
        builder.op("ge", index, builder.scalar_like(index, 0)),
        builder.op("lt", index, builder.scalar_like(index, depth)),
    )
    held = builder.op("where", inside, index, builder.scalar_like(index, 0))
    flat = builder.op("reshape", held, shape=rows.shape[:-1])
    found = builder.op("gather", weight, flat, axis=0)
    return builder.op("where", inside, found, builder.scalar_like(found, 0.0))


def _compared_index(rows: Value) -> Value | None:
    """The integers i[..., 1] whose one-hot rows the value is, of its rank and leading dims."""
    cast = rows.producer
    if cast is None or cast.op != "cast":
        return None
    equal = cast.input(0).producer
    if equal is None or equal.op != "eq":
        return None
    for side in (0, 1):
        index, numbers = equal.input(side), equal.input(1 - side)
        if _is_iota(numbers, rows) and index.dtype.is_int and index.shape == (*rows.shape[:-1], const(1)):
            return index
    return None


def _is_iota(numbers: Value, rows: Value) -> bool:
    """True for the constant 0, 1, 2 ... along the last axis, as long as that of the rows."""
    data, depth = numbers.data, rows.shape[-1]
    if data is None or data.ndim == 0 or data.size != data.shape[-1] or not depth.is_const:
        return False
    return np.array_equal(data.reshape(-1), np.arange(depth.value))
