"""Group norms as exporters write them lose their reshapes, and keep their meaning."""

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

RNG = np.random.default_rng(2)
X = RNG.normal(size=(2, 12, 5, 7)).astype(np.float32) + 3


def between_reshapes(groups: int, dtype: DType = DType.F32) -> Graph:
    builder = Builder(Graph(output_names=["y"]))
    batch = sym("N", 1)
    x = builder.input("x", tensor(dtype, batch, 12, 5, 7))
    scale, bias = (builder.const(RNG.normal(size=groups), dtype) for _ in range(2))
    flat = builder.op("reshape", x, shape=(batch, groups, 12 // groups * 35))
    norm = builder.op("instance_norm", flat, scale, bias, eps=1e-5)
    builder.graph.outputs = [builder.op("reshape", norm, shape=x.shape)]
    return builder.graph


@pytest.mark.parametrize("groups", [1, 3, 4, 12])
def test_a_norm_between_reshapes(groups: int) -> None:
    graph = between_reshapes(groups)
    before = run(graph, {"x": X})["y"]
    run_passes(graph, SIMPLIFY)
    verify(graph)
    ops = [n.op for n in graph.nodes]
    assert ops == ["instance_norm"] if groups == 12 else "instance_norm" not in ops
    assert all(n.inputs[0] is not graph.inputs[0] for n in graph.nodes if n.op == "reshape")
    np.testing.assert_allclose(run(graph, {"x": X})["y"], before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("groups", [2, 12])
def test_the_op_itself(groups: int) -> None:
    builder = Builder(Graph(output_names=["y"]))
    x = builder.input("x", tensor(DType.F32, 2, 12, 5, 7))
    scale, bias = (builder.const(RNG.normal(size=12).astype(np.float32)) for _ in range(2))
    builder.graph.outputs = [builder.op("group_norm", x, scale, bias, groups=groups, eps=1e-5)]
    before = run(builder.graph, {"x": X})["y"]
    run_passes(builder.graph, SIMPLIFY)
    verify(builder.graph)
    assert "group_norm" not in [n.op for n in builder.graph.nodes]
    np.testing.assert_allclose(run(builder.graph, {"x": X})["y"], before, rtol=1e-5, atol=1e-6)


def test_other_types_and_other_shapes_stay() -> None:
    graph = between_reshapes(4, DType.F16)
    run_passes(graph, SIMPLIFY)
    assert [n.op for n in graph.nodes] == ["reshape", "instance_norm", "reshape"]
    builder = Builder(Graph(output_names=["y"]))
    x = builder.input("x", tensor(DType.F32, 2, 6, 5))
    flat = builder.op("reshape", x, shape=(4, 3, 5))
    one = builder.const(np.ones(3, np.float32))
    norm = builder.op("instance_norm", flat, one, one, eps=1e-5)
    builder.graph.outputs = [builder.op("reshape", norm, shape=x.shape)]
    run_passes(builder.graph, SIMPLIFY)
    assert [n.op for n in builder.graph.nodes] == ["reshape", "instance_norm", "reshape"]
