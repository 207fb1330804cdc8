"""The content of small integer tensors: what exported models compute on shapes is known before run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.symbolic import emax, emin, sym
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Value, tensor
from hagane.ir.registry import op_def
from hagane.ir.scalar import IndexValue, Load
from tests.differential.evaluator import evaluate_scalar

B, S = sym("B", 1), sym("S", 1)


@pytest.fixture
def builder() -> Builder:
    return Builder(Graph())


def _shape(builder: Builder, *dims: Any) -> Value:
    return builder.op("shape_values", values=dims)


def _pick(builder: Builder, shape: Value, position: int) -> Value:
    return builder.op("gather", shape, builder.const(np.asarray(position)), axis=0)


def test_a_target_shape_is_put_together(builder: Builder) -> None:
    shape = _shape(builder, B, S, 768)
    batch, last = _pick(builder, shape, 0), _pick(builder, shape, -1)
    heads = builder.op("div", last, builder.const(np.asarray(64)))
    parts = [builder.op("reshape", v, shape=(1,)) for v in (batch, heads)]
    target = builder.op("concat", *parts, builder.const(np.array([-1, 64])), axis=0)
    assert target.elements == (B, 12, -1, 64)


def test_slices_and_pads_of_a_shape(builder: Builder) -> None:
    shape = _shape(builder, B, 3, S, S)
    assert builder.op("slice", shape, starts=(2,), steps=(1,), sizes=(2,)).elements == (S, S)
    assert builder.op("slice", shape, starts=(3,), steps=(-2,), sizes=(2,)).elements == (S, 3)
    assert builder.op("pad", shape, before=(1,), after=(-2,), mode="constant").elements == (0, B, 3)
    assert builder.op("tile", builder.const(np.array([2])), repeats=(3,)).elements == (2, 2, 2)
    assert builder.op("cumsum", shape, axis=0, exclusive=False, reverse=False).elements == (
        B,
        B + 3,
        B + 3 + S,
        B + 3 + 2 * S,
    )


def test_doubled_sizes(builder: Builder) -> None:
    spatial = builder.op("slice", _shape(builder, B, 3, S, S), starts=(2,), steps=(1,), sizes=(2,))
    doubled = builder.op("mul", spatial, builder.const(np.array([2, 2])))
    assert doubled.elements == (2 * S, 2 * S)


def test_where_and_equal_decide_on_dims(builder: Builder) -> None:
    """Expand's idiom: where(shape == -1, 1, shape)."""
    wanted = builder.op("concat", _shape(builder, B, 1), builder.const(np.array([-1])), axis=0)
    unset = builder.op("eq", wanted, builder.const(np.array([-1])))
    assert unset.elements == (0, 0, 1)
    ones = builder.const(np.ones(3, np.int64))
    assert builder.op("where", unset, ones, wanted).elements == (B, 1, 1)


def test_comparisons_of_dims(builder: Builder) -> None:
    shape, zero = _shape(builder, S), builder.const(np.asarray(0))
    assert builder.op("gt", shape, zero).elements == (1,)
    assert builder.op("le", shape, zero).elements == (0,)
    assert builder.op("lt", shape, _shape(builder, S + 1)).elements == (1,)
    assert builder.op("ge", shape, shape).elements == (1,)
    assert builder.op("eq", shape, _shape(builder, B)).elements is None
    undecided = builder.op("eq", shape, _shape(builder, B))
    false = builder.const(np.asarray(False))
    assert builder.op("and", undecided, false).elements is None  # the left side's content is unknown
    assert builder.op("not", builder.op("gt", shape, zero)).elements == (0,)


def test_limits_of_dims(builder: Builder) -> None:
    shape = _shape(builder, S, B)
    assert builder.op("clip", shape, lo=1, hi=16).elements == (emin(S, 16), emin(B, 16))
    assert builder.op("relu", builder.op("sub", shape, _shape(builder, 4, 0))).elements == (emax(S - 4, 0), B)
    assert builder.op("neg", shape).elements == (-S, -B)
    assert builder.op("abs", shape).elements == (S, B)
    assert builder.op("sign", shape).elements == (1, 1)


def test_a_known_position_is_read_directly(builder: Builder) -> None:
    """x[:, S - 1], where S - 1 is computed from x's own shape."""
    x = builder.input("x", tensor(DType.F32, B, S, 4))
    last = builder.op("sub", _pick(builder, _shape(builder, B, S, 4), 1), builder.const(np.asarray(1)))
    builder.op("gather", x, last, axis=1)
    define = op_def("gather").define
    assert define is not None
    read = define(
        builder.graph.nodes[-1], lambda k, at: Load(DType.F32, k, at), (sym("i", bound=B), sym("j")), 0
    )
    assert isinstance(read, Load)
    assert [str(e) for e in read.index] == ["i", "S - 1", "j"]


def test_shape_values_are_defined_per_element(builder: Builder) -> None:
    shape = _shape(builder, B, 3, S * B)
    define = op_def("shape_values").define
    assert define is not None
    node = builder.graph.nodes[-1]
    scalar = define(node, lambda k, at: Load(DType.I64, k, at), (sym("i0", bound=shape.shape[0]),), 0)
    values = evaluate_scalar(scalar, [], {"B": 2, "S": 5, "i0": np.arange(3)})
    assert values.tolist() == [2, 3, 10]
    direct = define(node, lambda k, at: Load(DType.I64, k, at), (B * 0 + 2,), 0)
    assert isinstance(direct, IndexValue) and direct.expr == S * B
