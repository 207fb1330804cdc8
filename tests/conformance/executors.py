"""How a conformance case is run. A further way to run a graph (a compiled engine) is one more entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hagane.ir.graph import Graph
from hagane.ir.interpreter import run

Executor = Callable[[Graph, dict[str, Any]], dict[str, Any]]

EXECUTORS: dict[str, Executor] = {
    "interpreter": run,
}
