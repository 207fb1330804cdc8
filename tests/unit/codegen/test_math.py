"""Accuracy and special values of the elementary functions, against NumPy in f64 (f32) and in its own f64."""

from __future__ import annotations

import math as python_math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hagane.codegen.llvm import math
from hagane.codegen.llvm.compile import compile_module
from hagane.codegen.llvm.dsl import Module, vector
from hagane.codegen.llvm.link import link
from hagane.core.targets import CpuTarget
from tests.unit.codegen.native import NEON, V3, V4, Array, each

SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-40,
    -1e-40,
    1e-310,
    3e38,
    -3e38,
    88.72,
    709.7,
    0.5,
    -0.5,
]


def _sigmoid(x: Array) -> Array:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def _softplus(x: Array) -> Array:
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


# function: its reference, the interval of dense samples, and the bound in ulp of f32 (measured, rounded up)
FUNCTIONS: dict[str, tuple[Callable[[Array], Array], float, float, float]] = {
    "acos": (np.arccos, -1, 1, 1.2),
    "acosh": (np.arccosh, 1, 20, 2.2),
    "asin": (np.arcsin, -1, 1, 2.4),
    "asinh": (np.arcsinh, -10, 10, 1.8),
    "atan": (np.arctan, -10, 10, 1.4),
    "atanh": (np.arctanh, -1, 1, 2.2),
    "cos": (np.cos, -20, 20, 1.6),
    "cosh": (np.cosh, -89.4, 89.4, 1.5),
    "erf": (np.vectorize(python_math.erf), -4.2, 4.2, 1.9),
    "exp": (np.exp, -104, 89, 1.0),
    "exp2": (np.exp2, -150, 128, 0.9),
    "expm1": (np.expm1, -20, 89, 1.5),
    "log": (np.log, 0, 10, 0.9),
    "log1p": (np.log1p, -1, 10, 1.5),
    "sigmoid": (_sigmoid, -104, 30, 2.4),
    "sin": (np.sin, -20, 20, 1.6),
    "sinh": (np.sinh, -89.4, 89.4, 1.6),
    "softplus": (_softplus, -104, 30, 1.7),
    "tan": (np.tan, -20, 20, 3.7),
    "tanh": (np.tanh, -10, 10, 2.6),
}
CASES = pytest.mark.parametrize("name", FUNCTIONS)


def _samples(dtype: Any, low: float, high: float, count: int) -> Array:
    """Dense in the interval, over all bit patterns, and spread over magnitudes."""
    rng = np.random.default_rng(0)
    if dtype == np.float32:
        patterns = rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32).astype(np.float64)
    else:
        patterns = rng.integers(0, 2**64, count, dtype=np.uint64).view(np.float64)
    spread = rng.choice([-1, 1], count) * 10 ** rng.uniform(-12, 3, count)
    return np.concatenate([np.linspace(low, high, count), patterns, spread, SPECIAL]).astype(dtype)


def _ulps(got: Array, want: Array) -> Array:
    """Errors of f32 in units of its last place; infinite where NaN or inf don't agree."""
    rounded = want.astype(np.float32)
    unit = np.spacing(np.minimum(np.abs(rounded), np.float32(3.4e38))).astype(np.float64)
    errors = np.abs(got.astype(np.float64) - want) / np.maximum(unit, 2.0**-149)
    same = (np.isnan(got) & np.isnan(want)) | (got == rounded)
    return np.where(same, 0, np.where(np.isnan(errors), np.inf, errors))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("lanes", [16, 8, 1])
