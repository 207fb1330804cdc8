"""Casts: truncation, wrap-around, saturation, and the content of shapes that passes through."""

from __future__ import annotations

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.core.symbolic import sym
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, tensor
from hagane.ops.primitives import NUMPY, PRIMITIVES, apply, cast_array


def test_floats_truncate_towards_zero_and_wrap() -> None:
    x = np.array([-1.9, -0.5, 0.9, 1.5, 300.7])
    assert cast_array(x, DType.I32).tolist() == [-1, 0, 0, 1, 300]
    assert cast_array(x, DType.U8).tolist() == [255, 0, 0, 1, 44]
    assert cast_array(np.array([2.0**63]), DType.U64).tolist() == [2**63]


def test_integers_wrap_around() -> None:
    x = np.array([-129, -1, 127, 128, 300])
    assert cast_array(x, DType.I8).tolist() == [127, -1, 127, -128, 44]
    assert cast_array(x, DType.U4).astype(int).tolist() == [15, 15, 15, 0, 12]
    assert cast_array(x, DType.I4).astype(int).tolist() == [-1, -1, -1, 0, -4]


@pytest.mark.parametrize(
    ("dtype", "limit"),
    [(DType.F8E4M3, 448), (DType.F8E5M2, 57344), (DType.F8E4M3FNUZ, 240), (DType.F4E2M1, 6)],
)
def test_narrow_floats_saturate(dtype: DType, limit: float) -> None:
    x = np.array([np.inf, -np.inf, 1e9, limit * 1.01, 1.0])
    assert cast_array(x, dtype).astype(np.float64).tolist() == [limit, -limit, limit, limit, 1.0]


def test_bool_is_whatever_is_not_zero() -> None:
    assert cast_array(np.array([0.0, -0.0, 0.1, np.nan]), DType.BOOL).tolist() == [False, False, True, True]


def test_half_rounds_to_even() -> None:
    assert cast_array(np.array([2049.0, 65519.0, 65520.0]), DType.F16).tolist() == [2048.0, 65504.0, np.inf]


def test_dims_pass_through_integer_types_only() -> None:
    builder = Builder(Graph())
    values = builder.op("shape_values", values=(sym("S"), 7))
    assert builder.op("cast", values, to=DType.I32).elements == (sym("S"), 7)
    assert builder.op("cast", values, to=DType.F32).elements is None
    assert builder.op("cast", values, to=DType.I8).elements is None  # S may be above 127


def test_strings_are_refused() -> None:
    builder = Builder(Graph())
    with pytest.raises(ModelError, match="cast takes numbers and bool, not f32 to str"):
        builder.op("cast", builder.input("x", tensor(DType.F32, 3)), to=DType.STRING)


def test_every_primitive_has_a_meaning() -> None:
    assert set(NUMPY) | {"cast"} == PRIMITIVES
    seven, minus_seven, two = np.array([7]), np.array([-7]), np.array([2])
    assert apply("div", minus_seven, two).tolist() == [-3]
    assert apply("mod", minus_seven, two).tolist() == [1]
    assert apply("fmod", minus_seven, two).tolist() == [-1]
    assert apply("div", np.array([7.0]), np.array([2.0])).tolist() == [3.5]
    assert apply("div", seven, np.array([0])).tolist() == [0]
    assert apply("shift_left", np.array([1], np.uint8), np.array([9], np.uint8)).tolist() == [0]
    assert apply("pow", two, np.array([-1])).tolist() == [0]
