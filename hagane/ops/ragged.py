"""ragged_rows: which row of a ragged batch each token belongs to.

A ragged batch keeps the tokens of all its rows in one dim: x[T, ...] and offsets i64[rows + 1], row r being
tokens offsets[r] to offsets[r + 1]. offsets starts with 0 and doesn't decrease; tokens behind its last entry
are padding and belong to row `rows`. Masks and gathers of ordinary ops do the rest.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.symbolic import to_expr
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Index, IndexValue, Read, Scalar, cast, fn
from hagane.ops.loops import loops


def _infer(node: Node) -> list[Type]:
    offsets = node.input(0)
    if offsets.dtype is not DType.I64 or offsets.rank != 1:
        raise ShapeError(f"the offsets of a ragged batch are i64[rows + 1], not {offsets}")
    return [Type(DType.I64, (to_expr(node.attrs["tokens"]),))]


def _reference(attrs: Attrs, offsets: Array) -> Array:
    return np.searchsorted(offsets[1:], np.arange(attrs["tokens"]), side="right").astype(np.int64)


def _define(node: Node, read: Read, index: Index, output: int) -> Scalar:
    """The number of rows that end at or before the token."""
    token = IndexValue(DType.I64, index[0])
    nest = loops(index, [node.input(0).shape[0] - 1])
    ended = fn("le", read(0, (nest.positions[0] + 1,)), token, dtype=DType.BOOL)
    return nest.reduce("sum", cast(ended, DType.I64))


def _samples() -> Iterable[Sample]:
    yield Sample((np.array([0, 3, 3, 7, 12]),), {"tokens": 12}, dynamic=((0, 0),))
    yield Sample((np.array([0, 2, 5]),), {"tokens": 9})
    yield Sample((np.array([0, 4]),), {"tokens": 4})
    yield Sample((np.array([0, 4]),), {"tokens": 0})


register(OpDef("ragged_rows", "reduction", _infer, _reference, define=_define, samples=_samples))
