"""What connects dims and data at run time; neither node has outputs, and neither is ever dead code.

bind_symbols gives symbols of dims the values that a small integer tensor holds. It stands before every node
whose shapes or attributes use the symbols. require_dims checks that pairs of dims are equal, where a model
was imported on that assumption: it raises where that fails, before a wrong result can be made.
"""

from __future__ import annotations

from typing import Any

from hagane.core.dtypes import DType
from hagane.core.errors import RunError, ShapeError
from hagane.core.symbolic import Expr
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


def _infer_require(node: Node) -> list[Type]:
    left, right = node.attrs["left"], node.attrs["right"]
    if len(left) != len(right):
        raise ShapeError(f"require_dims compares {len(left)} dims with {len(right)}")
    for a, b in zip(left, right, strict=True):
        if isinstance(a, Expr) and isinstance(b, Expr) and a.is_const and b.is_const and a != b:
            raise ShapeError(f"{node.attrs['message']}: {a} isn't {b}")
    return []


def _check(attrs: dict[str, Any]) -> tuple[Array, ...]:
    for a, b in zip(attrs["left"], attrs["right"], strict=True):
        if a != b:
            raise RunError(f"{attrs['message']}: {a} isn't {b}")
    return ()


register(OpDef("require_dims", "shape", _infer_require, _check))
register(OpDef("bind_symbols", "shape", _infer, _reference))
