"""Tensor expressions of fused regions, evaluated element by element, give what the interpreter computes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings

from hagane.core.dtypes import from_numpy
from hagane.core.symbolic import Expr
from hagane.ir.graph import Array, Graph, Node, Value
from hagane.ir.interpreter import run, widen
from hagane.ir.region import Region
from hagane.ir.registry import op_def
from hagane.ir.text import symbols_of
from hagane.passes.base import run_passes
from hagane.passes.fuse import Fuse
from hagane.passes.pipelines import SIMPLIFY
from tests.differential.evaluator import evaluate_scalar
from tests.property.draft import EXTENTS
from tests.property.random_graphs import Case, cases, random_feed
from tests.property.test_passes import tolerance

SIZES = {f"D{extent}": extent for extent in EXTENTS}
MAX_ELEMENTS = 5000


def values_of(graph: Graph, feed: dict[str, Array]) -> dict[Value, Array]:
    """What the interpreter computes, without what is inside branches and loops."""
    found: dict[Value, Array] = {v: widen(feed[v.name], v.dtype) for v in graph.inputs}
    run(graph, feed, found.__setitem__)
    for value in graph.constants():
        if value.data is not None:
            found[value] = widen(value.data, value.dtype)
    return found


def evaluate(region: Region, operands: list[Array], output: int) -> Array:
    """All elements of an output by its expression."""
    axes = region.axes(output)
    extents = tuple(axis.extent.evaluate(SIZES) for axis in axes)
    scalar = region.expression(tuple(Expr([((axis.sym,), 1)]) for axis in axes), output)
    env: dict[str, Any] = dict(SIZES)
    for axis, grid in zip(axes, np.indices(extents, np.int64), strict=True):
        env[axis.sym.name] = grid.reshape(-1)
    return evaluate_scalar(scalar, list(operands), env).reshape(extents)


def checkable(node: Node, arrays: dict[Value, Array]) -> bool:
    """True for regions made of ops with definitions, over dims that are known, and not too large."""
    if node.op != "region":
        return False
    body = node.graphs["body"]
    if any(op_def(n.op).define is None for n in body.nodes):
        return False
    symbols = symbols_of(Graph(nodes=[node])).keys()
    work = max(
        (int(np.prod(arrays[v].shape)) for v in [*node.outputs, *node.inputs] if v in arrays), default=0
    )
    return symbols <= SIZES.keys() and 0 < work <= MAX_ELEMENTS


@given(case=cases(max_steps=10))
@settings(
    max_examples=80, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
def test_expressions_of_regions(case: Case) -> None:
    graph = case.graph
    run_passes(graph, (*SIMPLIFY, Fuse()))
    arrays = values_of(graph, random_feed(graph))
    rtol = tolerance(graph)
    for node in graph.nodes:
        if not checkable(node, arrays):
            continue
        for output, value in enumerate(node.outputs):
            found = evaluate(Region(node), [arrays[v] for v in node.inputs if v is not None], output)
            wanted = arrays[value]
            if from_numpy(wanted.dtype).is_float:
                finite = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-30)
                np.testing.assert_allclose(
                    found, wanted, rtol=rtol, atol=rtol * float(finite), err_msg=value.name
                )
            else:
                np.testing.assert_array_equal(found, wanted, err_msg=value.name)