@CASES
def test_f32(target: CpuTarget, name: str, lanes: int) -> None:
    reference, low, high, bound = FUNCTIONS[name]
    x = _samples(np.float32, low, high, 1 << (15 if name != "erf" else 13))
    want = reference(x.astype(np.float64))
    got = each(target, lambda f, v: getattr(math, name)(v), lanes, x, out="f32")
    errors = _ulps(got, want)
    worst = int(errors.argmax())
    assert errors[worst] <= bound, f"{name}({x[worst]!r}) = {got[worst]!r}, not {want[worst]!r}"
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("lanes", [8, 4, 1])
@CASES
def test_f64(target: CpuTarget, name: str, lanes: int) -> None:
    reference, low, high, _ = FUNCTIONS[name]
    x = _samples(np.float64, low, high, 1 << 12)
    if name in ("sin", "cos", "tan"):
        x = np.where(np.abs(x) < 1e9, x, np.where(np.isfinite(x), 1.0, x))
    want = reference(x)
    got = each(target, lambda f, v: getattr(math, name)(v), lanes, x, out="f64")
    errors = np.abs(got - want) / np.maximum(np.abs(want), 1e-300)
    same = (np.isnan(got) & np.isnan(want)) | (got == want)
    errors = np.where(same, 0, np.where(np.isnan(errors), np.inf, errors))
    worst = int(errors.argmax())
    assert errors[worst] <= 1e-15, f"{name}({x[worst]!r}) = {got[worst]!r}, not {want[worst]!r}"
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


def test_f64_sine_of_a_huge_number_stays_bounded(target: CpuTarget) -> None:
    x = np.array([1e12, 1e15, 1e18, 1e22, 1e100, 1e300, -1e300, 1.7e308])
    for function in (math.sin, math.cos):
        got = each(target, lambda f, v, op=function: op(v), 8, x, out="f64")
        assert (np.abs(got) <= 1).all()


def test_monotone_functions_stay_within_their_limits(target: CpuTarget) -> None:
    x = np.linspace(-30, 30, 1 << 14).astype(np.float32)
    for name, low, high in [("tanh", -1, 1), ("erf", -1, 1), ("sigmoid", 0, 1)]:
        got = each(target, lambda f, v, n=name: getattr(math, n)(v), 16, x, out="f32")
        assert got.min() >= low and got.max() <= high


def _pairs(dtype: Any) -> tuple[Array, Array]:
    """All pairs of special values, then random ones."""
    special = [0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30, -1e-40]
    special += [7, -7, 16777216, -16777217, 1.5, -2.5, 255, 1 + 2.0**-23, 1 - 2.0**-24, 0.1, 8e-46]
    grid_x, grid_y = (a.ravel() for a in np.meshgrid(special, special))
    rng = np.random.default_rng(0)
    n = 1 << 13
    wide = rng.choice([-1, 1], n) * 10 ** rng.uniform(-6, 6, n)
    exponents = rng.choice([-1, 1], n) * rng.uniform(0, 12, n)
    whole = np.where(rng.random(n) < 0.5, exponents, np.rint(exponents))
    x = np.concatenate([grid_x, wide, 10 ** rng.uniform(-0.3, 0.3, n)])
    y = np.concatenate([grid_y, whole, rng.uniform(-600, 600, n)])
    return x.astype(dtype), y.astype(dtype)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("lanes", [16, 8, 1])
