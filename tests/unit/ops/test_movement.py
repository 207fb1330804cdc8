"""Movement ops: grouped reshape indices, with constant and symbolic dims, and simple index expressions."""

from __future__ import annotations

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, sym
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Node, tensor
from hagane.ir.registry import op_def
from hagane.ir.scalar import Load
from hagane.ops.movement import reshape_groups, reshape_index
from tests.differential.evaluator import axis_symbols, evaluate_define

B, S, P = sym("B", 1), sym("S", 1), sym("P")


def _shape(*dims: int | Expr) -> tuple[Expr, ...]:
    return tensor(DType.F32, *dims).shape


def _node(op: str, *shapes: tuple[int | Expr, ...], **attrs: object) -> Node:
    builder = Builder(Graph())
    builder.op(op, *(builder.input(f"x{k}", tensor(DType.F32, *s)) for k, s in enumerate(shapes)), **attrs)
    return builder.graph.nodes[-1]


def _index(node: Node) -> list[str]:
    """The index with which an output element reads its input."""
    define = op_def(node.op).define
    assert define is not None
    scalar = define(node, lambda k, at: Load(DType.F32, k, at), axis_symbols(node.output.shape), 0)
    assert isinstance(scalar, Load)
    return [str(e) for e in scalar.index]


@pytest.mark.parametrize(
    ("source", "target", "groups"),
    [
        ((B, S, 768), (B, S, 12, 64), [([0], [0]), ([1], [1]), ([2], [2, 3])]),
        ((B, 12, S, 64), (12 * B, S, 64), [([0, 1], [0]), ([2], [1]), ([3], [2])]),
        ((B, S, 768), (B * S, 768), [([0, 1], [0]), ([2], [1])]),
        ((2, 3, 4), (6, 4), [([0, 1], [0]), ([2], [1])]),
        ((2, 3, 4), (3, 8), [([0, 1, 2], [0, 1])]),
        ((1, 5, 1), (5,), [([1], [0])]),
        ((4, S), (2, 2, S), [([0], [0, 1]), ([1], [2])]),
        # the first dims don't compare, the last ones do
        ((P, 64), (B, S, 64), [([0], [0, 1]), ([1], [2])]),
        ((), (1, 1), []),
    ],
)
def test_reshape_groups_axes_of_equal_extent(
    source: tuple[int | Expr, ...], target: tuple[int | Expr, ...], groups: list[tuple[list[int], list[int]]]
) -> None:
    assert reshape_groups(_shape(*source), _shape(*target)) == groups


@pytest.mark.parametrize(
    ("source", "target", "index"),
    [
        ((B, S, 768), (B, S, 12, 64), ["i0", "i1", "64*i2 + i3"]),
        ((B, S, 12, 64), (B, S, 768), ["i0", "i1", "(i2 // 64)", "(i2 % 64)"]),
        ((B, S, 64), (B * S, 64), ["(i0 // S)", "(i0 % S)", "i1"]),
        (
            (B, 3, S, 8, S, 8),
            (B, 3, 8 * S, 8 * S),
            ["i0", "i1", "(i2 // 8)", "(i2 % 8)", "(i3 // 8)", "(i3 % 8)"],
        ),
        ((B, S, 1, 7), (B, 1, S, 7), ["i0", "i2", "0", "i3"]),
        ((B, S + P, 64), (B, 64 * S + 64 * P), ["i0", "(i1 // 64)", "(i1 % 64)"]),
    ],
)
def test_reshape_divides_only_where_dims_merge(
    source: tuple[int | Expr, ...], target: tuple[int | Expr, ...], index: list[str]
) -> None:
    assert _index(_node("reshape", source, shape=target)) == index


@pytest.mark.parametrize(
    "shapes",
    [
        [(B, S, 768), (B, S, 12, 64), (B * S, 768), (B, S, 768)],
        [(B, S + P, 64), (B * (S + P), 64), (B, S + P, 4, 16), (B, S + P, 64)],
        [(B, 6, S, 4), (B, 2, 3, 4 * S), (2 * B, 3, S, 2, 2), (B, 6, S, 4)],
        [(B, S, 12), (12 * B * S,), (B, S, 12)],
    ],
)
def test_reshapes_there_and_back_cancel(shapes: list[tuple[int | Expr, ...]]) -> None:
    at = start = axis_symbols(_shape(*shapes[-1]))
    for target, source in zip(shapes[::-1], shapes[-2::-1], strict=False):
        at = reshape_index(_shape(*source), _shape(*target), at)
    assert at == start


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((B, S, 12), (B, 3, 4 * S)),
        ((B, S, 12), (4, B * S * 3)),
        ((B, 4 * S, 3), (2 * B, S, 6)),
        ((B, S + P, 8), (2 * S + 2 * P, 4 * B)),
    ],
)
def test_symbolic_reshapes_read_the_right_element(
    source: tuple[int | Expr, ...], target: tuple[int | Expr, ...]
) -> None:
    dims = {"B": 3, "S": 5, "P": 2}
    extents = [d.evaluate(dims) for d in _shape(*source)]
    x = np.arange(np.prod(extents), dtype=np.float64).reshape(extents)
    node = _node("reshape", source, shape=target)
    np.testing.assert_array_equal(
        evaluate_define(node, [x], dims), x.reshape([d.evaluate(dims) for d in _shape(*target)])
    )


def test_transposes_and_broadcasts_keep_plain_indices() -> None:
    assert _index(_node("transpose", (B, S, 12, 64), perm=(0, 2, 1, 3))) == ["i0", "i2", "i1", "i3"]
    assert _index(_node("broadcast_to", (S, 1), shape=(B, S, 7))) == ["i1", "0"]
    assert _index(_node("tile", (B, 3), repeats=(1, 5))) == ["i0", "(i1 % 3)"]


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(ShapeError, match="has 6 elements, which don't fill"):
        _node("reshape", (2, 3), shape=(4, 2))
    with pytest.raises(ShapeError, match="is no permutation of the 2 axes"):
        _node("transpose", (2, 3), perm=(0, 0))
    with pytest.raises(ShapeError, match="can't be broadcast"):
        _node("broadcast_to", (2, 3), shape=(2, 1))
    with pytest.raises(ShapeError, match="more axes than"):
        _node("broadcast_to", (2, 3), shape=(3,))
    with pytest.raises(ShapeError, match="1 repeats for the 2 axes"):
        _node("tile", (2, 3), repeats=(2,))
