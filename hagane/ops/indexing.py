"""Loaded integers that become indices: the symbols that gathers introduce."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr, Sym, const
from hagane.ir.graph import Node
from hagane.ir.scalar import Guard, Index, IndexValue, LetIndex, Scalar, cast, fn, lit


def let_position(
    node: Node, index: Index, value: Scalar, extent: Expr, body: Callable[[Expr], Scalar], tag: int = 0
) -> Scalar:
    """Binds a loaded position, counted from the end if negative, to an index symbol in [0, extent).

    The value is clamped, so that no data can make a kernel read outside its operand.
    """
    last = IndexValue(DType.I64, extent - 1)
    clamped = fn("max", fn("min", wrapped_position(value, extent), last), lit(DType.I64, 0))
    return let_index(node, index, clamped, extent, body, tag)


def wrapped_position(value: Scalar, extent: Expr) -> Scalar:
    """value as i64, with extent added where it is negative."""
    wide = cast(value, DType.I64)
    if not value.dtype.is_signed:
        return wide
    from_end = fn("add", wide, IndexValue(DType.I64, extent))
    return Guard(DType.I64, fn("lt", wide, lit(DType.I64, 0), dtype=DType.BOOL), from_end, wide)


def let_index(
    node: Node, index: Index, value: Scalar, extent: Expr, body: Callable[[Expr], Scalar], tag: int = 0
) -> Scalar:
    """Binds an i64 scalar that surely lies in [0, extent) to an index symbol.

    The symbol's name is a digest of node, index and tag (which tells several in one definition apart): equal
    names mean equal values, so sharing by (value, index) stays right whatever is fused around it.
    """
    if extent == 1:
        return body(const(0))
    place = f"{node.outputs[0].name}({', '.join(map(str, index))}){tag}"
    name = "g" + hashlib.blake2b(place.encode(), digest_size=6).hexdigest()
    inner = body(Expr([((Sym(name, 0, None, 1, extent),), 1)]))
    return LetIndex(inner.dtype, name, value, inner)
