"""Rewrites that must not happen, or only just so: each of these was once a fault or could become one."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType, from_numpy
from hagane.core.symbolic import const, sym
from hagane.host.recipes import RECIPE_OPS, run_recipe
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Loc, Type, Value, tensor
from hagane.ir.interpreter import run
from hagane.ir.parse import parse_graph
from hagane.ir.verify import verify
from hagane.ops.conv import conv_attrs
from hagane.passes.base import run_passes
from hagane.passes.canonicalise import Canonicalise
from hagane.passes.common_subexpressions import MergeCommonSubexpressions
from hagane.passes.dead_code import RemoveDeadCode
from hagane.passes.fold_constants import FoldConstants
from hagane.passes.fold_scales import FoldScales
from hagane.passes.fuse import Fuse
from hagane.passes.pipelines import SIMPLIFY
from hagane.passes.recipes import recipe_of
from hagane.plan.model import Constant


def ops(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes]


def binary(op: str, number: float, dtype: DType = DType.F32, swapped: bool = False) -> Graph:
    builder = Builder(Graph())
    x, k = builder.input("x", tensor(dtype, 3)), builder.const(np.asarray(number), dtype)
    builder.graph.outputs = [builder.op(op, *((k, x) if swapped else (x, k)))]
    return builder.graph


# ---- canonicalise


@pytest.mark.parametrize(
    ("op", "number", "dtype", "swapped", "kept"),
    [
        ("add", -0.0, DType.F32, False, []),
        ("add", -0.0, DType.F32, True, []),
        ("add", 0.0, DType.F32, False, ["add"]),  # -0.0 + 0.0 is 0.0
        ("add", 0, DType.I64, False, []),
        ("sub", 0.0, DType.F32, False, []),
        ("sub", -0.0, DType.F32, False, ["sub"]),
        ("sub", 0.0, DType.F32, True, ["sub"]),
        ("mul", 1.0, DType.F16, True, []),
        ("div", 1, DType.I32, False, []),
        ("div", 1, DType.I32, True, ["div"]),
        ("div", 2, DType.I32, False, ["div"]),
        ("div", 3.0, DType.F32, False, ["div"]),
        ("div", 4.0, DType.F32, False, ["div", "mul"]),
        ("div", 2.0**-13, DType.F16, False, ["div", "mul"]),
        ("div", 2.0**13, DType.F8E4M3, False, ["div"]),  # out of that type's range, as is its inverse
        ("pow", 0.5, DType.F32, False, ["pow"]),
        ("pow", 2.0, DType.F32, False, ["mul"]),
        ("pow", 2, DType.I32, False, ["pow"]),
    ],
)
def test_neutral_operands_and_exact_inverses(op, number, dtype, swapped, kept):
    graph = binary(op, number, dtype, swapped)
    Canonicalise().run(graph)
    verify(graph)
    assert ops(graph) == kept


def test_signs_of_zeros_and_specials_survive():
    x = np.array([-0.0, 0.0, np.nan, np.inf, -np.inf], np.float32)
    for op in ("add", "sub", "mul", "div"):
        for number in (0.0, -0.0, 1.0, 2.0):
            builder = Builder(Graph(output_names=["y"]))
            value = builder.input("x", tensor(DType.F32, 5))
            builder.graph.outputs = [builder.op(op, value, builder.const(np.asarray(number), DType.F32))]
            before = run(builder.graph, {"x": x})["y"]
            run_passes(builder.graph, SIMPLIFY)
            after = run(builder.graph, {"x": x})["y"]
            np.testing.assert_array_equal(after, before)
            numbers = ~np.isnan(before)
            np.testing.assert_array_equal(np.signbit(after)[numbers], np.signbit(before)[numbers])


def test_a_neutral_operand_that_broadcasts_stays():
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, 3))
    builder.graph.outputs = [builder.op("mul", x, builder.const(np.ones((2, 1), np.float32)))]
    assert not Canonicalise().run(builder.graph)


def test_an_operand_that_may_broadcast_at_run_time_stays():
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, sym("B", 1)))
    y = builder.input("y", tensor(DType.F32, sym("C", 1)))
    builder.graph.outputs = [
        builder.op("mul", builder.op("sub", y, y), x),
        builder.op("broadcast_to", x, shape=y.shape),
    ]
    assert not Canonicalise().run(builder.graph)


def batch_norm(x_type: DType, scale_type: DType) -> Graph:
    builder = Builder(Graph())
    x = builder.input("x", tensor(x_type, 2, 3, 4, 4))
    numbers = [builder.const(np.full(3, n), scale_type) for n in (2, 1, 0.5, 4)]
    builder.graph.outputs = [builder.op("batch_norm", x, *numbers, eps=1e-5)]
    return builder.graph


def test_batch_norms_of_mixed_types_stay():
    graph = batch_norm(DType.F16, DType.F32)
    assert not Canonicalise().run(graph)
    graph = batch_norm(DType.F32, DType.F32)
    assert Canonicalise().run(graph)
    verify(graph)
    assert "batch_norm" not in ops(graph)


# ---- fold-constants and recipes


def test_a_constant_op_that_fails_is_left_to_the_run():
    builder = Builder(Graph())
    table, position = builder.const(np.arange(3)), builder.const(np.array([1]))
    builder.graph.outputs = [builder.op("gather", table, position, axis=0)]
    position.data = np.array([7])
    assert not FoldConstants().run(builder.graph)


def test_effects_and_collectives_of_constants_are_not_folded():
    builder = Builder(Graph())
    k = builder.const(np.ones(3, np.float32))
    builder.graph.outputs = [builder.op("collective", k, kind="all_reduce_sum", axis="tp", size=2)]
    run_passes(builder.graph, (*SIMPLIFY, Fuse()))
    assert ops(builder.graph) == ["collective"]


def test_known_contents_fold_if_their_type_holds_them():
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.I32, 2))
    x.elements = (const(1 << 31), const(1))
    y = builder.input("y", tensor(DType.BOOL, 1))
    y.elements = (const(1),)
    builder.graph.outputs = [builder.op("identity", x), builder.op("identity", y)]
    FoldConstants().run(builder.graph)
    assert [v.is_const for v in builder.graph.outputs] == [False, True]
    assert builder.graph.outputs[1].data.tolist() == [True]


def test_names_of_folded_weights_are_not_given_anew():
    """A recipe finds its weight by name, so a new constant must not get that name."""
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, 3))
    w = builder.const(np.array([1.0, 2.0, 3.0], np.float32), name="c")
    scaled = builder.op("div", x, builder.const(np.asarray(3.0), DType.F32, name="d"))
    builder.graph.outputs = [builder.op("mul", scaled, builder.op("neg", w))]
    graph = builder.graph
    FoldConstants().run(graph)
    assert "c" in graph.value_names()
    fresh = Builder(graph, names=graph.value_names()).const(np.asarray(5.0))
    assert fresh.name != "c"


def folded(op: str, *arrays: np.ndarray, **attrs: object) -> tuple[Value, dict[str, np.ndarray]]:
    builder = Builder(Graph())
    values = [builder.const(a, name=f"w{k}") for k, a in enumerate(arrays)]
    builder.graph.outputs = [builder.op(op, *values, **attrs)]
    assert FoldConstants().run(builder.graph)
    return builder.graph.outputs[0], builder.graph.weights


_RNG = np.random.default_rng(0)
_TYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", _TYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "neg", "sqrt"])
def test_recipes_of_arithmetic_give_the_folded_bits(op, dtype):
    arrays = [_RNG.uniform(-3, 9, (5, 700)).astype(dtype), _RNG.uniform(-3, 9, 700).astype(dtype)]
    arrays[0][0, :4] = [np.nan, np.inf, -0.0, 0]
    value, weights = folded(op, *arrays[: 1 if op in ("neg", "sqrt") else 2])
    assert_recipe_gives(value, weights)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("reshape", {"shape": (const(10), const(6))}),
        ("transpose", {"perm": (1, 2, 0)}),
        ("broadcast_to", {"shape": (const(2), const(3), const(4), const(5))}),
        ("cast", {"to": DType.F16}),
        ("cast", {"to": DType.BF16}),
        ("cast", {"to": DType.F64}),
    ],
)
def test_recipes_of_movement_and_casts_give_the_folded_bits(op, attrs):
    array = (_RNG.standard_normal((3, 4, 5)) * 1e4).astype(np.float32)
    assert_recipe_gives(*folded(op, array, **attrs))


@pytest.mark.parametrize("to", [DType.I8, DType.U16, DType.I32, DType.F32, DType.F16, DType.BOOL], ids=str)
def test_recipes_of_integer_casts_give_the_folded_bits(to):
    assert_recipe_gives(*folded("cast", _RNG.integers(-1 << 40, 1 << 40, 99), to=to))


@pytest.mark.parametrize("to", [DType.F8E4M3, DType.F8E5M2, DType.F4E2M1, DType.I4, DType.I64], ids=str)
def test_casts_that_recipes_would_round_differently_have_none(to):
    value, _ = folded("cast", np.array([1e6, -2.5, 3.0], np.float32), to=to)
    assert value.recipe is None


def assert_recipe_gives(value: Value, weights: dict[str, np.ndarray]) -> None:
    recipe = recipe_of(value)
    assert {node.op for node in recipe.nodes} <= RECIPE_OPS
    found = run_recipe(Constant(value.name, value.dtype, value.data.shape, recipe), weights)
    assert from_numpy(found.dtype) is value.dtype
    np.testing.assert_array_equal(found.view(np.uint8), value.data.view(np.uint8))


def test_recipes_share_what_they_have_in_common():
    builder = Builder(Graph())
    value = builder.const(np.ones(3, np.float32), name="w")
    for _ in range(40):
        value = builder.op("add", value, value)
    builder.graph.outputs = [value]
    FoldConstants().run(builder.graph)
    recipe = recipe_of(builder.graph.outputs[0])
    assert len(recipe.nodes) == 41
    found = run_recipe(Constant("c", DType.F32, (3,), recipe), builder.graph.weights)
    assert found.tolist() == [2.0**40] * 3


# ---- remove-dead-code


def test_a_value_whose_extent_is_used_is_not_dead():
    text = """\
