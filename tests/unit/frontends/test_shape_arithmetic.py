"""Shapes that models compute are resolved while importing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto

from hagane.ir.graph import Graph
from hagane.ir.interpreter import run
from tests.unit.frontends.onnx_models import compare_with_ort, graph_of, model, node

F, I = TensorProto.FLOAT, TensorProto.INT64  # noqa: E741


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def from_x(
    nodes: list[NodeProto], constants: dict[str, Any] | None = None, dims: tuple[Any, ...] = ("n", 4, 6)
) -> Graph:
    return graph_of(model(nodes, {"x": (F, list(dims))}, ["y"], constants))


def reshape_by(*nodes: NodeProto, constants: dict[str, Any]) -> str:
    graph = from_x([*nodes, node("Reshape", ["x", "shape"], ["y"])], constants)
    assert all(n.op != "bind_symbols" for n in graph.nodes)
    return str(graph.outputs[0].type)


def test_flatten_as_exporters_write_it() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "axes"], ["n1"]),
        node("Concat", ["n1", "rest"], ["shape"], axis=0),
    ]
    constants = {"zero": np.int64(0), "axes": ints(0), "rest": ints(-1)}
    assert reshape_by(*nodes, constants=constants) == "f32[n, 24]"


def test_products_and_quotients() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "a", "b"], ["tail"]),
        node("ReduceProd", ["tail"], ["prod"], keepdims=1),
        node("Div", ["prod", "two"], ["half"]),
        node("Mul", ["half", "two"], ["whole"]),
        node("Concat", ["minus", "whole"], ["shape"], axis=0),
    ]
    constants = {"a": ints(1), "b": ints(9), "two": ints(2), "minus": ints(-1)}
    assert reshape_by(*nodes, constants=constants) == "f32[n, 24]"


def test_size_and_cast() -> None:
    nodes = [
        node("Size", ["x"], ["s"]),
        node("Cast", ["s"], ["s32"], to=TensorProto.INT32),
        node("Cast", ["s32"], ["s64"], to=TensorProto.INT64),
        node("Unsqueeze", ["s64", "axes"], ["shape"]),
    ]
    assert reshape_by(*nodes, constants={"axes": ints(0)}) == "f32[24*n]"


def test_tables_of_pads() -> None:
    """Pads as PyTorch writes them: pairs reversed, transposed and flattened, one amount dynamic."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "zero", "one"], ["n"]),
        node("Concat", ["fixed", "n", "zero"], ["list"], axis=0),
        node("Reshape", ["list", "pairs"], ["table"]),
        node("Slice", ["table", "last", "first", "zero", "back"], ["reversed"]),
        node("Transpose", ["reversed"], ["columns"], perm=[1, 0]),
        node("Reshape", ["columns", "flat"], ["pads"]),
        node("Pad", ["x", "pads"], ["y"]),
    ]
    constants = {
        "zero": ints(0), "one": ints(1), "fixed": ints(1, 2, 0, 3), "pairs": ints(-1, 2), "last": ints(-1),
        "first": ints(-(2**63) + 1), "back": ints(-1), "flat": ints(-1),
    }  # fmt: skip
    proto = model(nodes, {"x": (F, ["n", 4, 6])}, ["y"], constants)
    graph = compare_with_ort(proto, {"x": np.ones((2, 4, 6), np.float32)})
    assert str(graph.outputs[0].type) == "f32[2*n, 7, 9]"


def test_branches_that_are_known() -> None:
    condition = [
        node("Shape", ["x"], ["s"]),
        node("Size", ["s"], ["rank"]),
        node("Equal", ["rank", "three"], ["c"]),
    ]
    pick = node("Where", ["c", "yes", "no"], ["shape"])
    constants = {"three": np.int64(3), "yes": ints(-1, 6), "no": ints(-1)}
    assert reshape_by(*condition, pick, constants=constants) == "f32[4*n, 6]"


def test_range_and_constant_of_shape() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Range", ["zero", "n", "one"], ["r"]),
        node("Cast", ["r"], ["y"], to=F),
    ]
    graph = from_x(nodes, {"zero": np.int64(0), "one": np.int64(1)})
    assert str(graph.outputs[0].type) == "f32[n]"
    filled = from_x([node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["s"], ["y"])])
    assert str(filled.outputs[0].type) == "f32[n, 4, 6]"


def test_convolution_dims_stay_simple() -> None:
    nodes = [node("Conv", ["x", "w"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1])]
    nodes.append(node("Conv", ["a", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1]))
    graph = from_x(nodes, {"w": np.ones((3, 3, 3, 3), np.float32)}, ("n", 3, "h", 64))
    assert str(graph.outputs[0].type) == "f32[n, 3, ((h + 3) // 4), 16]"


def test_shapes_from_data() -> None:
    """A shape that is an input's content becomes symbols that are bound at run time."""
    nodes = [node("Reshape", ["x", "shape"], ["y"])]
    proto = model(nodes, {"x": (F, ["n", 4]), "shape": (I, [2])}, ["y"])
    graph = graph_of(proto)
    assert [n.op for n in graph.nodes if n.op == "bind_symbols"] == ["bind_symbols"]
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for wanted in ([6, 2], [-1, 6], [0, -1]):
        got = run(graph, {"x": x, "shape": ints(*wanted)})["y"]
        assert got.shape == (x.reshape(3 if wanted[0] == 0 else wanted[0], wanted[1])).shape


def test_expand_and_tile_from_data() -> None:
    for op, wanted in (("Expand", (3, 4)), ("Tile", (9, 16))):
        proto = model([node(op, ["x", "s"], ["y"])], {"x": (F, [3, 4]), "s": (I, [2])}, ["y"])
        got = run(graph_of(proto), {"x": np.ones((3, 4), np.float32), "s": ints(3, 4)})["y"]
        assert got.shape == wanted


@pytest.mark.parametrize(
    "start,end,step", [(0, 2, 1), (1, 2**62, 1), (-2, 2**62, 1), (0, -1, 1), (-1, -99, -1), (5, 1, -2)]
)
@pytest.mark.parametrize("n", [1, 2, 6])
def test_slices_of_dynamic_extents(start: int, end: int, step: int, n: int) -> None:
    constants = {"s": ints(start), "e": ints(end), "a": ints(0), "t": ints(step)}
    proto = model([node("Slice", ["x", "s", "e", "a", "t"], ["y"])], {"x": (F, ["n", 2])}, ["y"], constants)
    x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    compare_with_ort(proto, {"x": x})


@pytest.mark.parametrize("start,end", [(0, 2), (-3, -1), (-99, 99), (2, 1)])
def test_slices_from_data(start: int, end: int) -> None:
    inputs = {"x": (F, ["n", 2]), "s": (I, [1]), "e": (I, [1])}
    proto = model([node("Slice", ["x", "s", "e"], ["y"])], inputs, ["y"])
    feed = {"x": np.arange(10, dtype=np.float32).reshape(5, 2), "s": ints(start), "e": ints(end)}
    compare_with_ort(proto, feed)


def test_squeeze_follows_the_declared_rank() -> None:
    nodes = [node("Squeeze", ["x"], ["y"])]
    kept = model(nodes, {"x": (F, ["n", 1, 4])}, {"y": (F, ["n", 4])})
    assert str(graph_of(kept).outputs[0].type) == "f32[n, 4]"
    gone = model(nodes, {"x": (F, ["n", 1, 4])}, {"y": (F, [4])})
    graph = graph_of(gone)
    assert str(graph.outputs[0].type) == "f32[4]"
    assert graph.nodes[0].op == "require_dims"
