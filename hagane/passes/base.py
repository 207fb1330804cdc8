"""What a pass is, and how a list of them is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from hagane.core.errors import InternalError
from hagane.ir.graph import Graph
from hagane.ir.verify import verify


class Pass(Protocol):
    """Rewrites a graph in place. A pass is a frozen dataclass; its fields are its options."""

    @property
    def name(self) -> str: ...

    def run(self, graph: Graph) -> bool:
        """True if anything changed."""
        ...


def run_passes(
    graph: Graph, passes: Sequence[Pass], after: Callable[[str, Graph], None] | None = None
) -> None:
    """Runs passes in order and verifies after each that changed something; `after` sees name and graph then.

    Raises: InternalError that names the pass whose result is not a valid graph, and those run before it.
    """
    done: list[str] = []
    for one in passes:
        if one.run(graph):
            try:
                verify(graph)
            except InternalError as error:
                error.where |= {"pass": one.name, "passes before": ", ".join(done) or "none"}
                raise
            if after is not None:
                after(one.name, graph)
        done.append(one.name)


def control_graphs(graph: Graph) -> list[Graph]:
    """The graph itself and all graphs of control flow in it, not the bodies of regions."""
    found = [graph]
    for node in graph.nodes:
        if node.op != "region":
            for inner in node.graphs.values():
                found += control_graphs(inner)
    return found
