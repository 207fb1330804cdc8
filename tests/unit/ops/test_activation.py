"""Activations against ONNX's own evaluator, at special values and for integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.errors import ModelError
from hagane.ir.builder import single_op_graph
from hagane.ir.registry import op_def
from tests.unit.ops.onnx_oracle import run_onnx

X = np.array([-1e30, -20, -3.5, -1, -0.3, -0.0, 0.0, 0.2, 1, 2.5, 20, 1e30, np.inf, np.nan])


@pytest.mark.parametrize(
    ("op", "attrs", "onnx_op", "onnx_attrs"),
    [
        ("relu", {}, "Relu", {}),
        ("gelu", {"approx": "none"}, "Gelu", {"approximate": "none"}),
        ("gelu", {"approx": "tanh"}, "Gelu", {"approximate": "tanh"}),
        ("leaky_relu", {"alpha": 0.25}, "LeakyRelu", {"alpha": 0.25}),
        ("elu", {"alpha": 0.5}, "Elu", {"alpha": 0.5}),
        ("selu", {"alpha": 2.0, "gamma": 3.0}, "Selu", {"alpha": 2.0, "gamma": 3.0}),
        ("celu", {"alpha": 0.5}, "Celu", {"alpha": 0.5}),
        ("hard_sigmoid", {"alpha": 0.25, "beta": 0.5}, "HardSigmoid", {"alpha": 0.25, "beta": 0.5}),
        ("hard_swish", {}, "HardSwish", {}),
        ("thresholded_relu", {"alpha": 2.0}, "ThresholdedRelu", {"alpha": 2.0}),
        ("softsign", {}, "Softsign", {}),
        ("softplus", {}, "Softplus", {}),
        ("sigmoid", {}, "Sigmoid", {}),
        ("round", {}, "Round", {}),
        ("erf", {}, "Erf", {}),
    ],
)
def test_agrees_with_onnx(op: str, attrs: dict[str, Any], onnx_op: str, onnx_attrs: dict[str, Any]) -> None:
    x = X[:-2] if op in ("gelu", "softsign") else X
    with np.errstate(all="ignore"):
        wanted = run_onnx(onnx_op, [x], **onnx_attrs)[0]
    np.testing.assert_allclose(op_def(op).reference(attrs, x), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("op", ["mish", "silu", "hard_swish", "relu", "softplus", "sigmoid"])
def test_nan_goes_through_and_large_values_stay_finite(op: str) -> None:
    result = op_def(op).reference({}, X)
    assert np.isnan(result[-1])
    assert np.isfinite(result[:-2]).all()


def test_clip_takes_the_upper_limit_where_limits_cross() -> None:
    np.testing.assert_array_equal(
        op_def("clip").reference({"lo": 1.0, "hi": -1.0}, X[:-1]), np.full(13, -1.0)
    )
    i = np.array([-5, 0, 5], np.int8)
    result = op_def("clip").reference({"lo": -1, "hi": 3}, i)
    assert result.dtype == np.int8 and result.tolist() == [-1, 0, 3]


def test_integers_are_refused_where_they_make_no_sense() -> None:
    with pytest.raises(ModelError, match="gelu takes floating-point elements, not i64"):
        single_op_graph("gelu", (np.arange(3),), {"approx": "none"})
    with pytest.raises(ModelError, match="not takes bool, not i64"):
        single_op_graph("not", (np.arange(3),), {})
    with pytest.raises(ModelError, match="bit_not takes integers, not f32"):
        single_op_graph("bit_not", (np.ones(3, np.float32),), {})
