"""choose-layouts: gives every value its layout, and inserts a copy where a reader needs another one.

Regions with their own demands (convolutions) decide; the others follow their neighbours, so that chains stay
in one layout. Inputs and outputs of graphs are plain.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hagane.ir.graph import Graph, Loc, Node, Value
from hagane.ir.layout import AnyLayout, Layout, Layouts, merge_halos, satisfies
from hagane.ir.region import Region
from hagane.ir.target_model import TargetModel
from hagane.passes.base import control_graphs
from hagane.passes.fuse import fresh_name


@dataclass(frozen=True)
class ChooseLayouts:
    """target: knows the layouts that its kernels require."""

    target: TargetModel
    name: str = "choose-layouts"

    def run(self, graph: Graph) -> bool:
        names = graph.value_names()
        for inner in control_graphs(graph):
            _Chooser(inner, self.target, names).run()
        return True


@dataclass
class _Chooser:
    graph: Graph
    target: TargetModel
    names: set[str]
    demands: dict[Node, Layouts] = field(default_factory=dict)
    wishes: dict[Value, Layout] = field(default_factory=dict)
    copies: dict[tuple[Value, Layout | None], Value] = field(default_factory=dict)

    def run(self) -> None:
        for node in self.graph.nodes:
            if node.op == "region":
                self.demands[node] = self.target.layouts(Region(node))
        self._collect_wishes()
        nodes: list[Node] = []
        for node in self.graph.nodes:
            required = self.demands[node].inputs if node in self.demands else (None,) * len(node.inputs)
            for position, value in enumerate(node.inputs):
                if value is not None and not value.is_const:
                    node.inputs[position] = self._adapt(value, required[position], nodes)
            if node in self.demands:
                self._set_outputs(node)
            nodes.append(node)
        self.graph.outputs = [v if v.is_const else self._adapt(v, None, nodes) for v in self.graph.outputs]
        self.graph.nodes = nodes

    def _collect_wishes(self) -> None:
        """Which blocked layout a value's readers want, looking through regions that follow neighbours."""
        for node in reversed(self.graph.nodes):
            if node not in self.demands:
                continue
            layouts = self.demands[node]
            for value, required in zip(node.inputs, layouts.inputs, strict=True):
                if value is None or value.is_const:
                    continue
                if isinstance(required, Layout):
                    self._wish(value, required)
                elif isinstance(required, AnyLayout):
                    passed = self.wishes.get(node.output)
                    if passed is not None and _same_axes(value, node.output):
                        self._wish(value, Layout(passed.order, passed.blocks))

    def _wish(self, value: Value, layout: Layout) -> None:
        known = self.wishes.get(value)
        merged = layout if known is None else merge_halos(known, layout)
        if merged is not None:
            self.wishes[value] = merged

    def _set_outputs(self, node: Node) -> None:
        for value, required in zip(node.outputs, self.demands[node].outputs, strict=True):
            wish = self.wishes.get(value)
            if isinstance(required, Layout):
                value.layout = (merge_halos(required, wish) if wish else None) or required
            elif isinstance(required, AnyLayout):
                value.layout = wish or self._inherited(node, value)

    def _inherited(self, node: Node, output: Value) -> Layout | None:
        """The blocked layout of an input over the same axes, without its halo."""
        if node.attrs["kind"] not in ("pointwise", "window", "reduction", "normalisation"):
            return None
        for value in node.inputs:
            if value is not None and value.layout is not None and _same_axes(value, output):
                return Layout(value.layout.order, value.layout.blocks)
        return None

    def _adapt(self, value: Value, required: Layout | AnyLayout | None, nodes: list[Node]) -> Value:
        if satisfies(value.layout, required) or isinstance(required, AnyLayout):
            return value
        key = (value, required)
        if key not in self.copies:
            wish = self.wishes.get(value)
            layout = required
            if required is not None and wish is not None:
                layout = merge_halos(required, wish) or required
            copy = copy_region(value, layout, self.names)
            nodes.append(copy)
            self.copies[key] = copy.output
        return self.copies[key]


def _same_axes(a: Value, b: Value) -> bool:
    """True if both have one rank and the same channels, so one blocked layout serves both."""
    return a.rank == b.rank and a.rank >= 3 and a.shape[1] == b.shape[1]


def copy_region(value: Value, layout: Layout | None, names: set[str]) -> Node:
    """A region that copies a value into another layout."""
    inner_in = Value(fresh_name(value.name, names), value.type)
    inner_out = Value(fresh_name(value.name, names), value.type)
    identity = Node("identity", [inner_in], [inner_out])
    inner_out.producer = identity
    body = Graph("body", [inner_in], [inner_out], [identity])
    loc = value.producer.loc if value.producer is not None else Loc()
    region = Node("region", [value], [], {"kind": "movement"}, {"body": body}, loc)
    region.outputs = [Value(fresh_name(value.name, names), value.type, region, layout)]
    return region
