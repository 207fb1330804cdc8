"""Choosing by value: ties, NaN, and order; creation ops that depend on a diagonal or a depth."""

from __future__ import annotations

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import sym
from hagane.ir.builder import Builder, single_op_graph
from hagane.ir.graph import Graph, tensor
from hagane.ir.registry import op_def
from tests.differential.evaluator import evaluate_define


def _topk(x: np.ndarray, k: int, largest: bool) -> list[list[float]]:
    values, positions = op_def("topk").reference({"k": k, "axis": 0, "largest": largest, "sorted": True}, x)
    return [values.tolist(), positions.tolist()]


def test_topk_orders_ties_by_position() -> None:
    x = np.array([2, 3, 1, 3, 2], np.uint8)
    assert _topk(x, 4, True) == [[3, 3, 2, 2], [1, 3, 0, 4]]
    assert _topk(x, 3, False) == [[1, 2, 2], [2, 0, 4]]


def test_topk_takes_nan_as_the_greatest() -> None:
    x = np.array([np.inf, np.nan, 0, -np.inf])
    assert _topk(x, 4, True)[1] == [1, 0, 2, 3]
    assert _topk(x, 4, False)[1] == [3, 2, 0, 1]


def test_topk_of_a_dynamic_axis() -> None:
    builder = Builder(Graph())
    b, n, k = sym("B"), sym("N"), sym("K")
    values, positions = builder.ops(
        "topk", builder.input("x", tensor(DType.F16, b, n)), k=k, axis=-1, largest=True, sorted=True
    )
    assert values.type == tensor(DType.F16, b, k) and positions.type == tensor(DType.I64, b, k)
    with pytest.raises(ShapeError, match="topk can't choose 9 elements along axis 0"):
        single_op_graph("topk", (np.zeros(8),), {"k": 9, "axis": 0, "largest": True, "sorted": True})


@pytest.mark.parametrize(
    ("op", "last", "expected"),
    [("argmax", False, 1), ("argmax", True, 3), ("argmin", False, 0), ("argmin", True, 4)],
)
def test_first_or_last_winner(op: str, last: bool, expected: int) -> None:
    x = np.array([1, 9, 5, 9, 1])
    attrs = {"axis": 0, "keepdims": False, "select_last": last}
    assert op_def(op).reference(attrs, x) == expected
    assert evaluate_define(single_op_graph(op, (x,), attrs).nodes[0], [x], {}) == expected


def test_nothing_to_choose_from_is_refused() -> None:
    attrs = {"axis": 0, "keepdims": False, "select_last": False}
    with pytest.raises(ShapeError, match="argmax needs elements along an axis"):
        single_op_graph("argmax", (np.zeros((0, 3)),), attrs)
    with pytest.raises(ModelError, match="argmax takes numbers, not bool"):
        single_op_graph("argmax", (np.zeros(3, bool),), attrs)


def test_counts_that_only_run_time_tells() -> None:
    builder = Builder(Graph())
    count = sym("c0")
    x = builder.input("x", tensor(DType.F32, sym("S"), 3))
    assert builder.op("nonzero", x, count=count).type == tensor(DType.I64, 2, count)
    condition = builder.input("c", tensor(DType.BOOL, sym("S")))
    assert builder.op("compress", x, condition, axis=0, count=count).type == tensor(DType.F32, count, 3)
    with pytest.raises(ShapeError, match="must be a list of bool"):
        builder.op("compress", x, x, axis=0, count=count)


def test_a_triangle_below_a_symbolic_diagonal() -> None:
    """The causal mask of a decoder with a cache: k is the length of the past."""
    past, s = sym("P"), sym("S", 1)
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, s, s + past))
    builder.op("trilu", x, upper=False, k=past)
    ones = np.ones((3, 8))
    got = evaluate_define(builder.graph.nodes[-1], [ones], {"S": 3, "P": 5})
    np.testing.assert_array_equal(got, np.tril(ones, 5))


def test_one_hot_of_a_dynamic_depth() -> None:
    builder = Builder(Graph())
    positions = builder.input("p", tensor(DType.I32, sym("B", 1)))
    values = builder.const(np.array([0.0, 1.0], np.float32))
    hot = builder.op("one_hot", positions, values, depth=sym("D"), axis=-1)
    assert hot.type == tensor(DType.F32, sym("B"), sym("D"))
    p, v = np.array([0, -1, 7], np.int32), np.array([0.0, 1.0])
    got = evaluate_define(builder.graph.nodes[-1], [p, v], {"B": 3, "D": 4})
    np.testing.assert_array_equal(got, [[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    with pytest.raises(ShapeError, match="the values for off and on"):
        builder.op("one_hot", positions, builder.const(np.zeros(3)), depth=4, axis=-1)


def test_iota_of_a_symbolic_extent() -> None:
    builder = Builder(Graph())
    steps = builder.op("iota", dtype=DType.F16, shape=(sym("S"), 3), axis=0)
    assert steps.type == tensor(DType.F16, sym("S"), 3)
    got = evaluate_define(builder.graph.nodes[-1], [], {"S": 4})
    np.testing.assert_array_equal(got, np.arange(4)[:, None] * np.ones(3))
    assert builder.op("iota", dtype=DType.I64, shape=(4,), axis=0).elements == (0, 1, 2, 3)
