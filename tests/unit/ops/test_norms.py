import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.errors import ShapeError
from hagane.ir.builder import Builder
from hagane.ir.graph import DType, Graph, tensor
from hagane.ir.registry import op_def
from tests.unit.ops.onnx_oracle import run_onnx

rng = np.random.default_rng(0)


def _normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def _close(op, attrs, inputs, expected):
    wide = [a.astype(np.float64) for a in inputs]
    np.testing.assert_allclose(op_def(op).reference(attrs, *wide), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis, shape", [(-1, (5,)), (1, (4, 5))])
def test_layer_norm_agrees_with_onnx(axis, shape):
    inputs = [_normal(3, 4, 5), _normal(*shape), _normal(*shape)]
    [expected] = run_onnx("LayerNormalization", inputs, axis=axis, epsilon=1e-3)
    _close("layer_norm", {"axis": axis, "eps": 1e-3}, inputs, expected)


def test_rms_norm_agrees_with_onnx():
    inputs = [_normal(3, 4, 5), _normal(5)]
    [expected] = run_onnx("RMSNormalization", inputs, opset=23, axis=-1, epsilon=1e-3)
    _close("rms_norm", {"axis": -1, "eps": 1e-3}, inputs, expected)


def test_instance_norm_agrees_with_onnx():
    inputs = [_normal(2, 3, 4, 5), _normal(3), _normal(3)]
    [expected] = run_onnx("InstanceNormalization", inputs, epsilon=1e-3)
    _close("instance_norm", {"eps": 1e-3}, inputs, expected)


def test_group_norm_agrees_with_onnx():
    inputs = [_normal(2, 6, 4, 5), _normal(6), _normal(6)]
    [expected] = run_onnx("GroupNormalization", inputs, num_groups=3, epsilon=1e-3)
    _close("group_norm", {"groups": 3, "eps": 1e-3}, inputs, expected)


def test_batch_norm_agrees_with_onnx():
    inputs = [_normal(2, 3, 4, 5), _normal(3), _normal(3), _normal(3), np.abs(_normal(3))]
    [expected] = run_onnx("BatchNormalization", inputs, epsilon=1e-3)
    _close("batch_norm", {"eps": 1e-3}, inputs, expected)


def test_lp_norm():
    x = np.array([[3.0, -4.0], [0.0, 0.0]])
    np.testing.assert_allclose(op_def("lp_norm").reference({"axis": 1, "p": 2}, x), [[0.6, -0.8], [0, 0]])
    np.testing.assert_allclose(op_def("lp_norm").reference({"axis": 1, "p": 1}, x), [[3 / 7, -4 / 7], [0, 0]])


@pytest.mark.parametrize("size", [3, 4, 5])
def test_lrn_agrees_with_onnx(size):
    x = _normal(7, 7, 2, 3)  # ONNX's evaluator counts channels by the batch size
    [expected] = run_onnx("LRN", [x], size=size, alpha=0.2, beta=0.6, bias=1.5)
    _close("lrn", {"size": size, "alpha": 0.2, "beta": 0.6, "bias": 1.5}, [x], expected)


def test_wrong_parameters_are_refused():
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, 2, 6, 5))
    wrong = builder.input("s", tensor(DType.F32, 4))
    with pytest.raises(ShapeError, match="has 6 channels"):
        builder.op("instance_norm", x, wrong, wrong, eps=1e-5)
    with pytest.raises(ShapeError, match="can't split the channels"):
        builder.op("group_norm", x, wrong, wrong, groups=4, eps=1e-5)
    with pytest.raises(ShapeError):
        builder.op("layer_norm", x, wrong, None, axis=-1, eps=1e-5)
