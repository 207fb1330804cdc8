"""sink-reshapes: a reshape that only adds or drops axes of extent 1 moves behind pointwise ops that follow.

There it meets the reshape that undoes it, or ends up as a view. What remains between, say a norm written as
sums over axes that are dropped and put back, then has one rank and can be fused.
"""

from __future__ import annotations

from dataclasses import dataclass

from hagane.core.symbolic import const
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Node, Shape, Value
from hagane.ir.registry import op_def
from hagane.passes.base import control_graphs


@dataclass(frozen=True)
class SinkReshapes:
    """No options."""

    name: str = "sink-reshapes"

    def run(self, graph: Graph) -> bool:
        changed = False
        names = graph.value_names()
        for inner in control_graphs(graph):
            changed |= _sweep(inner, names)
        return changed


def _sweep(graph: Graph, names: set[str]) -> bool:
    mapping: dict[Value, Value] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        node.inputs = [None if v is None else mapping.get(v, v) for v in node.inputs]
        scratch = Graph()
        builder = Builder(scratch, names=names)
        builder.loc = node.loc
        result = _undone(node) if node.op == "reshape" else _sunk(node, builder)
        if result is None:
            kept.append(node)
        else:
            kept += scratch.nodes
            mapping[node.output] = result
    if not mapping:
        return False
    graph.nodes = kept
    graph.replace_uses(mapping)
    return True


def _undone(node: Node) -> Value | None:
    """The value that a chain of reshapes gives back unchanged."""
    value = node.input(0)
    while value.producer is not None and value.producer.op == "reshape":
        value = value.producer.input(0)
        if value.type == node.output.type:
            return value
    return None


def _sunk(node: Node, builder: Builder) -> Value | None:
    """The node on what its inputs were before they were reshaped, reshaped; None if they weren't."""
    if op_def(node.op).kind != "pointwise" or len(node.outputs) != 1 or node.output.elements is not None:
        return None
    if "axis" in node.attrs:
        return None
    full = node.output.shape
    inputs = [v for v in node.inputs if v is not None]
    sources = [_source(v) for v in inputs if v.shape == full and not v.is_const]
    before = sources[0] if sources else None
    if before is None or any(s is None or s.shape != before.shape for s in sources):
        return None
    if not all(v.is_const or v.shape == full for v in inputs):
        return None
    moved = [None if v is None else _moved(v, full, before.shape, builder) for v in node.inputs]
    return builder.op("reshape", builder.op(node.op, *moved, **node.attrs), shape=full)


def _source(value: Value) -> Value | None:
    """What a reshape made the value from, if they differ in axes of extent 1 only."""
    producer = value.producer
    if producer is None or producer.op != "reshape":
        return None
    source = producer.input(0)
    return source if _long(source.shape) == _long(value.shape) else None


def _long(shape: Shape) -> Shape:
    return tuple(d for d in shape if d != 1)


def _moved(value: Value, full: Shape, before: Shape, builder: Builder) -> Value:
    """An input in the shape that the node has now: the reshape's source, or a constant with axes to match."""
    if not value.is_const:
        source = _source(value)
        assert source is not None
        return source
    if all(d == 1 for d in value.shape) and value.rank <= len(before):
        return value
    aligned = (const(1),) * (len(full) - value.rank) + value.shape
    kept = iter([d for d, whole in zip(aligned, full, strict=True) if whole != 1])
    return builder.op("reshape", value, shape=tuple(const(1) if d == 1 else next(kept) for d in before))
