from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hagane.codegen.llvm.dsl import Module, Value, Var, f32, i32
from hagane.core.targets import CpuTarget
from tests.unit.codegen.native import NEON, each

LANES = pytest.mark.parametrize("lanes", [1, 4, 16])


@LANES
@pytest.mark.parametrize(("name", "reference"), [("fmax", np.maximum), ("fmin", np.minimum)])
def test_extrema_propagate_nan(target: CpuTarget, lanes: int, name: str, reference: Any) -> None:
    x = np.array([1, np.nan, -3, np.inf, -np.inf, 5, 0, np.nan] * 2, np.float32)
    y = np.roll(x, 3)
    got = each(target, lambda f, a, b: getattr(f, name)(a, b), lanes, x, y, out="f32")
    np.testing.assert_array_equal(got, reference(x, y))
    for op in (lambda f, a: getattr(f, name)(a, 2.0), lambda f, a: getattr(f, name)(2.0, a)):
        np.testing.assert_array_equal(each(target, op, lanes, x, out="f32"), reference(x, np.float32(2)))
    finite, other = np.nan_to_num(x), np.nan_to_num(y)
    got = each(target, lambda f, a, b: getattr(f, name + "_fast")(a, b), lanes, finite, other, out="f32")
    np.testing.assert_array_equal(got, reference(finite, other))