def test_pow(target: CpuTarget, lanes: int) -> None:
    x, y = _pairs(np.float32)
    want = np.power(x.astype(np.float64), y.astype(np.float64))
    got = each(target, lambda f, a, b: math.pow(a, b), lanes, x, y, out="f32")
    assert _ulps(got, want).max() <= 0.51
    np.testing.assert_array_equal(
        np.signbit(got), np.where(np.isnan(want), np.signbit(got), np.signbit(want))
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("lanes", [8, 1])
def test_pow_f64(target: CpuTarget, lanes: int) -> None:
    x, y = _pairs(np.float64)
    want = np.power(x, y)
    got = each(target, lambda f, a, b: math.pow(a, b), lanes, x, y, out="f64")
    np.testing.assert_allclose(got, want, rtol=5e-15)
    np.testing.assert_array_equal(
        np.signbit(got), np.where(np.isnan(want), np.signbit(got), np.signbit(want))
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("exponent", [-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 0.75])
def test_pow_by_a_constant(target: CpuTarget, exponent: float) -> None:
    x = np.concatenate([np.linspace(0.1, 10, 64), [0.0, -0.0, np.inf, -np.inf, np.nan, -2, 1, -1] * 2])
    x = x.astype(np.float32)
    # an array of exponents: for a scalar NumPy takes the square root, which differs from C at -0 and -inf
    want = np.power(x.astype(np.float64), np.full(len(x), exponent))
    got = each(target, lambda f, a: math.pow(a, f.const(a.type, exponent)), 16, x, out="f32")
    assert _ulps(got, want).max() <= 1.2
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["fmod", "mod"])
@pytest.mark.parametrize(("dtype", "kind"), [(np.float32, "f32"), (np.float64, "f64")])
@pytest.mark.parametrize("lanes", [16, 1])
def test_remainders_are_exact(target: CpuTarget, name: str, dtype: Any, kind: str, lanes: int) -> None:
    x, y = _pairs(dtype)
    want = getattr(np, name)(x, y)
    got = each(target, lambda f, a, b: getattr(math, name)(a, b), lanes, x, y, out=kind)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(
        np.signbit(got), np.where(np.isnan(want), np.signbit(got), np.signbit(want))
    )


def test_int_pow(target: CpuTarget) -> None:
    x, y = (a.ravel().astype(np.int32) for a in np.meshgrid(np.arange(-8, 8), np.arange(-4, 10)))
    got = each(target, lambda f, a, b: math.int_pow(a, b), 8, x, y, out="i32")
    whole = [
        a**b if b >= 0 else (a**-b if abs(a) == 1 else 0) for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(got, whole)


def test_simple_functions(target: CpuTarget) -> None:
    x = np.array([0.0, -0.0, 3, -2.5, np.inf, -np.inf, np.nan, 1e-40], np.float32)
    np.testing.assert_array_equal(each(target, lambda f, v: math.sign(v), 8, x, out="f32"), np.sign(x))
    np.testing.assert_array_equal(each(target, lambda f, v: math.is_nan(v), 8, x, out="i1"), np.isnan(x))
    np.testing.assert_array_equal(each(target, lambda f, v: math.is_inf(v), 8, x, out="i1"), np.isinf(x))
    got = each(target, lambda f, v: math.is_inf(v, positive=False), 8, x, out="i1")
    np.testing.assert_array_equal(got, np.isneginf(x))
    assert not each(target, lambda f, v: math.is_inf(v, False, False), 8, x, out="i1").any()
    got = each(target, lambda f, v: math.round_half_even(v), 8, x, out="f32")
    np.testing.assert_array_equal(got, np.rint(x))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(each(target, lambda f, v: math.reciprocal(v), 8, x, out="f32"), 1 / x)
        np.testing.assert_array_equal(each(target, lambda f, v: math.sqrt(v), 8, x, out="f32"), np.sqrt(x))
    i = np.array([5, -7, 0, 2**31 - 1], np.int32)
    np.testing.assert_array_equal(each(target, lambda f, v: math.sign(v), 4, i, out="i32"), np.sign(i))


def test_narrow_types_are_refused() -> None:
    f = Module(NEON).function("k", [("h", "f16")])
    with pytest.raises(TypeError, match="f32 or f64"):
        math.exp(f.arg("h"))


@pytest.mark.parametrize("compiled", [V4, V3, NEON], ids=["v4", "v3", "neon"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_nothing_is_called_outside(compiled: CpuTarget, kind: str) -> None:
    """LLVM turns what an instruction set lacks into calls of functions that no loader provides."""
    module = Module(compiled)
    functions = [(name, 1) for name in FUNCTIONS] + [
        ("pow", 2),
        ("mod", 2),
        ("sign", 1),
        ("round_half_even", 1),
    ]
    for name, arity in functions:
        for lanes in (1, module.lanes(kind)):
            f = module.function(f"{name}{lanes}", [("a", "ptr")])
            args = [f.load(vector(lanes, kind), f.arg("a"), 64 * i) for i in range(arity)]
            f.store(getattr(math, name)(*args), f.arg("a"))
    blob = link([compile_module(module.text(), compiled)], ["exp1"])
    assert blob.imports == (("fmod",) if kind == "f64" else ())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@CASES
def test_a_result_does_not_depend_on_the_number_of_lanes(target: CpuTarget, name: str) -> None:
    _, low, high, _ = FUNCTIONS[name]
    x = np.resize(_samples(np.float32, low, high, 1 << 10), 1 << 12)
    one, *others = [
        each(target, lambda f, v: getattr(math, name)(v), n, x, out="f32") for n in (1, 2, 8, 16, 32)
    ]
    for other in others:
        np.testing.assert_array_equal(one, other)
