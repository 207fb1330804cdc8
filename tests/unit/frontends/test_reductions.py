"""Reductions with roots and logarithms take integers too: the result is cut off to the integers' type."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from hagane.ir.interpreter import run
from tests.unit.frontends.onnx_models import graph_of, model, node


@pytest.mark.parametrize(
    ("op", "wanted"), [("ReduceL2", [13, 3]), ("ReduceLogSum", [2, 1]), ("ReduceLogSumExp", [12, 2])]
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_are_cut_off(op: str, wanted: list[int], dtype: type) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    proto = model([node(op, ["x"], ["y"], axes=[1], keepdims=0)], {"x": (kind, [2, 3])}, {"y": (kind, [2])})
    y = run(graph_of(proto), {"x": np.array([[3, 4, 12], [1, 2, 2]], dtype)})["y"]
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, wanted)
