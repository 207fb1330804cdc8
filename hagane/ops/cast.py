"""Conversion between element types: floats to integers truncate, integers wrap around, float8 saturates."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.core.symbolic import Expr, const
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Index, Read, Scalar, cast
from hagane.ops.primitives import cast_array


def _infer(node: Node) -> list[Type]:
    x, to = node.input(0), node.attrs["to"]
    if DType.STRING in (x.dtype, to):
        raise ModelError(f"cast takes numbers and bool, not {x.dtype} to {to}")
    return [Type(to, x.shape)]


def _reference(attrs: Attrs, x: Array) -> Array:
    return cast_array(x, attrs["to"])


def _define(node: Node, read: Read, index: Index, output: int) -> Scalar:
    return cast(read(0, index), node.attrs["to"])


def _elements(node: Node) -> tuple[Expr, ...] | None:
    """Dims pass through integer types; the float content of a shape isn't tracked."""
    known, to = node.input(0).elements, node.attrs["to"]
    if known is None or not (to.is_int or to is DType.BOOL):
        return None
    if to is DType.BOOL:
        return tuple(const(e != 0) for e in known) if all(e.is_const for e in known) else None
    return known


def _samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-90, 90, (3, 37)).astype(np.float32)
    for to in (DType.I64, DType.I32, DType.I8, DType.F16, DType.BF16, DType.F64, DType.BOOL):
        yield Sample((x,), {"to": to}, dynamic=((0, 0),))
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e5, -1e5, 1e-9, 447, 449, 460], np.float32)
    for to in (DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2, DType.BOOL):
        yield Sample((special,), {"to": to})
    i = rng.integers(-1000, 1000, (5, 19))
    for to in (DType.I8, DType.U8, DType.I16, DType.I32, DType.F32, DType.F16, DType.BOOL):
        yield Sample((i,), {"to": to}, dynamic=((0, 1),))
    yield Sample((i > 0,), {"to": DType.F32})
    yield Sample((i > 0,), {"to": DType.I64})
    yield Sample((np.abs(x).astype(np.uint8),), {"to": DType.F32})
    yield Sample((i[:0],), {"to": DType.F32})


register(OpDef("cast", "pointwise", _infer, _reference, _define, _elements, _samples))
