"""Products with one-hot rows become reads of rows, and only where that is the same."""

from __future__ import annotations

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.symbolic import sym
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, tensor
from hagane.ir.interpreter import run
from hagane.ir.verify import verify
from hagane.passes.base import run_passes
from hagane.passes.pipelines import SIMPLIFY

WEIGHT = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)


def product(numbers: np.ndarray, weight: np.ndarray, swapped: bool = False) -> Graph:
    builder = Builder(Graph(output_names=["y"]))
    i = builder.input("i", tensor(DType.I32, sym("N", 1), 3))
    column = builder.op("reshape", i, shape=(*i.shape, 1))
    pair = (builder.const(numbers), column) if swapped else (column, builder.const(numbers))
    rows = builder.op("cast", builder.op("eq", *pair), to=DType.F32)
    builder.graph.outputs = [builder.op("matmul", rows, builder.const(weight))]
    return builder.graph


@pytest.mark.parametrize("swapped", [False, True])
def test_one_hot_rows(swapped: bool) -> None:
    graph = product(np.arange(7, dtype=np.int32).reshape(1, 1, 7), WEIGHT, swapped)
    feed = {"i": np.array([[0, 6, 3], [-1, 7, 2], [100, -8, 6]], np.int32)}
    before = run(graph, feed)["y"]
    run_passes(graph, SIMPLIFY)
    verify(graph)
    assert "gather" in [n.op for n in graph.nodes]
    np.testing.assert_array_equal(run(graph, feed)["y"], before)


def test_other_comparisons_and_infinite_weights_stay() -> None:
    infinite = WEIGHT.copy()
    infinite[2, 2] = np.inf
    for numbers, weight in ((np.arange(1, 8), WEIGHT), (np.arange(7), infinite)):
        graph = product(numbers.astype(np.int32).reshape(1, 1, 7), weight)
        run_passes(graph, SIMPLIFY)
        assert "matmul" in [n.op for n in graph.nodes]
