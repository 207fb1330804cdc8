"""Reductions inside reductions and around them, in the generic tactic."""

from __future__ import annotations

import numpy as np
import pytest

from hagane.core.dtypes import DType
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, tensor
from hagane.kernels.llvm import generic
from tests.differential.harness import Case, check, dims_of, uniform
from tests.unit.codegen.native import V4

TACTIC = generic.TACTIC


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", [(40, 3), (3, 40), (1, 3)])
def test_a_sum_over_the_axis_of_a_softmax(shape: tuple[int, int], dynamic: bool) -> None:
    """The softmax's own sum has a loop of the same name, inside the outer one where lanes run over rows."""
    builder = Builder(Graph())
    dims = dims_of(shape, ("N" if dynamic else None, None))
    x = builder.input("x", tensor(DType.F64, *dims))
    y = builder.input("y", tensor(DType.F64, *dims))
    weighted = builder.op("mul", builder.op("softmax", x, axis=1), y)
    builder.graph.outputs = [builder.op("reduce_sum", weighted, axes=(1,), keepdims=True)]
    feed = {name: uniform(k, *shape).astype(np.float64) for k, name in enumerate("xy")}
    check(TACTIC, Case(builder.graph, feed), V4, c=64.0)


def test_a_maximum_of_norms_over_two_axes() -> None:
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F64, 5, 7, 33))
    norm = builder.op("instance_norm", x, builder.const(np.ones(7)), builder.const(np.zeros(7)), eps=1e-5)
    builder.graph.outputs = [builder.op("reduce_max", norm, axes=(0, 2), keepdims=False)]
    check(TACTIC, Case(builder.graph, {"x": uniform(3, 5, 7, 33).astype(np.float64)}), V4, c=64.0)
