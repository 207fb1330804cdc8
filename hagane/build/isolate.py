"""A region on its own, as a small graph that can be built and run."""

from __future__ import annotations

from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr, Sym
from hagane.ir.graph import Graph, Node, Type, Value
from hagane.ir.region import Region, region_symbols
from hagane.passes.choose_layouts import copy_region


def region_graph(region: Region) -> Graph:
    """A graph of the region alone: plain inputs in0, in1, ..., copies into its layouts, plain outputs.

    Constants stay constants. Each symbol of its shapes gets an input dim_<name>: u8[name], whose length binds
    it.
    """
    graph = Graph("region")
    names: set[str] = set()
    operands: list[Value | None] = []
    for position, value in enumerate(region.operands):
        if value.is_const:
            operands.append(value)
            names.add(value.name)
            continue
        inner = Value(f"in{position}", value.type, elements=value.elements)
        names.add(inner.name)
        graph.inputs.append(inner)
        operands.append(inner if value.layout is None else _copied(inner, value, graph, names))
    node = Node("region", operands, [], dict(region.node.attrs), {"body": region.body}, region.node.loc)
    node.outputs = [Value(f"out{k}", v.type, node, v.layout) for k, v in enumerate(region.outputs)]
    graph.nodes.append(node)
    for value in node.outputs:
        if value.layout is None:
            graph.outputs.append(value)
            continue
        copy = copy_region(value, None, names)
        graph.nodes.append(copy)
        graph.outputs.append(copy.output)
    graph.output_names = [v.name for v in node.outputs]
    for symbol in symbols_of(region):
        graph.inputs.append(Value(f"dim_{symbol.name}", Type(DType.U8, (Expr([((symbol,), 1)]),))))
    return graph


def _copied(inner: Value, value: Value, graph: Graph, names: set[str]) -> Value:
    copy = copy_region(inner, value.layout, names)
    graph.nodes.append(copy)
    return copy.output


def symbols_of(region: Region) -> list[Sym]:
    """The symbols of all shapes and attributes in the region, by name."""
    return [symbol for dim in region_symbols(region) if (symbol := dim.as_sym) is not None]
