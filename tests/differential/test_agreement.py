"""Dynamic dims that a model takes to agree are checked at run time: engines refuse what doesn't fit."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import hagane
from hagane.core.errors import RunError


@pytest.mark.parametrize(
    ("op", "attrs", "good", "bad"),
    [
        ("Add", {}, [((3, 4), (3, 4)), ((1, 4), (3, 1))], [((3, 4), (2, 4)), ((3, 4), (3, 2))]),
        ("Where", {}, [((3, 4), (3, 4)), ((1, 4), (3, 1))], [((3, 4), (2, 4))]),
        ("MatMul", {}, [((3, 4), (4, 2))], [((3, 4), (5, 2))]),
        ("Concat", {"axis": 1}, [((3, 4), (3, 2))], [((3, 4), (2, 4)), ((2, 4), (3, 4))]),
    ],
)
def test_dims_that_do_not_agree(op: str, attrs: dict, good: list, bad: list) -> None:
    f32, info = TensorProto.FLOAT, helper.make_tensor_value_info
    names = ["c", "a", "b"] if op == "Where" else ["a", "b"]
    inputs = [info("a", f32, ["n", "m"]), info("b", f32, ["p", "q"])]
    extra = [info("c", TensorProto.BOOL, [1])] if op == "Where" else []
    node = helper.make_node(op, names, ["y"], name="the_node", **attrs)
    graph = helper.make_graph([node], "agree", [*inputs, *extra], [info("y", f32, [None, None])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    reference = {"Add": np.add, "MatMul": np.matmul, "Where": lambda a, b: np.where(True, a, b)}
    with hagane.load(hagane.build(model)) as session:

        def run(shapes: tuple) -> np.ndarray:
            feed = {
                k: np.arange(np.prod(s), dtype=np.float32).reshape(s)
                for k, s in zip("ab", shapes, strict=True)
            }
            more = {"c": np.array([True])} if extra else {}
            y = session.run({**feed, **more})["y"]
            if op in reference:
                np.testing.assert_allclose(y, reference[op](feed["a"], feed["b"]))
            return y

        for shapes in good:
            run(shapes)
        for shapes in bad:
            with pytest.raises(RunError, match=r"the_node.*don't fit each other"):
                run(shapes)
