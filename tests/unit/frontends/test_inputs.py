"""Dims of inputs: names, unknown ones, and what `shapes=` changes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from hagane.core.dims import Dim
from hagane.core.errors import ModelError, ShapeError
from hagane.frontends.onnx import load_onnx
from hagane.ir.graph import Graph
from tests.unit.frontends.onnx_models import Dims, graph_of, model, node

F = TensorProto.FLOAT


def adding(a: Dims, b: Dims = (), **options: object) -> Graph:
    proto = model([node("Add", ["a", "b"], ["y"])], {"a": (F, list(a)), "b": (F, list(b))}, ["y"])
    return graph_of(proto, **options)


def shape(graph: Graph, position: int = 0) -> str:
    return str(graph.inputs[position].type)


def test_equal_names_share_a_symbol() -> None:
    graph = adding(["batch", 3], ["batch", 3])
    assert shape(graph) == shape(graph, 1) == str(graph.outputs[0].type) == "f32[batch, 3]"
    assert graph.symbols["batch"].as_sym.lo == 1  # type: ignore[union-attr]


def test_unknown_dims_get_symbols() -> None:
    assert shape(adding([None, 3])) == "f32[a_d0, 3]"


def test_names_become_identifiers() -> None:
    graph = adding(["n.x", "n_x", "2d", "min"])
    assert shape(graph) == "f32[n_x, n_x_2, d_2d, min_]"


def test_shapes_narrow() -> None:
    assert shape(adding(["batch", 3], shapes={"a": (4, 3)})) == "f32[4, 3]"
    batch = Dim("batch", min=2, max=8, multiple=2)
    graph = adding(["batch", 3], shapes={"a": (batch, 3)})
    symbol = graph.inputs[0].shape[0].as_sym
    assert symbol is not None and (symbol.lo, symbol.hi, symbol.multiple) == (2, 8, 2)
    assert graph.symbols["batch"] == graph.inputs[0].shape[0]


def test_shapes_override_wrong_static_dims() -> None:
    assert shape(adding([10, 3, 32, 32], shapes={"a": ("n", 3, "h", "w")})) == "f32[n, 3, h, w]"


def test_an_overridden_name_changes_everywhere() -> None:
    graph = adding(["batch", 3], ["batch", 1], shapes={"a": (4, 3)})
    assert shape(graph, 1) == "f32[4, 1]"


def test_shapes_give_a_rank() -> None:
    proto = model([node("Relu", ["a"], ["y"])], {"a": (F, [1])}, ["y"])
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ShapeError, match="not even a rank"):
        load_onnx(proto)
    assert str(load_onnx(proto, shapes={"a": (2, "n")}).outputs[0].type) == "f32[2, n]"


def test_shapes_that_make_no_sense() -> None:
    with pytest.raises(ModelError, match="which the model doesn't have") as info:
        adding([1], shapes={"aa": (1,)})
    assert info.value.next_step == "did you mean 'a'?"
    with pytest.raises(ShapeError, match="gives input 'a' 1 dims, the model says 2"):
        adding(["n", 3], shapes={"a": (1,)})
    with pytest.raises(ShapeError, match="both 4 and 5"):
        adding(["n", 3], ["n", 3], shapes={"a": (4, 3), "b": (5, 3)})
    with pytest.raises(ShapeError, match="two different dims named 'n'"):
        adding([1, 3], [1, 3], shapes={"a": (Dim("n", max=4), 3), "b": (Dim("n", max=5), 3)})
    for wrong in (-1, "", 2.5, None, True):
        with pytest.raises(ShapeError, match="shapes= has the dim"):
            adding([1], shapes={"a": (wrong,)})


def test_dim_checks_itself() -> None:
    with pytest.raises(ShapeError, match="no identifier"):
        Dim("a b")
    for options in ({"min": -1}, {"min": 5, "max": 4}, {"multiple": 0}):
        with pytest.raises(ShapeError, match="can't be in"):
            Dim("n", **options)
    with pytest.raises(ShapeError, match="opt=9"):
        Dim("n", max=8, opt=9)
    assert Dim("n", min=3, max=3).expr == 3


def test_zero_size_needs_a_dim_that_says_so() -> None:
    symbol = adding(["n"], shapes={"a": (Dim("n", min=0),)}).inputs[0].shape[0].as_sym
    assert symbol is not None and symbol.lo == 0


def test_inputs_that_are_no_tensors() -> None:
    proto = model([node("Relu", ["a"], ["y"])], {"a": (F, [1])}, ["y"])
    proto.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = F
    with pytest.raises(ModelError, match="of the kind sequence"):
        load_onnx(proto)


def test_types_that_are_not_supported() -> None:
    proto = model([node("Relu", ["a"], ["y"])], {"a": (TensorProto.COMPLEX64, [1])}, ["y"])
    with pytest.raises(ModelError, match="complex64"):
        load_onnx(proto)


def test_declared_output_shapes_are_not_trusted() -> None:
    proto = model([node("Relu", ["a"], ["y"])], {"a": (F, [2, 3])}, {"y": (F, [7, "q", 1])})
    assert str(graph_of(proto).outputs[0].type) == "f32[2, 3]"
    assert np.dtype(np.float32) == graph_of(proto).outputs[0].dtype.np
