"""Gathers and scatters: positions from the end, out of range, repeated, and the names of loaded indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType, from_numpy
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, sym
from hagane.ir.builder import Builder, single_op_graph
from hagane.ir.graph import Graph, Type, tensor
from hagane.ir.registry import op_def
from hagane.ir.scalar import Fn, LetIndex, Load, Scalar, children
from tests.differential.evaluator import axis_symbols, evaluate_define

B, S = sym("B", 1), sym("S", 1)
X = np.arange(24.0).reshape(4, 6)


def _gather(shape: tuple[int | Expr, ...], positions: Any, axis: int = 0) -> Scalar:
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, *shape))
    given = builder.input("p", positions) if isinstance(positions, Type) else builder.const(positions)
    builder.op("gather", x, given, axis=axis)
    node = builder.graph.nodes[-1]
    define = op_def("gather").define
    assert define is not None
    return define(node, lambda k, at: Load(node.input(k).dtype, k, at), axis_symbols(node.output.shape), 0)


def _functions(scalar: Scalar) -> set[str]:
    found = {scalar.name} if isinstance(scalar, Fn) else set()
    for child in children(scalar):
        found |= _functions(child)
    return found


def test_positions_of_unknown_value_are_wrapped_and_held_inside() -> None:
    scalar = _gather((S, 3), tensor(DType.I64, B))
    assert isinstance(scalar, LetIndex) and _functions(scalar) == {"lt", "add", "min", "max"}
    unsigned = _gather((S, 3), tensor(DType.U8, B))
    assert _functions(unsigned) == {"cast", "min", "max"}


def test_constant_positions_need_no_check() -> None:
    assert _functions(_gather((5, 3), np.array([0, 4, 2]))) == set()
    assert "min" in _functions(_gather((5, 3), np.array([0, -1])))


@pytest.mark.parametrize(
    ("position", "expected"), [(0, "0"), (-1, "S - 1"), (2, "min(2, S - 1)"), (-3, "max(0, S - 3)")]
)
def test_one_constant_position_is_an_index(position: int, expected: str) -> None:
    scalar = _gather((S, 3), np.asarray(position))
    assert isinstance(scalar, Load)
    assert str(scalar.index[0]) in (
        expected,
        expected.replace("2, S - 1", "S - 1, 2").replace("0, S - 3", "S - 3, 0"),
    )


def test_names_of_loaded_indices_tell_the_readers_apart() -> None:
    """Two gathers fused into one region, or one gather at two places, must not share a symbol."""
    builder = Builder(Graph())
    x, p = builder.input("x", tensor(DType.F32, 9, 3)), builder.input("p", tensor(DType.I64, 4))
    nodes = [builder.op("gather", x, p, axis=0).producer for _ in range(2)]
    define = op_def("gather").define
    assert define is not None
    i, j = sym("i", bound=sym("n")), sym("j")
    names = []
    for node in nodes:
        assert node is not None
        for at in ((i, j), (i + 1, j)):
            scalar = define(node, lambda k, index: Load(DType.I64, k, index), at, 0)
            assert isinstance(scalar, LetIndex)
            names.append(scalar.name)
    assert len(set(names)) == 4


def test_a_position_out_of_range_reads_inside() -> None:
    graph = single_op_graph("gather", (X.astype(np.float32), np.array([9, -9])), {"axis": 0})
    got = evaluate_define(graph.nodes[0], [X, np.array([9, -9])], {})
    np.testing.assert_array_equal(got, X[[3, 0]])


def test_impossible_gathers_are_refused() -> None:
    with pytest.raises(ShapeError, match="reads position 5 of axis 0"):
        _gather((5, 3), np.array([0, 5]))
    with pytest.raises(ShapeError, match="reads position -6 of axis 0"):
        _gather((5, 3), np.array([0, -6]))
    with pytest.raises(ShapeError, match="positions must be integers"):
        _gather((5, 3), np.array([0.5]))
    with pytest.raises(ShapeError, match="needs data and positions of one rank"):
        single_op_graph("gather_elements", (X, np.array([0])), {"axis": 0})
    with pytest.raises(ShapeError, match="3 positions and 0 batch dims don't fit"):
        single_op_graph("gather_nd", (X, np.zeros((2, 3), np.int64)), {"batch_dims": 0})


def test_of_plain_writes_to_one_place_the_last_stays() -> None:
    data, positions, updates = np.zeros(3), np.array([1, -2, 1]), np.array([5.0, 6.0, 7.0])
    for op, at in (("scatter_elements", positions), ("scatter_nd", positions[:, None])):
        attrs = {"reduction": "none"} | ({"axis": 0} if op == "scatter_elements" else {})
        assert op_def(op).reference(attrs, data, at, updates).tolist() == [0, 7, 0]
        graph = single_op_graph(op, (data, at, updates), attrs)
        assert evaluate_define(graph.nodes[0], [data, at, updates], {}).tolist() == [0, 7, 0]


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [("add", [1, 13, 3]), ("mul", [1, 60, 3]), ("max", [1, 6, 3]), ("min", [1, 2, 3])],
)
def test_reductions_join_updates_with_the_data(reduction: str, expected: list[int]) -> None:
    data, positions, updates = np.array([1, 2, 3]), np.array([[1], [1]]), np.array([5, 6])
    got = op_def("scatter_nd").reference({"reduction": reduction}, data, positions, updates)
    assert got.tolist() == expected
    assert got.dtype == data.dtype and from_numpy(got.dtype) is DType.I64


def test_impossible_scatters_are_refused() -> None:
    with pytest.raises(ModelError, match="scatter_nd has no reduction 'mean'"):
        single_op_graph("scatter_nd", (X, np.array([[0]]), X[:1]), {"reduction": "mean"})
    with pytest.raises(ShapeError, match="element types differ"):
        single_op_graph("scatter_nd", (X, np.array([[0]]), X[:1].astype(np.float32)), {"reduction": "none"})
    with pytest.raises(ShapeError, match="larger than"):
        single_op_graph(
            "scatter_elements", (X, np.zeros((5, 6), int), np.zeros((5, 6))), {"axis": 1, "reduction": "none"}
        )
