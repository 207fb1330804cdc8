"""The content of small integer tensors: what exported models compute on shapes is known before run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.core.symbolic import const, emax, emin, sym
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Value, tensor
from hagane.ir.registry import op_def
from hagane.ir.scalar import IndexValue, Load
from hagane.ops.shapes import broadcast_dims
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


@pytest.mark.parametrize(("a", "b", "quotient"), [(-7, 2, -3), (7, -2, -3), (-7, -2, 3), (-6, 3, -2)])
def test_known_integers_divide_towards_zero(builder: Builder, a: int, b: int, quotient: int) -> None:
    result = builder.op("div", builder.const(np.array([a])), builder.const(np.array([b])))
    assert result.elements == (quotient,)


def test_what_may_be_negative_or_divides_by_zero_is_not_known(builder: Builder) -> None:
    size = _shape(builder, S)
    two, zero = builder.const(np.array([2])), builder.const(np.array([0]))
    less = builder.op("sub", size, two)
    assert less.elements == (S - 2,)
    assert builder.op("div", less, two).elements is None
    assert builder.op("div", size, two).elements == (S // 2,)
    assert builder.op("div", two, zero).elements is None
    assert builder.op("mod", two, zero).elements is None


@pytest.mark.parametrize(
    ("dtype", "a", "b"),
    [(np.int8, 100, 100), (np.uint8, 200, 100), (np.int32, 2**31 - 1, 1), (np.int64, 2**63 - 1, 1)],
)
def test_what_wraps_around_is_not_known(builder: Builder, dtype: type, a: int, b: int) -> None:
    x, y = (builder.const(np.array([n], dtype)) for n in (a, b))
    assert builder.op("add", x, y).elements is None


def test_unsigned_differences_of_sizes_are_not_known(builder: Builder) -> None:
    size = builder.op("cast", _shape(builder, S), to=DType.U32)
    assert size.elements == (S,)
    assert builder.op("sub", size, builder.const(np.array([5], np.uint32))).elements is None


def test_bools_are_no_numbers(builder: Builder) -> None:
    flags = builder.const(np.array([True, False]))
    with pytest.raises(ModelError, match="add takes numbers, not bool"):
        builder.op("add", flags, flags)


def test_a_dim_that_cannot_be_one_decides_a_broadcast() -> None:
    maybe_one, pair, even = sym("n", 1), sym("m", 2), sym("k", 0, None, 2)
    assert broadcast_dims(maybe_one, pair) == pair == broadcast_dims(pair, maybe_one)
    assert broadcast_dims(maybe_one, even) == even == broadcast_dims(even, maybe_one)
    assert broadcast_dims(pair, const(7)) == 7
    assert broadcast_dims(maybe_one, S) == emax(maybe_one, S)
    none = broadcast_dims(sym("z"), maybe_one)  # 0 beside 1 is 0
    assert [none.evaluate({"z": z, "n": n}) for z, n in ((0, 1), (1, 1), (5, 1), (1, 5), (5, 5))] == [
        0,
        1,
        5,
        5,
        5,
    ]


def test_the_least_integer_divides_towards_zero() -> None:
    least = np.array([np.iinfo(np.int32).min], np.int32)
    assert op_def("div").reference({}, least, np.array([3], np.int32)) == -715827882
