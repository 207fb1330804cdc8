"""Branches of an If in engines whose results differ in shape, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import hagane
from hagane.frontends.onnx import load_onnx
from hagane.ir import interpreter


def _model(rows: str | int, op: str) -> ModelProto:
    """Twice x, one below the other, or one op of x; then the negative of it, which needs the size as well."""
    f32, result = TensorProto.FLOAT, helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    then = helper.make_graph([helper.make_node("Concat", ["x", "x"], ["r"], axis=0)], "then", [], [result])
    other = helper.make_graph([helper.make_node(op, ["x"], ["r"])], "else", [], [result])
    graph = helper.make_graph(
        [
            helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
            helper.make_node("Neg", ["y"], ["z"]),
        ],
        "branches",
        [
            helper.make_tensor_value_info("x", f32, [rows, 5]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("y", f32, [None, 5]),
            helper.make_tensor_value_info("z", f32, [None, 5]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("op", ["Relu", "Identity"])
@pytest.mark.parametrize("rows", ["n", 3])
def test_branches_of_different_shapes(rows: str | int, op: str) -> None:
    proto = _model(rows, op)
    graph = load_onnx(proto.SerializeToString())
    with hagane.load(hagane.build(proto), threads=2) as session:
        for n in (3, 1, 7) if rows == "n" else (3,):
            for taken in (True, False):
                feed = {"x": np.random.default_rng(n).standard_normal((n, 5)).astype(np.float32)}
                got = session.run({**feed, "c": np.array(taken)})
                want = interpreter.run(graph, {**feed, "c": np.array(taken)})
                for name, array in want.items():
                    assert array.shape == (2 * n if taken else n, 5)
                    np.testing.assert_array_equal(got[name], array)
