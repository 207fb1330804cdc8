"""Recipes give what they say, refuse what they can't, and never grow without bound."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hagane.core.dtypes import DType
from hagane.core.errors import EngineError
from hagane.host.recipes import RECIPE_OPS, is_identity, run_recipe, weights_of
from hagane.plan.model import Attrs, Constant, Recipe, RecipeNode

RNG = np.random.default_rng(0)
W = {
    "w": RNG.standard_normal((4, 3, 3, 3)).astype(np.float32),
    "m": np.arange(6, dtype=np.float32).reshape(2, 3),
    "s": np.array([1, 2, 4, 8], np.float32),
    "i": np.arange(4, dtype=np.int8),
}


def node(op: str, *inputs: int | str, **attrs: Any) -> RecipeNode:
    return RecipeNode(op, inputs, attrs)


def run(dtype: DType, shape: tuple[int, ...], *nodes: RecipeNode) -> Any:
    return run_recipe(Constant("c", dtype, shape, Recipe(nodes)), W)


def one(op: str, result: tuple[int, ...], *inputs: str, dtype: DType = DType.F32, **attrs: Any) -> Any:
    return run(dtype, result, node(op, *inputs, **attrs))


def test_moving_elements() -> None:
    m = W["m"]
    assert np.array_equal(one("weight", (2, 3), "m"), m)
    assert np.array_equal(one("reshape", (3, 2), "m", shape=(3, 2)), m.reshape(3, 2))
    assert np.array_equal(one("reshape", (6,), "m", shape=(-1,)), m.reshape(6))
    assert np.array_equal(one("transpose", (3, 2), "m", perm=(1, 0)), m.T)
    assert np.array_equal(one("pad", (3, 7), "m", before=(1, 0), after=(0, 4)), np.pad(m, ((1, 0), (0, 4))))
    assert np.array_equal(one("slice", (1, 2), "m", start=(1, 0), stop=(2, 3), step=(1, 2)), m[1:2, 0:3:2])
    assert np.array_equal(one("concat", (2, 6), "m", "m", axis=1), np.concatenate([m, m], 1))
    assert np.array_equal(one("broadcast_to", (5, 2, 3), "m", shape=(5, 2, 3)), np.broadcast_to(m, (5, 2, 3)))
    assert np.array_equal(one("shard_slice", (2, 1), "m", axis=1, index=2, count=3), m[:, 2:])
    assert one("slice", (0, 3), "m", start=(1, 0), stop=(1, 3)).shape == (0, 3)


def test_arithmetic() -> None:
    s = W["s"]
    assert np.array_equal(one("mul", (4,), "s", "s"), s * s)
    assert np.array_equal(one("add", (4,), "s", value=1e-3), s + np.float32(1e-3))
    assert np.array_equal(one("sub", (4,), "s", value=1), s - 1)
    assert np.array_equal(one("div", (4,), "s", "s"), np.ones(4, np.float32))
    assert np.array_equal(one("neg", (4,), "s"), -s)
    assert np.array_equal(one("sqrt", (4,), "s"), np.sqrt(s))
    assert np.array_equal(
        run(DType.F32, (4,), node("sub", "s", "s"), node("div", "s", 0)), np.full(4, np.inf)
    )
    assert one("add", (4,), "i", value=1, dtype=DType.I8).tolist() == [1, 2, 3, 4]


def test_casts() -> None:
    half = run(DType.BF16, (4,), node("cast", "s", dtype="bf16"))
    assert half.dtype == ml_dtypes.bfloat16 and half.tolist() == [1, 2, 4, 8]
    big = run(DType.F16, (4,), node("mul", "s", value=1e6), node("cast", 0, dtype="f16"))
    assert np.isinf(big).all()


def test_fold_scale_rounds_once() -> None:
    got = one("fold_scale", (4, 3, 3, 3), "w", "s", axis=0)
    assert np.array_equal(got, W["w"] * W["s"].reshape(4, 1, 1, 1))
    with pytest.raises(EngineError, match="the recipe of constant c fails at node 0"):
        one("fold_scale", (4, 3, 3, 3), "w", "s", axis=1)


def test_winograd_is_exact_on_multiples_of_576() -> None:
    """Convolving one tile by the transform equals convolving it directly."""
    rng = np.random.default_rng(1)
    g = rng.integers(-3, 4, (3, 3)).astype(np.float32) * 576
    constant = Constant("c", DType.F32, (6, 6), Recipe((node("winograd_f43", "g"),)))
    transformed = run_recipe(constant, {"g": g}).astype(np.float64)
    bt = np.array(
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ],
        np.float64,
    )
    at = np.array(
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], np.float64
    )
    d = rng.integers(-1, 2, (6, 6)).astype(np.float64)
    got = at @ (transformed * (bt @ d @ bt.T)) @ at.T
    want = [[(d[i : i + 3, j : j + 3] * g).sum() for j in range(4)] for i in range(4)]
    assert np.array_equal(got, want)
    assert one("winograd_f43", (4, 3, 6, 6), "w").shape == (4, 3, 6, 6)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("explode", ("m",), {}),
        ("weight", ("missing",), {}),
        ("weight", (), {}),
        ("weight", (3,), {}),
        ("weight", (-1,), {}),
        ("reshape", ("m",), {"shape": (7,)}),
        ("reshape", ("m",), {"shape": 6}),
        ("reshape", ("m",), {}),
        ("transpose", ("m",), {"perm": (0, 0)}),
        ("pad", ("m",), {"before": (0, 1 << 40), "after": (0, 0)}),
        ("pad", ("m",), {"before": (0, -1), "after": (0, 0)}),
        ("broadcast_to", ("m",), {"shape": (1 << 50, 2, 3)}),
        ("broadcast_to", ("m",), {"shape": (-1, 3)}),
        ("slice", ("m",), {"start": (0,), "stop": (1,)}),
        ("slice", ("m",), {"start": (0, 0), "stop": (1, 1), "step": (0, 1)}),
        ("shard_slice", ("m",), {"axis": 1, "index": 3, "count": 3}),
        ("shard_slice", ("m",), {"axis": 9, "index": 0, "count": 1}),
        ("concat", ("m", "i"), {"axis": 0}),
        ("mul", ("m", "i"), {}),
        ("mul", ("m",), {"value": "x"}),
        ("mul", ("m", "s"), {}),
        ("cast", ("m",), {"dtype": "f33"}),
        ("cast", ("m",), {"dtype": ("f32",)}),
        ("winograd_f43", ("m",), {}),
    ],
)
def test_refuses(op: str, inputs: tuple[Any, ...], attrs: Attrs) -> None:
    with pytest.raises(EngineError):
        run_recipe(Constant("c", DType.F32, (1,), Recipe((RecipeNode(op, inputs, attrs),))), W)


def test_result_must_be_what_the_plan_says() -> None:
    with pytest.raises(EngineError, match=r"gives float32\[2, 3\], the plan says float32\[3, 2\]"):
        one("weight", (3, 2), "m")
    with pytest.raises(EngineError, match=r"the plan says float16"):
        one("weight", (2, 3), "m", dtype=DType.F16)
    with pytest.raises(EngineError):
        run(DType.F32, (1,))


def test_what_a_recipe_reads() -> None:
    recipe = Recipe((node("weight", "b"), node("add", 0, "a"), node("mul", 1, "b")))
    assert weights_of(recipe) == ["b", "a"]
    assert not is_identity(recipe) and not is_identity(Recipe(()))
    assert is_identity(Recipe((node("weight", "b"), node("reshape", 0, shape=(1,)))))
    assert not is_identity(Recipe((node("weight", "b"), node("neg", 0))))
    assert "weight" in RECIPE_OPS
