import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.errors import ShapeError
from hagane.core.symbolic import const, sym
from hagane.ir.builder import Builder
from hagane.ir.graph import DType, Graph, tensor
from hagane.ir.registry import op_def
from tests.unit.ops.onnx_oracle import run_onnx

ONNX_NAME = {
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "prod": "ReduceProd",
}


@pytest.mark.parametrize("op", ONNX_NAME)
@pytest.mark.parametrize("axes", [(0,), (1, -1), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reference_agrees_with_onnx(op, axes, keepdims):
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    [expected] = run_onnx(ONNX_NAME[op], [x, np.array(axes)], keepdims=int(keepdims))
    found = op_def(f"reduce_{op}").reference({"axes": axes, "keepdims": keepdims}, x)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_integer_sums_wrap():
    x = np.full((2,), 2**31 - 1, np.int32)
    assert op_def("reduce_sum").reference({"axes": (0,), "keepdims": False}, x) == -2


def test_an_empty_range_gives_the_identity():
    x, attrs = np.zeros((0, 2)), {"axes": (0,), "keepdims": False}
    identity = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf, "mean": np.nan}
    for op, value in identity.items():
        np.testing.assert_array_equal(op_def(f"reduce_{op}").reference(attrs, x), [value, value])


def test_nan_wins():
    x, attrs = np.array([1.0, np.nan, 3.0]), {"axes": (0,), "keepdims": False}
    assert np.isnan(op_def("reduce_max").reference(attrs, x))
    assert np.isnan(op_def("reduce_min").reference(attrs, x))


def test_shapes_in_the_making_keep_their_meaning():
    builder = Builder(Graph())
    shape = builder.input("shape", tensor(DType.I64, 3))
    shape.elements = (sym("B"), const(4), sym("L"))
    attrs = {"axes": (0,), "keepdims": False}
    assert [str(e) for e in builder.op("reduce_prod", shape, **attrs).elements] == ["4*B*L"]
    assert [str(e) for e in builder.op("reduce_sum", shape, **attrs).elements] == ["B + L + 4"]


def test_bad_axes():
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, 3, 4))
    with pytest.raises(ShapeError, match="axis 2 is out of range for rank 2"):
        builder.op("reduce_sum", x, axes=(2,), keepdims=True)
    with pytest.raises(ShapeError, match="names an axis twice"):
        builder.op("reduce_sum", x, axes=(1, -1), keepdims=True)


def test_loops_avoid_the_names_that_come_in():
    from hagane.ir.scalar import Load

    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, 3, 4))
    y = builder.op("reduce_sum", x, axes=(1,), keepdims=False)
    scalar = op_def("reduce_sum").define(y.producer, lambda k, at: Load(DType.F32, k, at), (sym("k0"),), 0)
    assert [a.sym.name for a in scalar.axes] == ["k1"]
