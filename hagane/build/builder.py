"""Ties the stages together: model, graph, regions, tactics, kernels, plan, engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hagane.ops  # noqa: F401  registers the ops
from hagane.build.choosing import choose_first
from hagane.build.compile import Compiler
from hagane.build.engine import Engine
from hagane.build.options import BuildOptions, report
from hagane.core.targets import CpuTarget, parse_target
from hagane.engine.image import EngineImage
from hagane.frontends.onnx import load_onnx
from hagane.ir.graph import Array, Graph
from hagane.ir.text import print_graph
from hagane.kernels.catalog import CpuModel
from hagane.lower.kernels import KernelLibrary
from hagane.lower.program import Choose, ProgramWriter
from hagane.passes.base import run_passes
from hagane.passes.pipelines import build_pipeline
from hagane.plan.model import Plan, Symbol

if TYPE_CHECKING:
    from onnx import ModelProto

AfterPass = Callable[[str, Graph], None]


def build_engine(
    source: str | Path | bytes | ModelProto, options: BuildOptions, after_pass: AfterPass | None = None
) -> Engine:
    """An engine from an ONNX model. `after_pass` sees each pass's name and result.

    Raises: ModelError, BuildError.
    """
    report(options, "import", 0, 1)
    graph = load_onnx(source, shapes=dict(options.shapes) or None)
    return build_graph(graph, options, after_pass)


def build_graph(graph: Graph, options: BuildOptions, after_pass: AfterPass | None = None) -> Engine:
    """An engine from a graph, which is rewritten in the course. Raises: BuildError."""
    target = parse_target(options.target)
    graph.output_names = graph.port_names
    portable = print_graph(graph)
    weights = {v.name: v.data for v in graph.constants() if v.data is not None}
    run_passes(graph, build_pipeline(CpuModel(target), fuse=options.fuse), after_pass)
    compiler = Compiler(target, options)
    try:
        return _generate(graph, target, options, compiler, portable, weights)
    finally:
        compiler.close()


def _generate(
    graph: Graph,
    target: CpuTarget,
    options: BuildOptions,
    compiler: Compiler,
    portable: str,
    weights: dict[str, Array],
) -> Engine:
    library = KernelLibrary(target)
    plan = write_plan(graph, library, choose_first(target))
    kernels = list(library.kernels.values())
    blob = compiler.blob(kernels)
    name = str(target)
    image = EngineImage(
        plans={name: plan},
        code={name: blob},
        graph_text=portable,
        weights=_needed_weights(plan, weights, graph),
        sources={k.name: k.source for k in kernels},
        metadata=dict(graph.metadata),
        pack=options.pack,
    )
    return Engine(image)


def write_plan(graph: Graph, library: KernelLibrary, choose: Choose) -> Plan:
    """The plan of a graph whose layouts are chosen; its kernels go into the library."""
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


def _needed_weights(plan: Plan, weights: dict[str, Array], graph: Graph) -> dict[str, Array]:
    """The canonical weights that some recipe of the plan starts from."""
    known: dict[str, Any] = {v.name: v.data for v in graph.constants()} | graph.weights | weights
    names = {
        i for c in plan.constants for node in c.recipe.nodes for i in node.inputs if isinstance(i, str)
    }
    return {name: known[name] for name in sorted(names)}


