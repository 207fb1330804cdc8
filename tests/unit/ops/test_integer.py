import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, tensor
from hagane.ir.registry import op_def
from hagane.ops.conv import conv_attrs
from tests.unit.ops.onnx_oracle import run_onnx

rng = np.random.default_rng(0)


@pytest.mark.parametrize("w_zero", [None, np.int8(-3), rng.integers(-9, 9, 5).astype(np.int8)])
@pytest.mark.parametrize("x_zero", [None, np.uint8(120)])
def test_matmul_agrees_with_onnx(x_zero, w_zero):
    x, w = rng.integers(0, 256, (2, 7, 9)).astype(np.uint8), rng.integers(-128, 128, (9, 5)).astype(np.int8)
    zeros = [None if z is None else np.asarray(z) for z in (x_zero, w_zero)]
    [expected] = run_onnx("MatMulInteger", [x, w, *zeros])
    found = op_def("matmul_integer").reference({}, x, w, *zeros)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.int32


def test_matmul_with_a_zero_point_per_row():
    x, w = rng.integers(0, 256, (7, 9)).astype(np.uint8), rng.integers(0, 256, (9, 5)).astype(np.uint8)
    zero = np.arange(7, dtype=np.uint8)
    expected = (x.astype(int) - zero[:, None]) @ w.astype(int)
    np.testing.assert_array_equal(op_def("matmul_integer").reference({}, x, w, zero), expected)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("pads", [(0, 0), (1, 2)])
def test_conv_agrees_with_onnx(group, pads):
    x = rng.integers(0, 256, (2, 4, 7, 8)).astype(np.uint8)
    w = rng.integers(-128, 128, (6, 4 // group, 3, 2)).astype(np.int8)
    zeros = [np.asarray(np.uint8(100)), np.asarray(np.int8(3))]
    expected = run_onnx("ConvInteger", [x, w, *zeros], group=group, pads=[*pads, *pads], strides=[2, 1])[0]
    attrs = conv_attrs(2, group, pads_begin=pads, pads_end=pads, strides=(2, 1))
    np.testing.assert_array_equal(op_def("conv_integer").reference(attrs, x, w, *zeros), expected)


def test_other_types_are_refused():
    builder = Builder(Graph())
    a, b = builder.input("a", tensor(DType.I32, 3, 4)), builder.input("b", tensor(DType.I8, 4, 3))
    with pytest.raises(ShapeError, match="matmul_integer takes i8 or u8"):
        builder.op("matmul_integer", a, b, None, None)
