"""Numeric comparison of an engine with the interpreter or ONNX Runtime, as a whole or node by node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hagane.core.errors import RunError
from hagane.debug.feeds import default_dims, make_feed
from hagane.ir.graph import Array, Graph, Value

TOLERANCE = 2.0**-16
"""Largest error, relative to the largest value of a tensor, that passes without a closer look."""


@dataclass(frozen=True)
class Difference:
    """How far a tensor is from the reference: its largest error, and that over the largest value."""

    name: str
    where: str
    max_error: float
    relative: float
    same_special: bool

    @property
    def ok(self) -> bool:
        return self.same_special and self.relative <= TOLERANCE


def difference(name: str, got: Array, want: Array, where: str = "") -> Difference:
    """Compares two arrays; NaN and infinities must be at the same places."""
    if got.shape != want.shape:
        raise RunError(f"{name!r} has shape {list(got.shape)}, the reference has {list(want.shape)}")
    if want.dtype.kind not in "fV" and want.dtype.name != "bfloat16":
        wrong = float(np.count_nonzero(got != want))
        return Difference(name, where, wrong, wrong / max(want.size, 1), True)
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    same = bool(np.array_equal(a[~finite], b[~finite], equal_nan=True) and np.isfinite(a[finite]).all())
    error = float(np.abs(a[finite] - b[finite]).max(initial=0.0)) if same else float("inf")
    scale = float(np.abs(b[finite]).max(initial=0.0))
    return Difference(name, where, error, error / scale if scale else error, same)


def compare_outputs(got: Mapping[str, Array], want: Mapping[str, Array]) -> list[Difference]:
    """One difference for each output of the reference."""
    return [difference(name, np.asarray(got[name]), np.asarray(array)) for name, array in want.items()]


def reference_outputs(
    model: str | Path, feed: Mapping[str, Any], against: str = "reference"
) -> dict[str, Array]:
    """What the model should give: by the interpreter in float64, or by ONNX Runtime without optimisation."""
    if against == "reference":
        import hagane.ops  # noqa: F401
        from hagane.frontends.onnx import load_onnx
        from hagane.ir.interpreter import run

        return run(load_onnx(str(model)), feed)
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feed)), strict=True))


def compare_model(
    model: str | Path,
    feed: Mapping[str, Any] | None = None,
    *,
    against: str = "reference",
    per_node: bool = False,
    batch: int = 1,
) -> list[Difference]:
    """Builds a model and compares its outputs, or every node's, with a reference on given or made-up inputs.

    against: "reference" or "onnxruntime"; nodes are always compared with the interpreter.
    Raises: ModelError, BuildError.
    """
    import hagane

    with hagane.load(hagane.build(model)) as session:
        if feed is None:
            feed = make_feed(session.inputs, default_dims(session.inputs, session.symbols, None, batch))
        if per_node:
            return compare_nodes(model, feed)
        return compare_outputs(session.run(feed), reference_outputs(model, feed, against))


def compare_nodes(model: str | Path, feed: Mapping[str, Any]) -> list[Difference]:
    """Every node's result in an unfused engine against the interpreter, in execution order."""
    import hagane
    from hagane.build.builder import build_graph
    from hagane.build.options import BuildOptions
    from hagane.frontends.onnx import load_onnx
    from hagane.ir.interpreter import run

    graph = _with_all_outputs(load_onnx(str(model)))
    places = {v.name: str(v.producer.loc) for v in graph.outputs if v.producer is not None}
    want = run(graph, feed)
    engine = build_graph(graph, BuildOptions(fuse=False, verify="off"))
    with hagane.load(engine) as session:
        got = session.run(dict(feed))
    return [difference(name, np.asarray(got[name]), want[name], places.get(name, "")) for name in want]


def _with_all_outputs(graph: Graph) -> Graph:
    outputs: list[Value] = [v for node in graph.nodes for v in node.outputs]
    graph.outputs = outputs + [v for v in graph.outputs if v not in outputs]
    return graph
