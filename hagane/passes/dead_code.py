"""remove-dead-code: drops nodes whose results nobody reads; those without results stay for their effects."""

from __future__ import annotations

from dataclasses import dataclass

from hagane.ir.graph import Graph, Value
from hagane.passes.base import control_graphs


@dataclass(frozen=True)
class RemoveDeadCode:
    """No options."""

    name: str = "remove-dead-code"

    def run(self, graph: Graph) -> bool:
        changed = False
        for inner in reversed(control_graphs(graph)):
            needed: set[Value] = set(inner.outputs)
            kept = []
            for node in reversed(inner.nodes):
                if node.outputs and not any(v in needed for v in node.outputs):
                    changed = True
                    continue
                kept.append(node)
                needed.update(v for v in node.inputs if v is not None)
                for nested in node.graphs.values():
                    needed.update(nested.referenced())
            inner.nodes = kept[::-1]
        return changed
