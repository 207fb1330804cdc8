"""bind_symbols: gives symbols of dims the values that a small integer tensor holds at run time.

The node stands before every node whose shapes or attributes use the symbols, and is never dead code.
"""

from __future__ import annotations

from typing import Any

from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import OpDef, register


def _infer(node: Node) -> list[Type]:
    value, names = node.input(0), node.attrs["names"]
    if value.dtype is not DType.I64 or value.rank > 1:
        raise ShapeError(f"bind_symbols takes an i64 tensor of rank 0 or 1, not {value}")
    if value.rank == 1 and value.shape[0].is_const and value.shape[0].value != len(names):
        raise ShapeError(f"bind_symbols has {len(names)} names for {value.shape[0]} values")
    return []


def _reference(attrs: dict[str, Any], x: Array) -> tuple[Array, ...]:
    return ()


register(OpDef("bind_symbols", "shape", _infer, _reference))
