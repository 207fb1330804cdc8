"""Resize against ONNX's own evaluator, and the index expressions of the common cases."""

from __future__ import annotations

from fractions import Fraction
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
from hagane.ir.scalar import Load, Scalar, children
from hagane.ops.resize_define import MODES, simplest
from tests.differential.evaluator import axis_symbols
from tests.unit.ops.onnx_oracle import run_onnx

TOLERANCE = 1e-5
"""ONNX's evaluator computes cubic weights in 32 bits; values are near 1."""

PLAIN = {
    "mode": "nearest",
    "coordinate_transformation_mode": "half_pixel",
    "nearest_mode": "round_prefer_floor",
    "cubic_coeff_a": -0.75,
    "exclude_outside": False,
    "extrapolation_value": 0.0,
    "antialias": False,
    "roi": None,
}


def _loads(scalar: Scalar) -> list[Load]:
    found = [scalar] if isinstance(scalar, Load) else []
    for child in children(scalar):
        found += _loads(child)
    return found


def _read_indices(
    shape: tuple[int | Expr, ...], scales: tuple[float | None, ...], sizes: tuple[Any, ...], **attrs: Any
) -> list[str]:
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, *shape))
    builder.op("resize", x, scales=scales, sizes=sizes, **(PLAIN | attrs))
    node: Node = builder.graph.nodes[-1]
    define = op_def("resize").define
    assert define is not None
    scalar = define(node, lambda k, at: Load(DType.F32, k, at), axis_symbols(node.output.shape), 0)
    return [", ".join(map(str, load.index)) for load in _loads(scalar)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "transform", ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
)
@pytest.mark.parametrize("target", [(8, 10), (3, 4), (5, 7), (4, 5)])
def test_sizes_agree_with_onnx(mode: str, transform: str, target: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 4, 5))
    for nearest in ("round_prefer_floor", "floor", "ceil", "round_prefer_ceil"):
        names = {"mode": mode, "coordinate_transformation_mode": transform, "nearest_mode": nearest}
        wanted = run_onnx("Resize", [x, None, None, np.array([1, 1, *target])], **names)[0]
        attrs = PLAIN | names | {"scales": (1.0, 1.0, None, None), "sizes": (1, 1, *target)}
        got = op_def("resize").reference(attrs, x)
        np.testing.assert_allclose(got, wanted, atol=TOLERANCE)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("scale", [0.6, 0.3, 2.5])
def test_antialiasing_agrees_with_onnx(mode: str, outside: bool, scale: float) -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 10, 12))
    scales = np.array([1, 1, scale, scale], np.float32)
    names = {"mode": mode, "antialias": 1, "exclude_outside": int(outside), "cubic_coeff_a": -0.5}
    wanted = run_onnx("Resize", [x, None, scales], **names)[0]
    sizes = {"scales": tuple(scales.tolist()), "sizes": wanted.shape}
    got = op_def("resize").reference(PLAIN | names | sizes, x)
    np.testing.assert_allclose(got, wanted, atol=TOLERANCE)


def test_doubling_needs_no_clamp_and_no_division() -> None:
    h = sym("H", 1)
    nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    expected = ["i0, i1, (i2 // 2), (i3 // 2)"]
    assert _read_indices((1, 3, h, 8), (1.0, 1.0, 2.0, 2.0), (1, 3, 2 * h, 16), **nearest) == [
        "0, i1, (i2 // 2), (i3 // 2)"
    ]
    # the default of ONNX, by sizes of symbolic extent
    found = _read_indices((2, 3, h, h), (1.0, 1.0, None, None), (2, 3, 2 * h, 2 * h))
    assert found == expected


def test_linear_reads_two_taps_of_each_axis() -> None:
    found = _read_indices((4, 8), (1.0, 2.0), (4, 16), mode="linear")
    assert found == ["i0, max(((i1 + 1) // 2) - 1, 0)", "i0, min(((i1 + 1) // 2), 7)"]


@pytest.mark.parametrize(
    ("scale", "fraction"), [(2.0, "2"), (0.5, "1/2"), (0.33333334, "1/3"), (1.7, "17/10"), (0.6, "3/5")]
)
def test_scales_are_simple_fractions(scale: float, fraction: str) -> None:
    assert simplest(scale) == Fraction(fraction)
    assert simplest(float(np.float32(scale))) == Fraction(fraction)


def test_downsampling_by_a_rounded_third_reads_every_third_element() -> None:
    attrs = PLAIN | {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    third = float(np.float32(1) / np.float32(3))
    got = op_def("resize").reference(attrs | {"scales": (third,), "sizes": (33,)}, np.arange(99.0))
    np.testing.assert_array_equal(got, np.arange(0, 99, 3))


def test_impossible_attributes_are_refused() -> None:
    with pytest.raises(ModelError, match="resize has no mode 'area'"):
        _read_indices((4, 8), (1.0, 2.0), (4, 16), mode="area")
    with pytest.raises(ShapeError, match="names 1 sizes for the 2 axes"):
        _read_indices((4, 8), (2.0,), (16,))
    with pytest.raises(ShapeError, match="a start and an end for each axis"):
        _read_indices((4, 8), (1.0, 2.0), (4, 16), coordinate_transformation_mode="tf_crop_and_resize")
