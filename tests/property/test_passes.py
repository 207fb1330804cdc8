"""Random graphs keep their meaning under every pass and under all; they read back as they were printed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from hagane.core.dtypes import from_numpy
from hagane.ir.diff import diff_graphs
from hagane.ir.graph import Array, Graph
from hagane.ir.interpreter import run
from hagane.ir.parse import parse_graph
from hagane.ir.text import hash_of, hash_of_array, print_graph
from hagane.ir.verify import verify
from hagane.passes.base import Pass, run_passes
from hagane.passes.pipelines import SIMPLIFY
from tests.golden.passes_under_test import every_pass, pipeline
from tests.property.random_graphs import Case, cases, random_feed

PASSES = every_pass()
FEW = settings(
    max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def copied(graph: Graph) -> Graph:
    """The same graph, read from its text."""
    arrays = {hash_of(v): v.data for v in graph.constants() if v.data is not None}
    arrays |= {hash_of_array(a): a for a in graph.weights.values()}
    return parse_graph(print_graph(graph), arrays)


def tolerance(graph: Graph) -> float:
    """Relative error to allow: folded constants are rounded to their type, the interpreter holds f64."""
    values = [*graph.inputs, *graph.constants(), *(v for n in graph.walk() for v in n.outputs)]
    bits = min((v.dtype.bits for v in values if v.dtype.is_float), default=64)
    return {64: 1e-9, 32: 2e-5}.get(bits, 2e-2)


def assert_same_results(before: dict[str, Array], after: dict[str, Array], rtol: float) -> None:
    """Equal up to rounding; NaN, infinities and integers exactly."""
    assert before.keys() == after.keys()
    for name, wanted in before.items():
        found = after[name]
        assert found.dtype == wanted.dtype and found.shape == wanted.shape, name
        if not from_numpy(wanted.dtype).is_float:
            np.testing.assert_array_equal(found, wanted, err_msg=name)
            continue
        found, wanted = found.astype(np.float64), wanted.astype(np.float64)
        finite = wanted[np.isfinite(wanted)]
        atol = rtol * float(np.max(np.abs(finite), initial=1e-30))
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, err_msg=name)


@given(case=cases())
@FEW
def test_text_reads_back(case: Case) -> None:
    verify(case.graph)
    again = copied(case.graph)
    assert print_graph(again) == case.text
    assert not diff_graphs(case.graph, again)
    feed = random_feed(again)
    assert_same_results(run(case.graph, feed), run(again, feed), 0)


@pytest.mark.parametrize("one", PASSES, ids=lambda p: p.name)
@given(case=cases())
@FEW
def test_each_pass_keeps_the_meaning(one: Pass, case: Case) -> None:
    graph = case.graph
    feed = random_feed(graph)
    before, rtol = run(graph, feed), tolerance(graph)
    changed = one.run(graph)
    verify(graph)
    assert changed or print_graph(graph) == case.text, f"{one.name} says that it changed nothing"
    assert_same_results(before, run(graph, feed), rtol)
    copied(graph)


@given(case=cases())
@settings(FEW, max_examples=200)
def test_the_pipeline_keeps_the_meaning(case: Case) -> None:
    feed = random_feed(case.graph)
    before, rtol = run(case.graph, feed), tolerance(case.graph)
    run_passes(case.graph, pipeline())
    verify(case.graph)
    assert_same_results(before, run(case.graph, feed), rtol)
    copied(case.graph)


@given(case=cases())
@FEW
def test_simplification_comes_to_rest(case: Case) -> None:
    """What has been simplified twice doesn't change any more."""
    run_passes(case.graph, (*SIMPLIFY, *SIMPLIFY))
    text = print_graph(case.graph, locs=False)
    run_passes(case.graph, SIMPLIFY)
    assert print_graph(case.graph, locs=False) == text
