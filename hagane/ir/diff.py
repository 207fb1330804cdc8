"""Compares two graphs, ignoring how their values are numbered or named.

The nodes of both are aligned by op, attributes and types; values of aligned nodes get one name. What is left
are real differences: nodes that only one side has, and operands that aren't the same value. Names of the
graph's own inputs and outputs count, since users see them.
"""

from __future__ import annotations

import difflib
from typing import Any

from hagane.ir.graph import Graph, Node, Value
from hagane.ir.text import hash_of, print_attribute, print_graph, print_type


def diff_graphs(a: Graph, b: Graph, *, locs: bool = False, context: int = 2) -> str:
    """A unified diff from a to b, with a's names where values agree; empty if the graphs are equal."""
    names = _Names(a, b)
    names.match_constants(a, b)
    names.match(a, b)
    before = print_graph(a, locs=locs).split("\n")
    after = print_graph(b, locs=locs, name_of=names.of_b).split("\n")
    lines = difflib.unified_diff(before, after, "a", "b", lineterm="", n=context)
    return "\n".join(lines)


def same_graph(a: Graph, b: Graph, *, locs: bool = False) -> bool:
    """True if both compute the same in the same steps."""
    return not diff_graphs(a, b, locs=locs)


class _Names:
    """The names that b's values get."""

    def __init__(self, a: Graph, b: Graph) -> None:
        self._taken = a.value_names()
        self._names: dict[Value, str] = {v: v.name for v in b.inputs}
        self._taken.update(v.name for v in b.inputs)

    def of_b(self, value: Value) -> str:
        """The name of a value of b: that of its partner, else its own, changed if a has another such name."""
        if value not in self._names:
            name = value.name
            while name in self._taken:
                name += "~"
            self._taken.add(name)
            self._names[value] = name
        return self._names[value]

    def match_constants(self, a: Graph, b: Graph) -> None:
        """Constants of one type and content are the same."""
        partners: dict[Any, list[str]] = {}
        for value in reversed(a.constants()):
            partners.setdefault(_constant_key(value), []).append(value.name)
        for value in b.constants():
            found = partners.get(_constant_key(value))
            if found:
                self._names[value] = found[-1]
                if len(found) > 1:
                    found.pop()

    def match(self, a: Graph, b: Graph) -> None:
        """Aligns the nodes of two graphs and, inside aligned ones, those of their sub-graphs."""
        keys_a, keys_b = [_key(n) for n in a.nodes], [_key(n) for n in b.nodes]
        matcher = difflib.SequenceMatcher(None, keys_a, keys_b, autojunk=False)
        for start_a, start_b, size in matcher.get_matching_blocks():
            for left, right in zip(
                a.nodes[start_a : start_a + size], b.nodes[start_b : start_b + size], strict=True
            ):
                self._pair(left.outputs, right.outputs)
                for key in left.graphs.keys() & right.graphs.keys():
                    self._pair(left.graphs[key].inputs, right.graphs[key].inputs)
                    self.match(left.graphs[key], right.graphs[key])

    def _pair(self, left: list[Value], right: list[Value]) -> None:
        for mine, theirs in zip(left, right, strict=False):
            self._names[theirs] = mine.name


def _constant_key(value: Value) -> Any:
    return print_type(value), hash_of(value), value.recipe and repr(value.recipe)


def _key(node: Node) -> Any:
    """What aligned nodes have in common: all but operands, names and places."""
    attrs = tuple((k, print_attribute(node.attrs[k])) for k in sorted(node.attrs))
    graphs = tuple((k, tuple(_key(n) for n in node.graphs[k].nodes)) for k in sorted(node.graphs))
    return node.op, len(node.inputs), attrs, tuple(map(print_type, node.outputs)), graphs
