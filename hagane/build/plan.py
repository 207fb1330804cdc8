"""Writes the plan of a graph whose layouts are chosen, and finds the weights that it needs."""

from __future__ import annotations

from collections.abc import Mapping

from hagane.core.symbolic import Expr
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
    """All symbols in shapes and attributes; those that the model computes are bare names in bind_symbols."""
    values = [*graph.inputs, *graph.outputs]
    found: dict[str, Symbol] = {}
    for node in graph.walk():
        values += node.outputs
        if node.op == "bind_symbols":
            found |= {name: Symbol(name) for name in node.attrs["names"]}
    attributes = [a for node in graph.walk() for a in node.attrs.values()]
    exprs = [d for v in values for d in v.shape] + [e for a in attributes for e in _exprs(a)]
    found |= {s.name: Symbol(s.name, s.lo, s.hi, s.multiple) for e in exprs for s in e.symbols()}
    return tuple(found[name] for name in sorted(found))


def _exprs(attribute: object) -> list[Expr]:
    if isinstance(attribute, Expr):
        return [attribute]
    return [e for part in attribute for e in _exprs(part)] if isinstance(attribute, tuple) else []


def all_weights(graph: Graph, original: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor that a recipe may start from: the model's own weights, and constants that passes made."""
    made = {v.name: v.data for v in graph.constants() if v.data is not None and v.recipe is None}
    return made | graph.weights | dict(original)


def needed_weights(plan: Plan, weights: Mapping[str, Array]) -> dict[str, Array]:
    """The weights that some recipe of the plan starts from."""
    names = {i for c in plan.constants for node in c.recipe.nodes for i in node.inputs if isinstance(i, str)}
    return {name: weights[name] for name in sorted(names)}
