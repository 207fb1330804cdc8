"""Reads and updates of states: state_read, state_write. How versions of a state are ordered: see ir/state.py.

positions i64[..., K] address the first K axes of the state, whose remaining axes follow: a page and a slot of
a paged cache, say. A row of positions with a negative number is skipped by state_write (padding); those that
aren't skipped must differ.
"""

from __future__ import annotations

from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.ir.graph import Array, Node, Shape, Type, Value
from hagane.ir.registry import Attrs, OpDef, register


def _state(node: Node) -> Type:
    state = node.input(0).type
    if not state.state:
        raise ShapeError(f"{node.op} takes a state, not {state}")
    return state


def _addressed(state: Type, positions: Value | None) -> Shape:
    """The shape of what the positions address; the whole state without positions."""
    if positions is None:
        return state.shape
    if positions.dtype is not DType.I64 or positions.rank == 0 or not positions.shape[-1].is_const:
        raise ShapeError(f"positions in a state are i64[..., K] for a constant K, not {positions}")
    length = positions.shape[-1].value
    if not 1 <= length <= len(state.shape):
        raise ShapeError(f"{length} positions don't address {state}")
    return (*positions.shape[:-1], *state.shape[length:])


def _infer_read(node: Node) -> list[Type]:
    state = _state(node)
    return [Type(state.dtype, _addressed(state, node.optional(1)))]


def _read(attrs: Attrs, state: Array, positions: Array | None = None) -> Array:
    return state if positions is None else state[tuple(positions[..., k] for k in range(positions.shape[-1]))]


def _infer_write(node: Node) -> list[Type]:
    state, values = _state(node), node.input(1)
    wanted = _addressed(state, node.optional(2))
    pairs = zip(wanted, values.shape, strict=False)
    differs = any(a.is_const and b.is_const and a != b for a, b in pairs)
    if values.type.state or values.dtype is not state.dtype or values.rank != len(wanted) or differs:
        raise ShapeError(f"state_write should get {Type(state.dtype, wanted)}, not {values}")
    return [state]


def _write(attrs: Attrs, state: Array, values: Array, positions: Array | None = None) -> Array:
    if positions is None:
        return values
    result = state.copy()
    kept = (positions >= 0).all(axis=-1)
    result[tuple(positions[kept][:, k] for k in range(positions.shape[-1]))] = values[kept]
    return result


register(OpDef("state_read", "state", _infer_read, _read))
register(OpDef("state_write", "state", _infer_write, _write))
