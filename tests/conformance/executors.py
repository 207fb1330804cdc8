"""How a conformance case is run. A further way to run a graph (a compiled engine) is one more entry."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from hagane.build.builder import build_graph
from hagane.build.options import BuildOptions
from hagane.codegen.llvm.pool import CompilePool
from hagane.ir.graph import Graph
from hagane.ir.interpreter import run
from hagane.runtime.session import Session

Executor = Callable[[Graph, dict[str, Any]], dict[str, Any]]


@cache
def _pool() -> CompilePool:
    """One compile process for all cases: starting one for each would take most of the time."""
    return CompilePool(1)


def run_compiled(graph: Graph, feed: dict[str, Any]) -> dict[str, Any]:
    """The graph as an engine, on two threads."""
    engine = build_graph(graph, BuildOptions(verify="off"), pool=_pool())
    with Session(engine.image, threads=2) as session:
        return session.run(feed)


EXECUTORS: dict[str, Executor] = {
    "interpreter": run,
    "compiled": run_compiled,
}
