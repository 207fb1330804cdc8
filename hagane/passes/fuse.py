"""fuse: groups nodes into regions, each computed by one tactic.

A group grows backwards: a node takes in the group that computes one of its inputs if nobody else reads that
value, so no cycle can arise and nothing is computed twice. What may be taken in where is in `fusion_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hagane.ir.graph import Graph, Node, Value, join_locs
from hagane.ir.region import Region
from hagane.ir.registry import op_def
from hagane.passes.base import control_graphs
from hagane.passes.fusion_rules import Group, may_absorb

NEVER_FUSED = ("control", "region", "host", "state", "collective")


@dataclass(frozen=True)
class Fuse:
    """max_nodes: nodes of one region at most. enabled=False makes each node a region of its own."""

    max_nodes: int = 48
    enabled: bool = True
    name: str = "fuse"

    def run(self, graph: Graph) -> bool:
        names = graph.value_names()
        for inner in reversed(control_graphs(graph)):
            _Fuser(inner, self, names).run()
        return True


@dataclass
class _Fuser:
    graph: Graph
    options: Fuse
    names: set[str]
    group_of: dict[Node, Group] = field(default_factory=dict)

    def run(self) -> None:
        users = self.graph.users()
        outputs = set(self.graph.outputs)
        for node in self.graph.nodes:
            self.group_of[node] = Group([node])
            if self.options.enabled and _fusible(node):
                self._grow(self.group_of[node], users, outputs)
        self.graph.nodes = self._regions()

    def _grow(self, group: Group, users: dict[Value, list[Node]], outputs: set[Value]) -> None:
        """Takes in producers until none fits."""
        refused: set[int] = set()
        while True:
            candidate = self._candidate(group, users, outputs, refused)
            if candidate is None:
                return
            value, producer = candidate
            if len(group.nodes) + len(producer.nodes) > self.options.max_nodes or not may_absorb(
                group, producer, value
            ):
                refused.add(id(value))
                continue
            group.nodes = producer.nodes + group.nodes
            for node in producer.nodes:
                self.group_of[node] = group

    def _candidate(
        self, group: Group, users: dict[Value, list[Node]], outputs: set[Value], refused: set[int]
    ) -> tuple[Value, Group] | None:
        for node in reversed(group.nodes):
            for value in node.inputs:
                if value is None or value.producer is None or value in outputs or id(value) in refused:
                    continue
                producer = self.group_of.get(value.producer)
                if producer is None or producer is group or not _fusible(value.producer):
                    continue
                if all(self.group_of.get(user) is group for user in users[value]):
                    return value, producer
        return None

    def _regions(self) -> list[Node]:
        order = {node: k for k, node in enumerate(self.graph.nodes)}
        result: list[Node] = []
        for node in self.graph.nodes:
            group = self.group_of[node]
            group.nodes.sort(key=order.__getitem__)
            if group.nodes[-1] is not node:
                continue
            result.append(self._region(group) if _wrapped(node) else node)
        return result

    def _region(self, group: Group) -> Node:
        region = region_of(group.nodes, group.kind, self._fresh)
        for value in region.outputs:
            value.producer = region
        return region

    def _fresh(self, name: str) -> str:
        return fresh_name(name, self.names)


def region_of(nodes: list[Node], kind: str, fresh: Callable[[str], str]) -> Node:
    """A region that holds copies of the nodes and has the last one's outputs; these keep their producer."""
    inside = {v for node in nodes for v in node.outputs}
    body = Graph("body")
    mapping: dict[Value, Value] = {}
    operands: list[Value | None] = []
    for node in nodes:
        for value in node.inputs:
            if value is None or value in inside or value in mapping or _is_literal(value):
                continue
            mapping[value] = Value(fresh(value.name), value.type, elements=value.elements)
            body.inputs.append(mapping[value])
            operands.append(value)
    last = nodes[-1]
    for node in nodes:
        body.nodes.append(_moved(node, mapping, fresh))
    body.outputs = [mapping[v] for v in last.outputs]
    loc = join_locs([node.loc for node in nodes])
    return Node("region", operands, last.outputs, {"kind": kind}, {"body": body}, loc)


def lone_region(node: Node) -> Region:
    """The region that a node would be by itself; the graph stays as it is."""
    return Region(region_of([node], Group([node]).kind, lambda name: f"{name}~"))


def _moved(node: Node, mapping: dict[Value, Value], fresh: Callable[[str], str]) -> Node:
    inputs = [None if v is None else mapping.get(v, v) for v in node.inputs]
    inner = Node(node.op, inputs, [], node.attrs, {}, node.loc)
    for value in node.outputs:
        copy = Value(fresh(value.name), value.type, inner, elements=value.elements)
        mapping[value] = copy
        inner.outputs.append(copy)
    return inner


def fresh_name(name: str, names: set[str]) -> str:
    """A name for a copy of the value called `name`; it is added to the names taken."""
    base, number = name.partition("~")[0], 0
    while f"{base}~{number}" in names:
        number += 1
    names.add(f"{base}~{number}")
    return f"{base}~{number}"


def _fusible(node: Node) -> bool:
    return _wrapped(node) and op_def(node.op).define is not None and len(node.outputs) == 1


def _wrapped(node: Node) -> bool:
    """True if the node becomes part of a region; one without outputs is there for its effect."""
    return op_def(node.op).kind not in NEVER_FUSED and bool(node.outputs)


def _is_literal(value: Value) -> bool:
    """A constant of one number is part of the region's body, not an operand."""
    return value.data is not None and value.data.size == 1 and value.data.dtype != object
