"""The whole text of the errors that people meet most while importing a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper

from hagane.core.errors import HaganeError
from hagane.frontends.onnx import load_onnx

F = TensorProto.FLOAT


def node(op: str, inputs: list[str], outputs: list[str], name: str, **attrs: Any) -> NodeProto:
    return helper.make_node(op, inputs, outputs, name=name, **attrs)


def message(
    tmp_path: Path,
    nodes: list[NodeProto],
    inputs: dict[str, list[Any]],
    constants: dict[str, Any] | None = None,
    shapes: Any = None,
    opset: int = 17,
) -> str:
    """The error's kind and text for a model that is saved as net.onnx and loaded."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(n, F, d) for n, d in inputs.items()],
        [helper.make_tensor_value_info("y", F, None)],
        [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), path)
    with pytest.raises(HaganeError) as info:
        load_onnx(path, shapes=shapes)
    return f"{type(info.value).__name__}: {info.value}"


def test_channels(tmp_path: Path) -> None:
    nodes = [
        node("Concat", ["a", "b"], ["x"], "/neck/Concat_4", axis=1),
        node("Conv", ["x", "w"], ["y"], "/neck/Conv_17", pads=[1, 1, 1, 1]),
    ]
    inputs = {"a": ["batch", 4, 56, 56], "b": ["batch", 3, 56, 56]}
    text = message(tmp_path, nodes, inputs, {"w": np.zeros((33, 8, 3, 3), np.float32)})
    assert text == (
        "ShapeError: Conv input has 7 channels, the weight wants 8\n"
        "  node:   /neck/Conv_17 (Conv) in net.onnx\n"
        "  inputs: x f32[batch, 7, 56, 56], w f32[33, 8, 3, 3], pads=[1, 1, 1, 1]\n"
        "  from:   x is the output of /neck/Concat_4 (Concat)\n"
        "  next:   hagane check net.onnx lists every shape conflict; shapes= overrides input dims"
    )


def test_broadcast(tmp_path: Path) -> None:
    text = message(
        tmp_path, [node("Add", ["x", "w"], ["y"], "add")], {"x": ["n", 3]}, {"w": np.zeros(4, np.float32)}
    )
    assert text == (
        "ShapeError: shapes [n, 3] and [4] can't be broadcast together: "
        "dims 3 and 4 can't be broadcast together\n"
        "  node:   add (Add) in net.onnx\n"
        "  inputs: x f32[n, 3], w f32[4]\n"
        "  next:   hagane check net.onnx lists every shape conflict; shapes= overrides input dims"
    )


def test_unsupported_op(tmp_path: Path) -> None:
    assert message(tmp_path, [node("Reluu", ["x"], ["y"], "act")], {"x": [1]}) == (
        "ModelError: the op Reluu is not supported\n"
        "  node:   act (Reluu) in net.onnx\n"
        "  inputs: x f32[1]\n"
        "  tried:  a converter, a function of the model, and the function that ONNX defines the op by\n"
        "  next:   the closest supported op is Relu; hagane check lists every unsupported op of a model"
    )


def test_unknown_attribute(tmp_path: Path) -> None:
    text = message(tmp_path, [node("Softmax", ["x"], ["y"], "s", axis=0, axes=[1])], {"x": [1, 2]})
    assert text == (
        "ModelError: unknown attribute 'axes'\n"
        "  node:   s (Softmax) in net.onnx\n"
        "  inputs: x f32[1, 2], axes=[1], axis=0\n"
        "  next:   check that the model's opset is the one that its nodes were written for"
    )


def test_attribute_of_the_wrong_type(tmp_path: Path) -> None:
    assert message(tmp_path, [node("Softmax", ["x"], ["y"], "s", axis=0.5)], {"x": [1, 2]}) == (
        "ModelError: attribute 'axis' should be an integer, but is a number\n"
        "  node:   s (Softmax) in net.onnx\n"
        "  inputs: x f32[1, 2], axis=0.5\n"
        "  next:   export the model anew; if ONNX Runtime runs net.onnx as it is, report it"
    )


def test_missing_input(tmp_path: Path) -> None:
    assert message(tmp_path, [node("Relu", ["image"], ["y"], "r")], {"images": [1]}) == (
        "ModelError: input 'image' is defined nowhere\n"
        "  node:   r (Relu) in net.onnx\n"
        "  inputs: image\n"
        "  next:   did the exporter mean 'images'?"
    )


def test_shapes_of_an_unknown_input(tmp_path: Path) -> None:
    text = message(tmp_path, [node("Relu", ["x"], ["y"], "r")], {"x": [1]}, shapes={"X": (1,)})
    assert text == (
        "ModelError: shapes= names the input 'X', which net.onnx doesn't have\n  inputs: x\n"
        "  next:   name inputs of the model"
    )


def test_old_opset(tmp_path: Path) -> None:
    newest = onnx.defs.onnx_opset_version()
    assert message(tmp_path, [node("Relu", ["x"], ["y"], "r")], {"x": [1]}, opset=5) == (
        f"ModelError: net.onnx uses opset 5; opsets 7 to {newest} are supported\n"
        "  next: convert it with onnx.version_converter.convert_version, or export it again"
    )


def test_cut_off_file(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"\x08\x07\x3a\xff\xff")
    with pytest.raises(HaganeError) as info:
        load_onnx(path)
    assert str(info.value) == (
        "net.onnx is not an ONNX model, or is cut off (5 bytes)\n"
        "  tried: parsing it as the protocol buffer that ONNX files are\n"
        "  next:  compare its size with the original's, and fetch or export it again"
    )


def test_axes_that_a_run_computes(tmp_path: Path) -> None:
    nodes = [
        node("Cast", ["x"], ["axes"], "c", to=TensorProto.INT64),
        node("Unsqueeze", ["x", "axes"], ["y"], "u"),
    ]
    assert message(tmp_path, nodes, {"x": [1]}) == (
        "ModelError: Unsqueeze must know its axes at import, but they are computed at run time\n"
        "  node:   u (Unsqueeze) in net.onnx\n"
        "  inputs: x f32[1], axes i64[1]\n"
        "  next:   export the model with constant axes"
    )


def test_errors_in_sub_graphs_name_the_inner_node(tmp_path: Path) -> None:
    bad = helper.make_graph(
        [node("MatMul", ["x", "x"], ["r"], "inner")], "g", [], [helper.make_tensor_value_info("r", F, None)]
    )
    text = message(
        tmp_path,
        [node("If", ["c"], ["y"], "outer", then_branch=bad, else_branch=bad)],
        {"x": [2, 3]},
        {"c": np.array(True)},
    )
    assert text.splitlines()[:2] == [
        "ShapeError: matmul sums over 3 elements of the first operand and 2 of the second",
        "  node:   outer/then_branch/inner (MatMul) in net.onnx",
    ]
