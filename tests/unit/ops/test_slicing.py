"""Slices, concatenation and padding: what is read where, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, sym
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Node, tensor
from hagane.ir.registry import op_def
from hagane.ir.scalar import Guard, Load, Scalar
from tests.differential.evaluator import axis_symbols, evaluate_define

B, S, P = sym("B", 1), sym("S", 1), sym("P")


def _node(op: str, *shapes: tuple[int | Expr, ...], **attrs: Any) -> Node:
    builder = Builder(Graph())
    builder.op(op, *(builder.input(f"x{k}", tensor(DType.F32, *s)) for k, s in enumerate(shapes)), **attrs)
    return builder.graph.nodes[-1]


def _scalar(node: Node, index: tuple[Expr, ...] | None = None) -> Scalar:
    define = op_def(node.op).define
    assert define is not None
    at = axis_symbols(node.output.shape) if index is None else index
    return define(node, lambda k, i: Load(DType.F32, k, i), at, 0)


def test_slice_with_symbolic_bounds() -> None:
    node = _node("slice", (B, S + 2, 8), starts=(0, S, 6), steps=(1, 1, -2), sizes=(B, 2, 3))
    read = _scalar(node)
    assert isinstance(read, Load)
    assert [str(e) for e in read.index] == ["i0", "S + i1", "-2*i2 + 6"]
    x = np.random.default_rng(0).standard_normal((2, 7, 8))
    np.testing.assert_array_equal(evaluate_define(node, [x], {"B": 2, "S": 5}), x[:, 5:, 6:0:-2])


def test_concat_guards_each_operand() -> None:
    node = _node("concat", (B, P, 4), (B, S, 4), axis=1)
    scalar = _scalar(node)
    assert isinstance(scalar, Guard) and isinstance(scalar.value, Load) and isinstance(scalar.other, Load)
    assert [str(e) for e in scalar.other.index] == ["i0", "-P + i1", "i2"]
    a, b = np.ones((2, 0, 4)), np.zeros((2, 3, 4))
    np.testing.assert_array_equal(evaluate_define(node, [a, b], {"B": 2, "P": 0, "S": 3}), b)


def test_concat_needs_no_guard_where_the_operand_is_clear() -> None:
    node = _node("concat", (B, 3), (B, 5), (B, 4), axis=1)
    for position, (operand, inner) in {0: (0, 0), 3: (1, 0), 7: (1, 4), 11: (2, 3)}.items():
        read = _scalar(node, (sym("i0", bound=B), B * 0 + position))
        assert isinstance(read, Load) and read.operand == operand and read.index[1] == inner


def test_concat_of_other_shapes_is_refused() -> None:
    with pytest.raises(ShapeError, match="needs equal other axes"):
        _node("concat", (2, 3), (4, 3), axis=1)
    with pytest.raises(ShapeError, match="values of one rank"):
        _node("concat", (2, 3), (3,), axis=0)
    with pytest.raises(ShapeError, match="axis 2 is out of range for rank 2"):
        _node("concat", (2, 3), (2, 3), axis=2)


def test_slices_outside_are_refused() -> None:
    with pytest.raises(ShapeError, match="leaves axis 0"):
        _node("slice", (4,), starts=(2,), steps=(1,), sizes=(3,))
    with pytest.raises(ShapeError, match="leaves axis 0"):
        _node("slice", (4,), starts=(1,), steps=(-1,), sizes=(3,))
    with pytest.raises(ShapeError, match="step of axis 0 is zero"):
        _node("slice", (4,), starts=(1,), steps=(0,), sizes=(1,))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("extent", [1, 2, 5])
def test_pad_with_symbolic_amounts(mode: str, extent: int) -> None:
    node = _node("pad", (S, 3), before=(P, 0), after=(P + 1, -1), mode=mode)
    x = np.random.default_rng(0).standard_normal((extent, 3))
    for amount in (0, 1, 6):
        got = evaluate_define(node, [x], {"S": extent, "P": amount})
        np.testing.assert_array_equal(got, np.pad(x[:, :2], ((amount, amount + 1), (0, 0)), mode))  # type: ignore[call-overload]


def test_cropping_reads_without_a_guard() -> None:
    read = _scalar(_node("pad", (B, 8), before=(0, -2), after=(0, -3), mode="constant"))
    assert isinstance(read, Load) and str(read.index[1]) == "i1 + 2"


def test_a_small_reflection_needs_no_modulo() -> None:
    read = _scalar(_node("pad", (8,), before=(3,), after=(3,), mode="reflect"))
    assert isinstance(read, Load) and "%" not in str(read.index[0])


def test_impossible_pads_are_refused() -> None:
    with pytest.raises(ModelError, match="pad has no mode 'mirror'"):
        _node("pad", (4,), before=(1,), after=(1,), mode="mirror")
    with pytest.raises(ShapeError, match="crops axis 0"):
        _node("pad", (4,), before=(-3,), after=(-2,), mode="constant")
    with pytest.raises(ShapeError, match="1 and 2 amounts for the 2 axes"):
        _node("pad", (4, 4), before=(1,), after=(1, 1), mode="constant")
    with pytest.raises(ShapeError, match="fill value must be a scalar"):
        _node("pad", (4,), (3,), before=(1,), after=(1,), mode="constant")