def test_floor_division(target: CpuTarget) -> None:
    a = np.repeat(np.arange(-8, 8), 16)
    b = np.tile([-7, -3, -2, -1, 1, 2, 3, 7], 32)
    np.testing.assert_array_equal(each(target, lambda f, x, y: f.floor_div(x, y), 4, a, b, out="i64"), a // b)
    np.testing.assert_array_equal(each(target, lambda f, x, y: f.floor_mod(x, y), 4, a, b, out="i64"), a % b)
    np.testing.assert_array_equal(each(target, lambda f, x: f.floor_div(x, 4), 1, a, out="i64"), a // 4)
    np.testing.assert_array_equal(each(target, lambda f, x: f.floor_mod(x, 4), 1, a, out="i64"), a % 4)


def test_operators_match_numpy(target: CpuTarget) -> None:
    a, b = np.random.default_rng(1).integers(1, 1000, (2, 64)).astype(np.int32)
    cases: list[tuple[Callable[[Value, Value], Value], Any]] = [
        (lambda x, y: 3 + x * y - 7, 3 + a * b - 7),
        (lambda x, y: x // y + x % y, a // b + a % b),
        (lambda x, y: 10 - x, 10 - a),
        (lambda x, y: (x & 12) | (y ^ 5), (a & 12) | (b ^ 5)),
        (lambda x, y: (x << 3) + (y >> 2) + (-x).ashr(1), (a << 3) + (b >> 2) + (-a >> 1)),
        (lambda x, y: ~x + (-x) / y, ~a - a // b),
        (lambda x, y: (-x).srem(y), -(a % b)),
    ]
    for op, want in cases:
        got = each(target, lambda f, x, y, op=op: op(x, y), 8, a, b, out="i32")
        np.testing.assert_array_equal(got, want)


def test_comparisons(target: CpuTarget) -> None:
    x = np.array([1, 2, np.nan, np.inf, -0.0, 3, 3, np.nan], np.float32)
    y = np.array([2, 1, 1, np.inf, 0.0, np.nan, 3, np.nan], np.float32)
    i, j = np.array([-1, 1, 5, 5]), np.array([1, -1, 5, 6])
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        reference = getattr(np.ndarray, f"__{name}__")
        got = each(target, lambda f, a, b, n=name: getattr(a, n)(b), 8, x, y, out="i1")
        np.testing.assert_array_equal(got, reference(x, y), name)
        got = each(target, lambda f, a, b, n=name: getattr(a, n)(b), 4, i, j, out="i1")
        np.testing.assert_array_equal(got, reference(i, j), name)
    for name in ("ult", "ule", "ugt", "uge"):
        got = each(target, lambda f, a, b, n=name: getattr(a, n)(b), 4, i, j, out="i1")
        reference = getattr(np.ndarray, f"__{name[1:]}__")
        np.testing.assert_array_equal(got, reference(i.view(np.uint64), j.view(np.uint64)), name)
    np.testing.assert_array_equal(each(target, lambda f, a: f.is_nan(a), 8, x, out="i1"), np.isnan(x))
    got = each(target, lambda f, a, b: f.select(a.lt(b), a, 7), 8, x, y, out="f32")
    np.testing.assert_array_equal(got, np.where(x < y, x, np.float32(7)))


@LANES
def test_rounding_and_signs(target: CpuTarget, lanes: int) -> None:
    x = np.array([0.5, 1.5, -0.5, -2.5, 2.7, -2.7, np.inf, -0.0] * 2, np.float32)
    for name, reference in [
        ("round_half_even", np.rint),
        ("floor", np.floor),
        ("ceil", np.ceil),
        ("trunc", np.trunc),
        ("abs", np.abs),
        ("neg", np.negative),
    ]:
        got = each(target, lambda f, v, n=name: getattr(f, n)(v), lanes, x, out="f32")
        np.testing.assert_array_equal(got.view(np.int32), reference(x).view(np.int32), name)
    got = each(target, lambda f, v: f.copysign(2.0, v), lanes, x, out="f32")
    np.testing.assert_array_equal(got, np.copysign(np.float32(2), x))


def test_exact_keeps_product_and_sum_apart(target: CpuTarget) -> None:
    x = np.full(16, 1 + 2.0**-12, np.float32)

    def residue(f: Any, v: Value) -> Value:
        with f.exact():
            return v * v - 1.0

    np.testing.assert_array_equal(each(target, residue, 16, x, out="f32"), x * x - 1)
    fused = each(target, lambda f, v: f.fma(v, v, -1.0), 16, x, out="f32")
    np.testing.assert_array_equal(fused, (x.astype(np.float64) ** 2 - 1).astype(np.float32))


def test_constants_fold() -> None:
    f = Module(NEON).function("k", [("n", "i64"), ("x", "f32")])
    n, x = f.arg("n"), f.arg("x")
    assert n + 0 is n and n * 1 is n and x * 1.0 is x and 0 + n is n and n // 1 is n
    assert (n * 0).const == 0 and (n % 1).const == 0 and (n & 0).const == 0
    assert (f.const("i64", 6) * 7 - 2).const == 40
    assert (f.const("i8", 100) + 100).const == -56
    assert (f.const("i8", -1) // 2).const == 127
    assert (f.const("i64", -7) / 2).const == -3 and f.const("i64", -7).srem(2).const == -1
    assert (f.const("f32", 0.1) + 0.2).const == np.float32(0.1) + np.float32(0.2)
    assert f.const("i64", 3).lt(5).const == 1 and f.imax(f.const("i64", 3), 9).const == 9
    assert f.floor_div(f.const("i64", -7), 2).const == -4 and f.floor_mod(f.const("i64", -7), 2).const == 1
    assert f.lines == []
    # none of these is an identity: NaN, -0.0 and division by zero must show up when the code runs
    assert (x * 0.0).const is None and (x + 0.0) is not x and (f.const("f32", 1.0) / 0.0).const is None
    assert (f.const("i64", 1) // 0).const is None


def test_misuse_is_refused() -> None:
    f = Module(NEON).function("k", [("n", "i64"), ("x", "f32"), ("h", "bf16"), ("p", "ptr")])
    n, x, h, p = (f.arg(name) for name in "nxhp")
    wrong: list[Callable[[], Any]] = [
        lambda: n + x,
        lambda: x % 2.0,
        lambda: h + 1.0,
        lambda: p + 1,
        lambda: bool(n.lt(3)),
        lambda: f.const("i32", 1.5),
        lambda: f.bitcast(n, f32),
        lambda: f.shuffle(n, None, [0, 0]),
        lambda: f.ret(n),
        lambda: Var(f, i32, n),
        lambda: f.ptr(p, x),
    ]
    for attempt in wrong:
        with pytest.raises(TypeError):
            attempt()
    with pytest.raises(ValueError, match="unknown type"):
        f.const("f31", 1)
    with pytest.raises(ValueError, match="step"), f.loop(0, n, 0):
        pass
    with pytest.raises(ValueError, match="empty"), f.loop_nonempty(3, 3):
        pass
    with pytest.raises(ValueError, match="already"):
        f.module.function("k")
    with pytest.raises(KeyError, match="neither"):
        f.call("unknown")
