from __future__ import annotations

import numpy as np
import pytest

from hagane.codegen.llvm.compile import compile_module
from hagane.codegen.llvm.dsl import Module, vector
from hagane.codegen.llvm.link import link
from hagane.core.targets import CpuTarget
from tests.unit.codegen.native import DTYPES, NEON, V3, V4, V4_ALL, Array, each

LANES = pytest.mark.parametrize("lanes", [1, 4, 16])


def _samples() -> Array:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**64, 4096, dtype=np.uint64).view(np.float64)
    spread = rng.normal(size=4096) * 10.0 ** rng.integers(-45, 40, 4096)
    near_ties = (np.arange(4096) / 2048 + 1) * (1 + 2.0**-40)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 65519.999, 65520.0, 1e-45, 2.0**-24, 2.0**-25, 2.0**-133]
    return np.concatenate([bits, spread, near_ties, special, [1.0] * 5])


def _round_to_odd(x: Array) -> Array:
    """f64 to f32 so that rounding on to bf16 rounds once; ml_dtypes rounds twice."""
    single = x.astype(np.float32)
    bits = single.view(np.int32).copy()
    inexact = (single.astype(np.float64) != x) & ~np.isnan(x) & (bits & 1 == 0)
    bits += np.where(inexact, np.where((x > single) ^ (x < 0), 1, -1), 0).astype(np.int32)
    return bits.view(np.float32)


@LANES
@pytest.mark.parametrize("source", ["f64", "f32", "f16", "bf16"])
def test_float_to_float_rounds_once(target: CpuTarget, lanes: int, source: str) -> None:
    with np.errstate(all="ignore"):
        x = _samples().astype(DTYPES[source])
        for result in ("f64", "f32", "f16", "bf16"):
            got = each(target, lambda f, v, r=result: f.cast(v, r), lanes, x, out=result)
            exact = _round_to_odd(x) if (source, result) == ("f64", "bf16") else x
            want = exact.astype(DTYPES[result])
            np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64), result)
            np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


@LANES
def test_integer_casts(target: CpuTarget, lanes: int) -> None:
    rng = np.random.default_rng(0)
    x64 = rng.integers(-(2**63), 2**63 - 1, 256, dtype=np.int64) >> np.arange(256) % 63
    with np.errstate(all="ignore"):
        for source in ("i1", "i8", "i16", "i32", "i64"):
            x = x64.astype(DTYPES[source])
            for result in DTYPES:
                got = each(target, lambda f, v, r=result: f.cast(v, r), lanes, x, out=result)
                exact = _round_to_odd(x.astype(np.float64)) if result == "bf16" else x
                np.testing.assert_array_equal(got, exact.astype(DTYPES[result]), f"{source} {result}")


def test_unsigned_casts(target: CpuTarget) -> None:
    x = np.arange(-128, 128).astype(np.int8)
    for result in ("i32", "f32"):
        got = each(target, lambda f, v, r=result: f.cast(v, r, signed=False), 16, x, out=result)
        np.testing.assert_array_equal(got, x.view(np.uint8))
    y = np.linspace(0, 4e9, 256).astype(np.float32)
    got = each(target, lambda f, v: f.cast(v, "i32", signed=False), 16, y, out="i32")
    np.testing.assert_array_equal(got.view(np.uint32), y.astype(np.uint32))


@LANES
def test_float_to_integer(target: CpuTarget, lanes: int) -> None:
    x = np.concatenate([np.linspace(-200, 300, 256), [0.5, -0.5, -0.0, 1e-40] * 4]).astype(np.float32)
    for kind in ("i8", "i16", "i32", "i64", "i1"):
        got = each(target, lambda f, v, k=kind: f.cast(v, k), lanes, x, out=kind)
        want = x != 0 if kind == "i1" else x.astype(np.int64).astype(DTYPES[kind])
        np.testing.assert_array_equal(got, want)
    wild = np.array([np.nan, np.inf, -np.inf, 1e30] * 4, np.float32)
    got = each(target, lambda f, v: f.cast(v, "i32", saturate=True), lanes, wild, out="i32")
    np.testing.assert_array_equal(got[:4], [0, 2**31 - 1, -(2**31), 2**31 - 1])


def test_native_bf16_differs_in_denormals_only(target: CpuTarget) -> None:
    with np.errstate(all="ignore"):
        x = _samples().astype(np.float32)
    got = each(target, lambda f, v: f.narrow_bf16_native(v), 16, x, out="bf16").astype(np.float32)
    want = x.astype(DTYPES["bf16"]).astype(np.float32)
    normal = ~(np.abs(x) < 2.0**-126)
    np.testing.assert_array_equal(got[normal], want[normal])


@pytest.mark.parametrize("compiled", [V4_ALL, V4, V3, NEON], ids=["v4-all", "v4", "v3", "neon"])
@pytest.mark.parametrize("lanes", [1, 8, 64])
def test_no_cast_calls_a_library(compiled: CpuTarget, lanes: int) -> None:
    module = Module(compiled)
    f = module.function("k", [("a", "ptr")])
    for source in DTYPES:
        for result in DTYPES:
            value = f.load(vector(lanes, source), f.arg("a"))
            f.store(f.cast(value, result), f.arg("a"))
            f.store(f.cast(value, result, signed=False), f.arg("a"))
            if source[0] != "i" and result[0] == "i" and result != "i1":
                f.store(f.cast(value, result, saturate=True), f.arg("a"))
    assert link([compile_module(module.text(), compiled)], ["k"]).imports == ()
