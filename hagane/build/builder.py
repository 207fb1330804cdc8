"""Ties the stages together: model, graph, regions, tactics, kernels, plan, engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import hagane.ops  # noqa: F401  registers the ops
from hagane.build.choosing import Choices
from hagane.build.compile import Compiler
from hagane.build.engine import Engine
from hagane.build.options import BuildOptions, report
from hagane.build.plan import all_weights, needed_weights, write_plan
from hagane.build.tune import tune_graph
from hagane.build.verify import verify_graph
from hagane.codegen.llvm.pool import CompilePool
from hagane.core.errors import BuildError
from hagane.core.targets import CpuTarget, can_run, parse_target
from hagane.engine.image import EngineImage
from hagane.frontends.onnx import load_onnx
from hagane.ir.graph import Array, Graph
from hagane.ir.text import print_graph
from hagane.kernels.catalog import CpuModel
from hagane.passes.base import run_passes
from hagane.passes.pipelines import build_pipeline

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


def build_graph(
    graph: Graph,
    options: BuildOptions,
    after_pass: AfterPass | None = None,
    pool: CompilePool | None = None,
) -> Engine:
    """An engine from a graph, which is rewritten in the course.

    pool: compile processes to use, for many builds in a row. Raises: BuildError.
    """
    target = parse_target(options.target)
    graph.output_names = graph.port_names
    _check_port_names(graph)
    portable = print_graph(graph)
    weights = {v.name: v.data for v in graph.constants() if v.data is not None}
    run_passes(graph, build_pipeline(CpuModel(target), fuse=options.fuse), after_pass)
    compiler = Compiler(target, options, pool)
    try:
        return _generate(graph, target, options, compiler, portable, weights)
    finally:
        compiler.close()


def _check_port_names(graph: Graph) -> None:
    names = [*(v.name for v in graph.inputs), *graph.output_names]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise BuildError(
            f"{', '.join(repeated)} is the name of several inputs or outputs; each needs its own",
            next_step="leave it out of the model's outputs, or give it another name by an Identity node",
        )


def _generate(
    graph: Graph,
    target: CpuTarget,
    options: BuildOptions,
    compiler: Compiler,
    portable: str,
    weights: dict[str, Array],
) -> Engine:
    weights = all_weights(graph, weights)
    choices = Choices(target)
    tuning = tune_graph(graph, choices, compiler, options, weights)
    verification = ""
    if options.verify != "off" and can_run(target):
        verification = verify_graph(graph, choices, compiler, options, weights)
    library = compiler.library()
    plan = write_plan(graph, library, choices)
    kernels = list(library.kernels.values())
    name = str(target)
    image = EngineImage(
        plans={name: plan},
        code={name: compiler.blob(kernels)},
        graph_text=portable,
        weights=needed_weights(plan, weights),
        sources={k.name: k.source for k in kernels},
        metadata=dict(graph.metadata),
        tuning=tuning,
        verification=verification,
        pack=options.pack,
    )
    return Engine(image)
