import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.symbolic import sym
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, tensor
from hagane.ir.registry import op_def
from tests.unit.ops.onnx_oracle import run_onnx


@pytest.mark.parametrize("length", [None, 6, 11])
@pytest.mark.parametrize(
    ("inverse", "onesided", "parts"),
    [(False, False, 2), (False, False, 1), (False, True, 1), (True, False, 2), (True, True, 2)],
)
def test_reference_agrees_with_onnx(inverse, onesided, parts, length):
    x = np.random.default_rng(0).standard_normal((2, 9, 3, parts))
    inputs = [x, None if length is None else np.array(length), np.array(1)]
    [expected] = run_onnx("DFT", inputs, inverse=int(inverse), onesided=int(onesided))
    attrs = {"axis": 1, "inverse": inverse, "onesided": onesided, "length": length}
    np.testing.assert_allclose(op_def("dft").reference(attrs, x), expected, atol=1e-12)


def test_types_of_a_dynamic_length():
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, 2, sym("L"), 1))
    y = builder.op("dft", x, axis=1, inverse=False, onesided=True, length=None)
    assert y.type == tensor(DType.F32, 2, sym("L") // 2 + 1, 2)
    with pytest.raises(ShapeError, match="an axis before the last one"):
        builder.op("dft", x, axis=2, inverse=False, onesided=True, length=None)
