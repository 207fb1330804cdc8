"""The graph: typed values in single assignment, nodes in execution order, sub-graphs of nodes.

Sub-graphs serve control flow and regions; they refer to values of the graphs around them directly. Passes
edit graphs in place; `users` is computed on demand rather than kept, so no edit can leave it stale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr, const, to_expr
from hagane.ir.layout import Layout

if TYPE_CHECKING:
    from hagane.plan.model import Recipe

Shape = tuple[Expr, ...]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Type:
    """Element type and shape of a value. state: whether it is a parameter updated in place (see state.py)."""

    dtype: DType
    shape: Shape
    state: bool = False

    def __str__(self) -> str:
        text = f"{self.dtype}[{', '.join(map(str, self.shape))}]"
        return f"state<{text}>" if self.state else text


def tensor(dtype: DType, *shape: int | Expr) -> Type:
    """A Type from ints and expressions."""
    return Type(dtype, tuple(to_expr(d) for d in shape))


@dataclass(frozen=True)
class Loc:
    """Where a node comes from: the model's file name and the model's own node names with their ops."""

    file: str = ""
    nodes: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = ", ".join(self.nodes[:4]) + (
            f" and {len(self.nodes) - 4} more" if len(self.nodes) > 4 else ""
        )
        return f"{shown} in {self.file}" if self.file else shown


def join_locs(locs: list[Loc]) -> Loc:
    """The union, in order of first appearance: fusion never drops a name."""
    names = dict.fromkeys(name for loc in locs for name in loc.nodes)
    files = [loc.file for loc in locs if loc.file]
    return Loc(files[0] if files else "", tuple(names))


@dataclass(eq=False)
class Value:
    """A tensor.

    data: set for constants. recipe: how a derived constant follows from the model's weights.
    elements: the symbolic content of a small integer tensor (rank 0 or 1), where it is known: shapes in the
    making.
    """

    name: str
    type: Type
    producer: Node | None = None
    layout: Layout | None = None
    data: Array | None = None
    recipe: Recipe | None = None
    elements: tuple[Expr, ...] | None = None

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def rank(self) -> int:
        return len(self.type.shape)

    @property
    def is_const(self) -> bool:
        return self.data is not None

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as ints, or None if a dim is symbolic."""
        if all(d.is_const for d in self.shape):
            return tuple(d.value for d in self.shape)
        return None

    def __repr__(self) -> str:
        return f"{'@' if self.is_const else '%'}{self.name}: {self.type}"


@dataclass(eq=False)
class Node:
    """One operation. Attributes are ints, floats, bools, strings, DTypes, Exprs, and tuples of those."""

    op: str
    inputs: list[Value | None]
    outputs: list[Value]
    attrs: dict[str, Any] = field(default_factory=dict)
    graphs: dict[str, Graph] = field(default_factory=dict)
    loc: Loc = Loc()

    @property
    def output(self) -> Value:
        return self.outputs[0]

    def input(self, position: int) -> Value:
        """The input at a position that must be present."""
        value = self.inputs[position]
        assert value is not None, f"{self.op} lacks input {position}"
        return value

    def optional(self, position: int) -> Value | None:
        return self.inputs[position] if position < len(self.inputs) else None

    def __repr__(self) -> str:
        return f"{', '.join(o.name for o in self.outputs)} = {self.op}"


@dataclass(eq=False)
class Graph:
    """A function of its inputs. symbols: facts about the symbols in the shapes, as expressions by name.

    weights: data of the model's weights that recipes of derived constants start from. output_names: see
    port_names.
    """

    name: str = "main"
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    symbols: dict[str, Expr] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    weights: dict[str, Array] = field(default_factory=dict)
    output_names: list[str] = field(default_factory=list)

    @property
    def port_names(self) -> list[str]:
        """Names of the outputs as users know them; passes may replace the values, not these."""
        return self.output_names or [v.name for v in self.outputs]

    def constants(self) -> list[Value]:
        """All constants that nodes or outputs refer to, nested graphs included, in order of first use."""
        found: dict[int, Value] = {}
        for value in self.referenced():
            if value.is_const:
                found.setdefault(id(value), value)
        return list(found.values())

    def referenced(self) -> Iterator[Value]:
        """Every value read by a node or returned, nested graphs included."""
        for node in self.nodes:
            yield from (v for v in node.inputs if v is not None)
            for name in sorted(node.graphs):
                yield from node.graphs[name].referenced()
        yield from self.outputs

    def users(self) -> dict[Value, list[Node]]:
        """For each value the nodes of this graph that read it, directly or inside their sub-graphs."""
        result: dict[Value, list[Node]] = {}
        for node in self.nodes:
            read = [v for v in node.inputs if v is not None]
            for graph in node.graphs.values():
                read += graph.referenced()
            for value in dict.fromkeys(read):
                result.setdefault(value, []).append(node)
        return result

    def captured(self) -> list[Value]:
        """Values from outside (not constants) that the graph reads."""
        own: set[Value] = set(self.inputs)
        for node in self.walk():
            own.update(node.outputs)
            for graph in node.graphs.values():
                own.update(graph.inputs)
        return list(dict.fromkeys(v for v in self.referenced() if v not in own and not v.is_const))

    def walk(self) -> Iterator[Node]:
        """All nodes, sub-graphs' nodes after their owner."""
        for node in self.nodes:
            yield node
            for name in sorted(node.graphs):
                yield from node.graphs[name].walk()

    def value_names(self) -> set[str]:
        """Names of all values, nested ones and constants included, and of weights that recipes start from."""
        constants = self.constants()
        names = {v.name for v in [*self.inputs, *constants]} | self.weights.keys()
        for recipe in (v.recipe for v in constants if v.recipe is not None):
            names.update(i for node in recipe.nodes for i in node.inputs if isinstance(i, str))
        for node in self.walk():
            names.update(v.name for v in node.outputs)
            for graph in node.graphs.values():
                names.update(v.name for v in graph.inputs)
        return names

    def replace_uses(self, mapping: Mapping[Value, Value]) -> None:
        """Makes all readers (nested ones and the outputs too) read the mapped values; chains are followed."""

        def final(value: Value) -> Value:
            while value in mapping:
                value = mapping[value]
            return value

        for node in self.nodes:
            node.inputs = [None if v is None else final(v) for v in node.inputs]
            for graph in node.graphs.values():
                graph.replace_uses(mapping)
        self.outputs = [final(v) for v in self.outputs]


def constant(name: str, data: Array, dtype: DType, recipe: Recipe | None = None) -> Value:
    """A constant value; its elements are noted if it is a small integer tensor."""
    shape = tuple(const(d) for d in data.shape)
    value = Value(name, Type(dtype, shape), data=data, recipe=recipe)
    if (dtype.is_int or dtype is DType.BOOL) and data.ndim <= 1 and data.size <= 64:
        value.elements = tuple(const(int(v)) for v in data.reshape(-1))
    return value
