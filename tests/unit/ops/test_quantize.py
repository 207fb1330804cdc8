import ml_dtypes
import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, tensor
from hagane.ir.registry import op_def
from tests.unit.ops.onnx_oracle import run_onnx

rng = np.random.default_rng(0)
X = rng.uniform(-40, 40, (3, 4, 10)).astype(np.float32)

PARAMETERS = [
    (1, None, np.float32(0.3), np.uint8(120)),
    (1, None, rng.uniform(0.1, 1, 4).astype(np.float32), rng.integers(0, 255, 4).astype(np.uint8)),
    (-1, None, rng.uniform(0.1, 1, 10).astype(np.float32), rng.integers(-99, 99, 10).astype(np.int8)),
    (
        2,
        4,
        rng.uniform(0.1, 1, (3, 4, 3)).astype(np.float32),
        rng.integers(-99, 99, (3, 4, 3)).astype(np.int8),
    ),
]


def _dtype(array):
    return DType("u8" if array.dtype == np.uint8 else "i8")


@pytest.mark.parametrize(("axis", "block", "scale", "zero"), PARAMETERS)
def test_quantize_agrees_with_onnx(axis, block, scale, zero):
    scale, zero = np.asarray(scale), np.asarray(zero)
    [expected] = run_onnx("QuantizeLinear", [X, scale, zero], axis=axis, block_size=block or 0)
    attrs = {"axis": axis, "to": _dtype(zero), "block": block}
    found = op_def("quantize").reference(attrs, X.astype(np.float64), scale.astype(np.float64), zero)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


@pytest.mark.parametrize(("axis", "block", "scale", "zero"), PARAMETERS)
def test_dequantize_agrees_with_onnx(axis, block, scale, zero):
    scale, zero = np.asarray(scale), np.asarray(zero)
    x = rng.integers(0, 127, X.shape).astype(zero.dtype)
    [expected] = run_onnx("DequantizeLinear", [x, scale, zero], axis=axis, block_size=block or 0)
    attrs = {"axis": axis, "to": DType.F32, "block": block}
    found = op_def("dequantize").reference(attrs, x, scale.astype(np.float64), zero)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_ties_go_to_even_and_ends_saturate():
    x = np.array([0.5, 1.5, -0.5, -1.5, 1e9, -1e9])
    found = op_def("quantize").reference({"axis": 0, "to": DType.I8}, x, np.float64(1))
    np.testing.assert_array_equal(found, [0, 2, 0, -2, 127, -128])


def test_four_bits():
    found = op_def("quantize").reference({"axis": 0, "to": DType.I4}, np.array([-20.0, 3, 9]), np.float64(1))
    assert found.dtype == ml_dtypes.int4
    np.testing.assert_array_equal(found.astype(np.int8), [-8, 3, 7])


def test_float8_saturates():
    x, attrs = np.array([1e6, -1e6, 1.0]), {"axis": 0, "to": DType.F8E5M2}
    np.testing.assert_array_equal(op_def("quantize").reference(attrs, x, np.float64(1)), [57344, -57344, 1])


def test_mistakes():
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, 3, 4))
    scale = builder.input("s", tensor(DType.F32, 3))
    with pytest.raises(ShapeError, match="wants 4 scales"):
        builder.op("quantize", x, scale, None, axis=1, to=DType.I8, block=None)
    with pytest.raises(ShapeError, match="in blocks wants a scale of the rank"):
        builder.op("quantize", x, scale, None, axis=1, to=DType.I8, block=2)
    with pytest.raises(ShapeError, match="dequantize gives floats"):
        builder.op("dequantize", x, scale, None, axis=0, to=DType.I8, block=None)
