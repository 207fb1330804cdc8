"""Functions: those in a model, with attributes and nesting, and those that define ONNX's own ops."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import AttributeProto, FunctionProto, TensorProto, helper

from hagane.core.errors import ModelError
from hagane.frontends.onnx import load_onnx
from hagane.ir.interpreter import run
from tests.unit.frontends.onnx_models import graph_of, model, node

F = TensorProto.FLOAT
X = np.array([[-1, 2, -3]], np.float32)
OURS = helper.make_opsetid("ours", 1)
ONNX = helper.make_opsetid("", 17)


def function(name: str, inputs: list[str], outputs: list[str], nodes: list, **more: object) -> FunctionProto:
    return helper.make_function("ours", name, inputs, outputs, nodes, [ONNX, OURS], **more)  # type: ignore[arg-type]


def referring(op: str, inputs: list[str], outputs: list[str], attribute: str, reference: str) -> object:
    made = node(op, inputs, outputs)
    made.attribute.append(AttributeProto(name=attribute, ref_attr_name=reference, type=AttributeProto.FLOAT))
    return made


def test_functions_are_expanded() -> None:
    scale = function(
        "Scale", ["a"], ["b"], [referring("LeakyRelu", ["a"], ["b"], "alpha", "slope")], attributes=["slope"]
    )
    twice = function("Twice", ["a"], ["c"], [
        node("Scale", ["a"], ["b"], domain="ours", slope=0.5), node("Scale", ["b"], ["c"], domain="ours"),
    ])  # fmt: skip
    calls = [node("Twice", ["x"], ["y"], domain="ours")]
    graph = graph_of(model(calls, {"x": (F, [1, 3])}, ["y"], functions=[scale, twice], opsets=[OURS]))
    assert [n.loc.nodes for n in graph.nodes] == [
        ("y_node/b_node/b_node (LeakyRelu)",),
        ("y_node/c_node/b_node (LeakyRelu)",),
    ]
    assert [n.attrs["alpha"] for n in graph.nodes] == [0.5, pytest.approx(0.01)]


def test_defaults_of_function_attributes() -> None:
    default = helper.make_attribute("slope", 0.25)
    scale = function(
        "Scale",
        ["a"],
        ["b"],
        [referring("LeakyRelu", ["a"], ["b"], "alpha", "slope")],
        attribute_protos=[default],
    )
    calls = [node("Scale", ["x"], ["y"], domain="ours")]
    graph = graph_of(model(calls, {"x": (F, [1, 3])}, ["y"], functions=[scale], opsets=[OURS]))
    assert graph.nodes[0].attrs["alpha"] == 0.25


def test_a_function_sees_nothing_of_its_caller() -> None:
    peek = function("Peek", ["a"], ["b"], [node("Add", ["a", "x"], ["b"])])
    calls = [node("Peek", ["x"], ["y"], domain="ours")]
    with pytest.raises(ModelError, match="'x' is defined nowhere"):
        load_onnx(model(calls, {"x": (F, [1, 3])}, ["y"], functions=[peek], opsets=[OURS]))


def test_recursion() -> None:
    loop = function("Again", ["a"], ["b"], [node("Again", ["a"], ["b"], domain="ours")])
    calls = [node("Again", ["x"], ["y"], domain="ours")]
    with pytest.raises(ModelError, match="levels deep"):
        load_onnx(model(calls, {"x": (F, [1, 3])}, ["y"], functions=[loop], opsets=[OURS]))


def test_wrong_calls() -> None:
    one = function("One", ["a"], ["b"], [node("Relu", ["a"], ["b"])])
    for call, message in (
        (node("One", ["x", "x"], ["y"], domain="ours"), "takes 1 inputs"),
        (node("One", ["x"], ["y"], domain="ours", alpha=1.0), "no attribute alpha"),
        (node("Two", ["x"], ["y"], domain="ours"), "ours.Two is not supported"),
        (node("Two", ["x"], ["y"], domain="theirs"), "without importing it"),
    ):
        with pytest.raises(ModelError, match=message):
            load_onnx(model([call], {"x": (F, [1, 3])}, ["y"], functions=[one], opsets=[OURS]))


def test_optional_inputs_of_functions() -> None:
    clip = function("Bound", ["a", "lo"], ["b"], [node("Clip", ["a", "lo"], ["b"])])
    calls = [node("Bound", ["x"], ["y"], domain="ours")]
    graph = graph_of(model(calls, {"x": (F, [1, 3])}, ["y"], functions=[clip], opsets=[OURS]))
    np.testing.assert_array_equal(run(graph, {"x": X})["y"], X)


def test_ops_that_onnx_defines_by_a_function() -> None:
    """CenterCropPad has no converter: its definition is imported."""
    calls = [node("CenterCropPad", ["x", "shape"], ["y"])]
    graph = graph_of(model(calls, {"x": (F, [1, 3])}, ["y"], {"shape": np.array([1, 5])}, opset=18))
    np.testing.assert_array_equal(run(graph, {"x": X})["y"], [[0, -1, 2, -3, 0]])