graph @g(%n: i64[], %go: bool[], %x: f32[4]) -> i64[1] where N in 0.. {
  %a, %b = loop(%n, %go, %x) : f32[4], f32[N, 4] {
    body(%i: i64[], %c: bool[], %s: f32[4]) {
      return %c, %s, %s
    }
  }
  %unused = relu(%a) : f32[4]
  %count = shape_values() {values=(N)} : i64[1]
  return %count
}
"""
    graph = parse_graph(text)
    assert RemoveDeadCode().run(graph)
    verify(graph)
    assert ops(graph) == ["loop", "shape_values"]


def test_dead_nodes_go_though_their_dims_are_those_of_live_ones():
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, sym("B", 1)))
    builder.op("relu", x)
    builder.graph.outputs = [builder.op("shape_values", values=x.shape)]
    assert RemoveDeadCode().run(builder.graph)
    assert ops(builder.graph) == ["shape_values"]


def test_checks_and_bindings_of_dims_stay():
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, sym("B", 1)))
    n = builder.input("n", tensor(DType.I64))
    builder.ops("require_dims", left=x.shape, right=(const(3),), message="the batch")
    builder.ops("bind_symbols", n, names=("N",))
    builder.graph.outputs = [builder.op("relu", x)]
    run_passes(builder.graph, (*SIMPLIFY, Fuse()))
    assert ops(builder.graph) == ["require_dims", "bind_symbols", "region"]


# ---- merge-common-subexpressions


def test_attributes_of_different_types_or_signs_are_different():
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, 3))
    attrs = [
        {"lo": 0.0, "hi": None},
        {"lo": -0.0, "hi": None},
        {"lo": 0.0, "hi": 1.0},
        {"lo": None, "hi": 1.0},
    ]
    builder.graph.outputs = [builder.op("clip", x, **a) for a in attrs]
    assert not MergeCommonSubexpressions().run(builder.graph)


def test_constants_of_one_content_but_different_types_are_different():
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.I32, 3))
    same = builder.const(np.zeros(3, np.int32)), builder.const(np.zeros(3, np.int32))
    other = builder.const(np.zeros((1, 3), np.int32))
    builder.graph.outputs = [builder.op("add", x, k) for k in (*same, other)]
    assert MergeCommonSubexpressions().run(builder.graph)
    assert len(builder.graph.nodes) == 2


# ---- fold-scales


def conv_then(op: str, factor: np.ndarray, dtype: type = np.float32, weight: float = 1.0) -> Graph:
    builder = Builder(Graph(output_names=["y"]))
    x = builder.input("x", tensor(from_numpy(dtype), 1, 2, 3, 3))
    w = builder.const(np.full((2, 2, 1, 1), weight, dtype))
    y = builder.op("conv", x, w, None, **conv_attrs(2))
    builder.graph.outputs = [builder.op(op, y, builder.const(factor.astype(dtype)))]
    return builder.graph


@pytest.mark.parametrize(
    ("shape", "folds"),
    [
        ((2, 1, 1), True),
        ((1, 2, 1, 1), True),
        ((), True),
        ((1, 1), True),
        ((3,), False),
        ((1, 1, 1, 3), False),
    ],
)
def test_only_scales_per_channel_fold(shape, folds):
    graph = conv_then("mul", np.full(shape, 2.0))
    assert FoldScales().run(graph) is folds


def test_half_precision_weights_keep_their_range():
    assert FoldScales().run(conv_then("mul", np.full((2, 1, 1), 8.0), np.float16))
    assert not FoldScales().run(conv_then("mul", np.full((2, 1, 1), 8.0), np.float16, 1e4))
    assert not FoldScales().run(conv_then("mul", np.full((2, 1, 1), 1e-3), np.float16, 1e-3))
    assert FoldScales().run(conv_then("add", np.full((2, 1, 1), 1e-3), np.float16, 1e-3))


def test_a_convolution_that_others_read_is_left_alone():
    graph = conv_then("mul", np.full((2, 1, 1), 2.0))
    graph.outputs.append(graph.nodes[0].output)
    graph.output_names.append("z")
    assert not FoldScales().run(graph)


def test_a_convolution_outside_a_loop_is_not_pulled_into_it():
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, 1, 2, 3, 3))
    y = builder.op("conv", x, builder.const(np.ones((2, 2, 1, 1), np.float32)), None, **conv_attrs(2))
    body = Builder(Graph("body"), builder)
    body.input("i", Type(DType.I64, ()))
    go, s = body.input("go", Type(DType.BOOL, ())), body.input("s", y.type)
    scaled = body.op("mul", y, body.const(np.asarray(2.0), DType.F32))
    body.graph.outputs = [go, body.op("add", s, scaled)]
    trips = builder.const(np.asarray(3))
    builder.graph.outputs = builder.ops("loop", trips, None, x, graphs={"body": body.graph})
    assert not FoldScales().run(builder.graph)


def test_merged_nodes_keep_both_places():
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, 3))
    outputs = []
    for name in ("/a", "/b"):
        builder.loc = Loc("m", (name,))
        outputs.append(builder.op("exp", x))
    builder.graph.outputs = outputs
    MergeCommonSubexpressions().run(builder.graph)
    assert builder.graph.nodes[0].loc == Loc("m", ("/a", "/b"))
