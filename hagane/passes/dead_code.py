"""remove-dead-code: drops nodes whose results nobody reads; those without results stay for their effects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hagane.core.symbolic import Expr
from hagane.ir.graph import Graph, Node, Value
from hagane.passes.base import control_graphs


@dataclass(frozen=True)
class RemoveDeadCode:
    """No options."""

    name: str = "remove-dead-code"

    def run(self, graph: Graph) -> bool:
        changed = False
        for inner in reversed(control_graphs(graph)):
            needed: set[Value] = set(inner.outputs)
            symbols: set[str] = set()  # that nodes use without reading the value whose extent they are
            kept = []
            for node in reversed(inner.nodes):
                read = any(v in needed for v in node.outputs) or bool(symbols & _introduced(node))
                if node.outputs and not read:
                    changed = True
                    continue
                kept.append(node)
                needed.update(v for v in node.inputs if v is not None)
                symbols |= _names(node.attrs.values())
                for nested in node.graphs.values():
                    needed.update(nested.referenced())
                    symbols |= _names(a for n in nested.walk() for a in n.attrs.values())
            inner.nodes = kept[::-1]
        return changed


def _introduced(node: Node) -> set[str]:
    """Symbols that are extents of the node's outputs and nothing that it reads: a loop's number of trips."""
    bare = {s.name for v in node.outputs for d in v.shape if (s := d.as_sym) is not None}
    if not bare:
        return bare
    read = [v for v in node.inputs if v is not None]
    for nested in node.graphs.values():
        read += nested.captured()
    known = _names(node.attrs.values())
    for value in read:
        known |= _names(value.shape) | _names(value.elements or ())
    return bare - known


def _names(attributes: Iterable[Any]) -> set[str]:
    found: set[str] = set()
    for attribute in attributes:
        if isinstance(attribute, Expr):
            found.update(s.name for s in attribute.symbols())
        elif isinstance(attribute, tuple):
            found |= _names(attribute)
    return found
