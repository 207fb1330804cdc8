"""Every code of the 8-bit and 4-bit types is read right, and whatever is written rounds and saturates."""

from __future__ import annotations

import numpy as np
import pytest

from hagane.core.dtypes import DType
from hagane.kernels.llvm import narrow
from hagane.ops.primitives import SATURATING, cast_array
from tests.unit.codegen.native import V3, V4, each

CODES = np.arange(256, dtype=np.uint8)


def _numbers(dtype: DType) -> np.ndarray:
    """All numbers of the type, the middles between them, what lies next to both, and others."""
    own = np.unique(CODES.view(dtype.np).astype(np.float32))
    own = own[np.isfinite(own)]
    exact = np.concatenate([own, (own[1:] + own[:-1]) / 2, [SATURATING[dtype] * 1.01, -0.0]])
    near = [np.nextafter(exact, np.float32(side), dtype=np.float32) for side in (-np.inf, np.inf)]
    rng = np.random.default_rng(0)
    others = (rng.standard_normal(4096) * 10.0 ** rng.integers(-12, 8, 4096)).astype(np.float32)
    special = np.array([np.nan, np.inf, -np.inf, 1e-45, -1e-45, 3.4e38], np.float32)
    return np.concatenate([exact, *near, others, special]).astype(np.float32)


@pytest.mark.parametrize("target", [V4, V3], ids=["v4", "v3"])
@pytest.mark.parametrize("dtype", narrow.REGISTERS, ids=str)
@pytest.mark.parametrize("lanes", [1, 16])
def test_every_code_is_read(target, dtype, lanes):
    out = narrow.REGISTERS[dtype]
    codes = np.resize(CODES[: 1 << dtype.bits], 256)
    got = each(target, lambda f, v: narrow.decode(f, v, dtype), lanes, codes.view(np.int8), out=out)
    want = codes.view(dtype.np).astype(got.dtype)
    np.testing.assert_array_equal(got, want)
    if dtype.is_float:
        np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("target", [V4, V3], ids=["v4", "v3"])
@pytest.mark.parametrize("dtype", [d for d in narrow.REGISTERS if d.is_float], ids=str)
@pytest.mark.parametrize("lanes", [1, 16])
def test_floats_round_and_saturate(target, dtype, lanes):
    x = np.resize(_numbers(dtype), 8192)
    got = each(target, lambda f, v: narrow.rounded(f, v, dtype), lanes, x, out="f32")
    want = cast_array(x, dtype)
    np.testing.assert_array_equal(got, want.astype(np.float32))
    stored = each(target, lambda f, v: narrow.encode(f, v, dtype), lanes, x, out="i8").view(np.uint8)
    finite = np.isfinite(x)
    np.testing.assert_array_equal(stored[finite], want[finite].view(np.uint8))
    infinite = stored[np.isinf(x)].view(dtype.np).astype(np.float32)
    kept = np.inf if dtype is DType.F8E5M2 else SATURATING[dtype]
    np.testing.assert_array_equal(np.abs(infinite), np.full_like(infinite, kept))


@pytest.mark.parametrize("dtype", [d for d in narrow.REGISTERS if d.is_int], ids=str)
def test_integers_wrap_around(dtype):
    got = each(V3, lambda f, v: narrow.encode(f, v, dtype), 16, CODES.view(np.int8), out="i8")
    np.testing.assert_array_equal(got.view(dtype.np), cast_array(CODES, dtype))
    kept = each(V3, lambda f, v: narrow.wrap(f, v, dtype), 16, CODES.view(np.int8), out="i8")
    np.testing.assert_array_equal(kept, cast_array(CODES, dtype).astype(np.int8))
