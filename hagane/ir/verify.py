"""Checks a graph's invariants; runs after every pass. A failure is our own fault, never the user's."""

from __future__ import annotations

from hagane.core.errors import InternalError
from hagane.ir.graph import Graph, Node, Value
from hagane.ir.registry import is_op, op_def


def verify(graph: Graph, *, types: bool = True) -> None:
    """Raises: InternalError unless values are defined once, before use, and types follow from the ops."""
    _verify(graph, set(), {}, types)


def _verify(graph: Graph, known: set[Value], names: dict[str, Value], types: bool) -> None:
    defined = set(known)
    for value in graph.inputs:
        _define(value, defined, names)
    for node in graph.nodes:
        if not is_op(node.op):
            raise InternalError(f"unknown op {node.op!r}", where={"node": str(node.loc)})
        for value in node.inputs:
            if value is not None and not value.is_const and value not in defined:
                raise InternalError(
                    f"%{value.name} is used before it is defined", where={"node": f"{node} {node.loc}"}
                )
        for inner in node.graphs.values():
            _verify(inner, defined, names, types)
        for value in node.outputs:
            if value.producer is not node:
                raise InternalError(f"%{value.name} doesn't name {node} as its producer")
            _define(value, defined, names)
        if types:
            _check_types(node)
    for value in graph.outputs:
        if not value.is_const and value not in defined:
            raise InternalError(f"output %{value.name} is not defined in {graph.name}")


def _define(value: Value, defined: set[Value], names: dict[str, Value]) -> None:
    if value in defined:
        raise InternalError(f"%{value.name} is defined twice")
    if names.setdefault(value.name, value) is not value:
        raise InternalError(f"two values are named %{value.name}")
    defined.add(value)


def _check_types(node: Node) -> None:
    definition = op_def(node.op)
    if definition.kind == "control" or node.op == "region":
        return
    inferred = definition.infer(node)
    declared = [v.type for v in node.outputs]
    for want, have in zip(inferred, declared, strict=True):
        if want.dtype is not have.dtype or len(want.shape) != len(have.shape):
            raise InternalError(
                f"{node} should have type {want}, it has {have}", where={"node": str(node.loc)}
            )
        for a, b in zip(want.shape, have.shape, strict=True):
            if a.is_const and b.is_const and a != b:
                raise InternalError(
                    f"{node} should have type {want}, it has {have}", where={"node": str(node.loc)}
                )
