import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.errors import ShapeError
from hagane.ir.builder import Builder
from hagane.ir.graph import DType, Graph, tensor
from hagane.ir.registry import op_def
from tests.unit.ops.onnx_oracle import run_onnx


@pytest.mark.parametrize("op, onnx_name", [("softmax", "Softmax"), ("log_softmax", "LogSoftmax")])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_reference_agrees_with_onnx(op, onnx_name, axis):
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    [expected] = run_onnx(onnx_name, [x], axis=axis)
    np.testing.assert_allclose(op_def(op).reference({"axis": axis}, x), expected, atol=1e-12)


def test_large_numbers_do_not_overflow():
    np.testing.assert_allclose(op_def("softmax").reference({"axis": 0}, np.array([1e6, 1e6])), [0.5, 0.5])


def test_integers_are_refused():
    builder = Builder(Graph())
    with pytest.raises(ShapeError, match="softmax takes floats, not i64"):
        builder.op("softmax", builder.input("x", tensor(DType.I64, 3)), axis=0)
