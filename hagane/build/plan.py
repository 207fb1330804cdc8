"""Writes the plan of a graph whose layouts are chosen, and finds the weights that it needs."""

from __future__ import annotations

from collections.abc import Mapping

from hagane.ir.graph import Array, Graph
from hagane.lower.kernels import KernelLibrary
from hagane.lower.program import Choose, ProgramWriter
from hagane.plan.model import Plan, Symbol


def write_plan(graph: Graph, library: KernelLibrary, choose: Choose) -> Plan:
    """The plan of a graph; its kernels go into the library."""
    writer = ProgramWriter(library, choose)
    program = writer.write(graph, "main")
    return Plan(
        str(library.target),
        _symbols(graph),
        tuple(writer.constants.values()),
        {"main": program},
        tuple(writer.regions),
        writer.scratch_bytes,
    )


def _symbols(graph: Graph) -> tuple[Symbol, ...]:
    values = [*graph.inputs, *graph.outputs, *(v for node in graph.walk() for v in node.outputs)]
    found = {s.name: s for v in values for d in v.shape for s in d.symbols()}
    return tuple(Symbol(s.name, s.lo, s.hi, s.multiple) for _, s in sorted(found.items()))


def all_weights(graph: Graph, original: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor that a recipe may start from: the model's own weights, and constants that passes made."""
    made = {v.name: v.data for v in graph.constants() if v.data is not None and v.recipe is None}
    return made | graph.weights | dict(original)


def needed_weights(plan: Plan, weights: Mapping[str, Array]) -> dict[str, Array]:
    """The weights that some recipe of the plan starts from."""
    names = {i for c in plan.constants for node in c.recipe.nodes for i in node.inputs if isinstance(i, str)}
    return {name: weights[name] for name in sorted(names)}
