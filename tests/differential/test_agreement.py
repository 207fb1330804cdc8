"""Dynamic dims that a model takes to agree are checked at run time: engines refuse what doesn't fit."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import hagane
from hagane.core.errors import RunError
from hagane.frontends.onnx import load_onnx
from hagane.ir import interpreter


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


WEIGHT = np.arange(54, dtype=np.float32).reshape(2, 3, 3, 3)
SCALES = np.array([1, 2, 3], np.float32)


@pytest.mark.parametrize(
    ("op", "attrs", "more", "good", "bad"),
    [
        ("Reshape", {}, {"s": np.array([3, 4])}, [(3, 4), (2, 6)], [(3, 3), (4, 4)]),
        ("Reshape", {}, {"s": np.array([-1, 5])}, [(3, 5), (5, 4)], [(3, 4)]),
        ("Expand", {}, {"s": np.array([2, 3, 4])}, [(3, 4), (1, 4), (3, 1)], [(2, 4), (3, 5)]),
        ("Conv", {}, {"w": WEIGHT}, [(1, 3, 5, 5)], [(1, 2, 5, 5), (1, 4, 5, 5)]),
        ("ConvTranspose", {}, {"w": WEIGHT}, [(1, 2, 5, 5)], [(1, 3, 5, 5), (1, 1, 5, 5)]),
        ("LayerNormalization", {"axis": -1}, {"w": SCALES}, [(4, 3)], [(4, 2), (4, 4), (4, 1)]),
        ("BatchNormalization", {}, dict.fromkeys("wbmv", SCALES), [(2, 3, 4)], [(2, 4, 4), (2, 2, 4)]),
        ("QuantizeLinear", {"axis": 1}, {"w": SCALES}, [(2, 3, 4), (2, 3, 1)], [(2, 4, 4), (2, 2, 4)]),
    ],
)
def test_sizes_that_an_op_rests_on(op: str, attrs: dict, more: dict, good: list, bad: list) -> None:
    rank, info = len(good[0]), helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op, ["a", *more], ["y"], name="the_node", **attrs)],
        "agree",
        [info("a", TensorProto.FLOAT, list("nmpq"[:rank]))],
        [info("y", TensorProto.UINT8 if op == "QuantizeLinear" else TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in more.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    reference = load_onnx(model.SerializeToString())
    with hagane.load(hagane.build(model)) as session:
        for shape in good:
            feed = {"a": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
            expected = interpreter.run(reference, feed)["y"]
            np.testing.assert_allclose(session.run(feed)["y"], expected, rtol=1e-4, atol=1e-5)
        for shape in bad:
            with pytest.raises(RunError, match="the_node"):
                session.run({"a": np.zeros(shape, np.float32)})


def test_no_elements_spread_over_one_are_none() -> None:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"])],
        "agree",
        [info("a", TensorProto.FLOAT, ["n"]), info("b", TensorProto.FLOAT, ["m"])],
        [info("y", TensorProto.FLOAT, [None])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    shapes = {"a": (hagane.Dim("n", min=0),), "b": (hagane.Dim("m", min=0),)}
    with hagane.load(hagane.build(model, shapes=shapes)) as session:
        for n, m in ((0, 1), (1, 0), (0, 0), (1, 1), (1, 3), (3, 1), (3, 3)):
            a, b = np.ones(n, np.float32), np.ones(m, np.float32)
            np.testing.assert_array_equal(session.run({"a": a, "b": b})["y"], a + b)
        with pytest.raises(RunError, match="don't fit each other"):
            session.run({"a": np.ones(0, np.float32), "b": np.ones(2, np.float32)})
