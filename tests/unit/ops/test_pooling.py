import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.symbolic import sym
from hagane.ir.builder import Builder
from hagane.ir.graph import DType, Graph, tensor
from hagane.ir.registry import op_def
from hagane.ops.pooling import pool_attrs
from tests.unit.ops.onnx_oracle import run_onnx

CASES = [
    pool_attrs(3, 3, strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1)),
    pool_attrs(3, 2, strides=(2, 3), ceil_mode=True),
    pool_attrs(3, 3, strides=(3, 2), pads_begin=(1, 0), pads_end=(0, 1), ceil_mode=True),
    pool_attrs(2, 2, dilations=(2, 3), pads_begin=(1, 1), pads_end=(0, 1)),
    pool_attrs(2, 2, strides=(3, 3), ceil_mode=True, pads_begin=(1, 1), pads_end=(1, 1)),
]


def _onnx_attrs(attrs):
    return {
        "kernel_shape": attrs["kernel"],
        "strides": attrs["strides"],
        "dilations": attrs["dilations"],
        "pads": [*attrs["pads_begin"], *attrs["pads_end"]],
        "ceil_mode": int(attrs["ceil_mode"]),
    }


@pytest.mark.parametrize("attrs", CASES)
@pytest.mark.parametrize("order", [0, 1])
def test_max_pool_agrees_with_onnx(attrs, order):
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 10))
    expected, indices = run_onnx("MaxPool", [x], 2, storage_order=order, **_onnx_attrs(attrs))
    y, found = op_def("max_pool").reference(attrs | {"indices": True, "storage_order": order}, x)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(found, indices)


# ONNX's evaluator puts half of what ceil_mode adds in front; PyTorch and ONNX Runtime put it at the end.
@pytest.mark.parametrize("attrs", [c for c in CASES if not c["ceil_mode"]])
@pytest.mark.parametrize("with_padding", [False, True])
def test_avg_pool_agrees_with_onnx(attrs, with_padding):
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 10))
    [expected] = run_onnx("AveragePool", [x], count_include_pad=int(with_padding), **_onnx_attrs(attrs))
    found = op_def("avg_pool").reference(attrs | {"count_include_pad": with_padding}, x)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_avg_pool_in_ceil_mode_counts_padding_but_not_what_lies_beyond():
    x = np.ones((1, 1, 4))
    attrs = pool_attrs(3, strides=(2,), pads_begin=(1,), pads_end=(1,), ceil_mode=True)
    inside = op_def("avg_pool").reference(attrs | {"count_include_pad": False}, x)
    np.testing.assert_allclose(inside, [[[1, 1, 1]]])
    padded = op_def("avg_pool").reference(attrs | {"count_include_pad": True}, x)
    # the last window covers one element, one of padding and one beyond it
    np.testing.assert_allclose(padded, [[[2 / 3, 1, 1 / 2]]])


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool_agrees_with_onnx(p):
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 10))
    attrs = CASES[0]
    [expected] = run_onnx("LpPool", [x], p=p, **_onnx_attrs(attrs))
    np.testing.assert_allclose(op_def("lp_pool").reference(attrs | {"p": p}, x), expected, atol=1e-12)


def test_nan_wins_and_padding_does_not():
    x = np.full((1, 1, 4), -np.inf)
    x[0, 0, 3] = np.nan
    y, indices = op_def("max_pool").reference(pool_attrs(2, pads_begin=(1,), indices=True), x)
    np.testing.assert_array_equal(y, [[[-np.inf, -np.inf, -np.inf, np.nan]]])
    assert indices.min() >= 0 and indices.max() <= 3


def _output(ceil_mode, height):
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, 1, 3, height))
    return builder.op("max_pool", x, **pool_attrs(3, strides=(2,), ceil_mode=ceil_mode))


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_symbolic_output_dims_agree_with_constant_ones(ceil_mode):
    [symbolic] = _output(ceil_mode, sym("H", 3)).shape[2:]
    for height in range(3, 12):
        assert symbolic.evaluate({"H": height}) == _output(ceil_mode, height).shape[2].value
