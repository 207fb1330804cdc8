"""Graphs, the builder that writes them, and what they say about their values."""

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.errors import InternalError, ShapeError
from hagane.core.symbolic import const, sym
from hagane.ir.builder import Builder, single_op_graph
from hagane.ir.graph import Graph, Loc, Type, join_locs, tensor
from hagane.ir.parse import parse_graph
from hagane.ir.registry import OpDef, op_def, register

NESTED = """\
graph @main(%c: bool[], %x: f32[2], %z: f32[2]) -> f32[2] {
  %a = exp(%x) : f32[2]
  %r = if(%c) : f32[2] {
    else() {
      %b = add(%a, @k) : f32[2]
      return %b
    }
    then() {
      return %x
    }
  }
  return %r
}
const @k: f32[2] = [1.0, 2.0]
"""


def test_names_are_unique_and_printable():
    builder = Builder(Graph())
    names = [builder.fresh(hint) for hint in ("x", "x", "a b", "", "conv/1:0")]
    assert names == ["x", "x.1", "a_b", "v", "conv/1_0"]


def test_inferred_types_and_places():
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, sym("B", 1), 4))
    builder.loc = Loc("m.onnx", ("/Relu",))
    y = builder.op("relu", x)
    assert (str(y.type), y.producer.loc, y.static_shape) == ("f32[B, 4]", builder.loc, None)


def test_errors_of_shapes_say_where():
    builder = Builder(Graph())
    builder.loc = Loc("m.onnx", ("/fc/MatMul",))
    x = builder.input("x", tensor(DType.F32, 2, 3))
    with pytest.raises(ShapeError) as error:
        builder.op("matmul", x, builder.const(np.ones((4, 5), np.float32), name="w"))
    assert error.value.where == {"node": "/fc/MatMul in m.onnx", "inputs": "%x: f32[2, 3], @w: f32[4, 5]"}
    assert not builder.graph.nodes


def test_small_integer_constants_know_their_content():
    builder = Builder(Graph())
    assert builder.const([2, -1]).elements == (const(2), const(-1))
    assert builder.const(True).elements == (const(1),)
    assert builder.const([1.0]).elements is None
    assert builder.const(np.zeros((1, 1), np.int64)).elements is None


def test_users_see_through_branches():
    graph = parse_graph(NESTED)
    x, a = graph.inputs[1], graph.nodes[0].output
    assert [n.op for n in graph.users()[x]] == ["exp", "if"]
    assert [n.op for n in graph.users()[a]] == ["if"]
    assert [v.name for v in graph.nodes[1].graphs["else"].captured()] == ["a"]
    assert [v.name for v in graph.constants()] == ["k"]
    assert graph.value_names() == {"c", "x", "z", "a", "r", "b", "k"}
    assert [n.op for n in graph.walk()] == ["exp", "if", "add"]


def test_replaced_uses_reach_into_branches_and_outputs():
    graph = parse_graph(NESTED)
    x, z, a = graph.inputs[1], graph.inputs[2], graph.nodes[0].output
    graph.replace_uses({a: x, x: z, graph.outputs[0]: a})
    assert graph.nodes[1].graphs["else"].nodes[0].inputs[0] is z
    assert graph.nodes[1].graphs["then"].outputs == [z]
    assert graph.outputs == [z]


def test_joined_places_keep_each_name_once():
    joined = join_locs([Loc("", ("a",)), Loc("m", ("b", "a")), Loc("n", ("c",))])
    assert joined == Loc("m", ("a", "b", "c"))
    assert str(Loc("m", tuple("abcdef"))) == "a, b, c, d and 2 more in m"


def test_output_names_outlive_the_values():
    graph = parse_graph(NESTED)
    assert graph.port_names == ["r"]
    graph.output_names = graph.port_names
    graph.outputs = [graph.inputs[1]]
    assert graph.port_names == ["r"]


def test_an_op_has_one_definition():
    with pytest.raises(InternalError, match="op 'relu' is registered twice"):
        register(OpDef("relu", "pointwise", lambda node: [], lambda attrs, x: x))
    with pytest.raises(InternalError, match="unknown op 'nothing'"):
        op_def("nothing")


def test_a_graph_of_one_op():
    graph = single_op_graph("clip", (np.zeros((2, 3), np.float16),), {"lo": 0.0, "hi": None})
    assert str(graph.outputs[0].type) == "f16[2, 3]"
    assert Type(DType.F32, (const(1),)) == tensor(DType.F32, 1)
    assert str(Type(DType.F32, (const(1),), state=True)) == "state<f32[1]>"
