"""A rule of canonicalise: a Fourier transform of constant length is a product with a constant matrix.

The matrix is f64, and so is the product: in f32, frequencies that aren't in a signal would get some 1e-7 of
those that are.
"""

from __future__ import annotations

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.symbolic import const
from hagane.ir.builder import Builder
from hagane.ir.graph import Array, Node, Value
from hagane.ir.registry import op_def

MOST_ELEMENTS = 1 << 20  # of the matrix: above, its sines are computed where they are used


def product_for_dft(node: Node, builder: Builder) -> Value | None:
    """dft(x[..., L, C]) as x[..., L*C] times a matrix of the transforms of unit vectors."""
    x, y = node.input(0), node.output
    axis = node.attrs["axis"] % x.rank
    length, parts = x.shape[axis], x.shape[-1]
    if not (length.is_const and y.shape[axis].is_const) or x.is_const:
        return None
    rows, columns = length.value * parts.value, y.shape[axis].value * y.shape[-1].value
    if not 0 < rows * columns <= MOST_ELEMENTS:
        return None
    last = x.rank - 2
    order = [a for a in range(x.rank) if a not in (axis, x.rank - 1)] + [axis, x.rank - 1]
    front = x if axis == last else builder.op("transpose", x, perm=tuple(order))
    flat = builder.op("reshape", front, shape=(*front.shape[:-2], const(rows)))
    matrix = builder.const(_matrix(node, length.value, parts.value), name="fourier")
    product = builder.op("matmul", builder.op("cast", flat, to=DType.F64), matrix)
    narrow = builder.op("cast", product, to=x.dtype)
    result = builder.op("reshape", narrow, shape=(*front.shape[:-2], y.shape[axis], y.shape[-1]))
    if axis == last:
        return result
    return builder.op("transpose", result, perm=tuple(np.argsort(order).tolist()))


def _matrix(node: Node, length: int, parts: int) -> Array:
    """f64[length * parts, frequencies * parts of the result]: row (k, c) is what a 1 there becomes."""
    units = np.eye(length * parts).reshape(length * parts, length, parts)
    result = op_def("dft").reference({**node.attrs, "axis": 1, "length": _length(node)}, units)
    assert isinstance(result, np.ndarray)
    return np.ascontiguousarray(result.reshape(length * parts, -1))


def _length(node: Node) -> int | None:
    length = node.attrs.get("length")
    return None if length is None else int((const(0) + length).value)
