"""Which values are another value's memory read with strides: behind transposes, reshapes, slices and the
like."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hagane.ir.graph import Node, Value
from hagane.ir.layout import linear_offset
from hagane.ir.region import index_symbol
from hagane.ir.registry import op_def
from hagane.ir.scalar import Index, Load, Scalar

_MOVEMENT = ("transpose", "reshape", "slice", "broadcast_to", "identity")
_MOST_NODES = 8


@dataclass(frozen=True)
class View:
    """A value as `nodes`, in order, applied to a source, times a number."""

    source: Value
    nodes: tuple[Node, ...] = ()
    scale: float = 1.0


def strided_view(value: Value, allow_scale: bool) -> View:
    """The farthest source of which the value is a strided view; the value itself if there is none.

    allow_scale: factors that are single numbers may be taken out on the way.
    """
    best = View(value)
    nodes: list[Node] = []
    scale = 1.0
    here = value
    for _ in range(_MOST_NODES):
        node = here.producer
        if node is None:
            break
        factor = scalar_factor(node) if allow_scale else None
        if factor is not None:
            here, scale = factor[0], scale * factor[1]
        elif node.op in _MOVEMENT:
            nodes.insert(0, node)
            here = node.input(0)
        else:
            break
        if not here.is_const and is_strided(value, here, nodes):
            best = View(here, tuple(nodes), scale)
    return best


def scalar_factor(node: Node) -> tuple[Value, float] | None:
    """(value, c) if the node multiplies a value of its own type by the constant number c."""
    if node.op not in ("mul", "div") or not node.output.dtype.is_float:
        return None
    for side in (0, 1) if node.op == "mul" else (0,):
        value, other = node.input(side), node.input(1 - side)
        if other.data is not None and other.data.size == 1 and value.type == node.output.type:
            number = float(other.data.reshape(-1)[0])
            if np.isfinite(number) and number != 0.0:
                return value, number if node.op == "mul" else 1.0 / number
    return None


def is_strided(value: Value, source: Value, nodes: list[Node]) -> bool:
    """True if an element's offset in the source's plain memory is linear in every index of the value."""
    symbols = [index_symbol(f"i{axis}", extent) for axis, extent in enumerate(value.shape)]
    index: Index = tuple(symbols)
    for node in reversed(nodes):
        index = _index_into(node, index)
    offset = linear_offset(source.shape, index)
    names = [s.as_sym.name for s in symbols if s.as_sym is not None]
    base = offset.substitute(dict.fromkeys(names, 0))
    total = base
    for symbol, name in zip(symbols, names, strict=True):
        others = {other: 0 for other in names if other != name}
        stride = offset.substitute(others | {name: 1}) - base
        total = total + stride * symbol
    return total == offset


def _index_into(node: Node, index: Index) -> Index:
    """The index into a movement's input of the element at an index into its output."""
    found: list[Index] = []

    def read(position: int, at: Index) -> Scalar:
        found.append(at)
        return Load(node.input(position).dtype, position, at)

    define = op_def(node.op).define
    assert define is not None
    define(node, read, index, 0)
    return found[0]
