"""Each invariant that the verifier checks, broken once."""

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.errors import InternalError
from hagane.core.symbolic import const, sym
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Node, Type, Value, tensor
from hagane.ir.layout import Layout, blocked_channels, layout_fault
from hagane.ir.parse import parse_graph
from hagane.ir.verify import verify

BATCH = sym("B", 1)


@pytest.fixture
def graph() -> Graph:
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, BATCH, 4))
    y = builder.op("add", x, builder.const(np.ones(4, np.float32)))
    builder.graph.outputs = [builder.op("reshape", y, shape=(BATCH * 2, const(2)))]
    verify(builder.graph)
    return builder.graph


def fails(graph: Graph, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        verify(graph)


def test_order(graph):
    graph.nodes.reverse()
    fails(graph, "%add is used before it is defined")


def test_outputs(graph):
    graph.nodes.pop()
    fails(graph, "output %reshape is not defined in main")


def test_unique_names(graph):
    graph.nodes[1].output.name = "x"
    fails(graph, "two values are named x")


def test_unique_names_of_constants(graph):
    graph.nodes[0].inputs[1].name = "x"
    fails(graph, "two values are named x")


def test_single_definition(graph):
    graph.nodes.insert(1, graph.nodes[0])
    fails(graph, "%add is defined twice")


def test_producers(graph):
    graph.nodes[1].output.producer = graph.nodes[0]
    fails(graph, "%reshape doesn't name reshape = reshape as its producer")


def test_types(graph):
    graph.nodes[0].output.type = tensor(DType.F32, BATCH, 5)
    fails(graph, r"should have type f32\[B, 4\], it has f32\[B, 5\]")


def test_number_of_outputs(graph):
    graph.nodes[0].outputs.append(Value("more", tensor(DType.F32), graph.nodes[0]))
    fails(graph, "should have 1 outputs, it has 2")


def test_attributes_have_a_text_form(graph):
    graph.nodes[1].attrs["shape"] = (np.int64(8),)
    fails(graph, "int64 has no text form")


def test_known_ops(graph):
    graph.nodes[0].op = "frobnicate"
    fails(graph, "unknown op 'frobnicate'")
    verify(graph, types=False)


def test_symbols_are_bound(graph):
    unknown = sym("Q", 1)
    graph.nodes[1].attrs["shape"] = (unknown, const(2))
    graph.nodes[1].output.type = tensor(DType.F32, unknown, 2)
    fails(graph, "symbol Q of an attribute of reshape = reshape is bound nowhere before")


def test_symbols_of_inputs_are_bound():
    fails(Graph(inputs=[Value("x", tensor(DType.F32, BATCH + 1))]), "symbol B of input %x is bound nowhere")
    verify(Graph(inputs=[Value("x", tensor(DType.F32, BATCH + 1)), Value("y", tensor(DType.F32, BATCH))]))


def test_symbols_of_branches_end_with_them():
    text = """\
graph @g(%c: bool[], %n: i64[]) -> i64[] where Q in 0.. {
  %r = if(%c) : i64[] {
    else() {
      return %n
    }
    then() {
      bind_symbols(%n) {names=["Q"]}
      %s = shape_values() {values=(Q)} : i64[1]
      %t = reshape(%s) {shape=[]} : i64[]
      return %t
    }
  }
  return %r
}
"""
    graph = parse_graph(text)
    inner = graph.nodes[0].graphs["then"]
    inner.nodes, graph.nodes = inner.nodes[:1], [*graph.nodes, inner.nodes[1]]
    inner.outputs = [graph.inputs[1]]
    fails(graph, "symbol Q of an attribute of s = shape_values is bound nowhere before")


REGION = """\
graph @g(%x: f32[4], %z: f32[4]) -> f32[4] {
  %y = region(%x) {kind="pointwise"} : f32[4] {
    body(%a: f32[4]) {
      %b = mul(%a, @k) : f32[4]
      return %b
    }
  }
  return %y
}
const @k: f32[1] = [2.0]
"""


def test_bodies_of_regions():
    graph = parse_graph(REGION)
    region = graph.nodes[0]
    body = region.graphs["body"]
    body.inputs[0].type = tensor(DType.F32, 5)
    fails(graph, "should be %x|should have type")
    graph = parse_graph(REGION)
    graph.nodes[0].inputs.append(graph.inputs[1])
    fails(graph, "a region of 2 operands has a body of 1")
    graph = parse_graph(REGION)
    graph.nodes[0].graphs["body"].nodes[0].inputs[0] = graph.inputs[1]
    fails(graph, "a region's body reads %z: f32.* from outside")
    graph = parse_graph(REGION)
    constant = graph.nodes[0].graphs["body"].nodes[0].inputs[1]
    constant.data, constant.type = np.ones(4, np.float32), tensor(DType.F32, 4)
    fails(graph, "in a region's body is no single number")


@pytest.mark.parametrize(
    ("layout", "fault"),
    [
        (Layout((0, 1, 2, 3)), ""),
        (Layout((0, 2, 3, 1)), ""),
        (blocked_channels(4, 16, ((0, 0), (0, 0), (1, 1), (2, 0))), ""),
        (Layout((0, 1, 2)), "doesn't order 4 axes"),
        (Layout((0, 1, 2, 2)), "doesn't order 4 axes"),
        (Layout((0, 1, 2, 3), ((1, 8), (1, 2))), "blocks an axis twice"),
        (Layout((0, 1, 2, 3), ((4, 8),)), "or one that isn't there"),
        (Layout((0, 1, 2, 3), ((1, 1),)), "a block of less than two elements"),
        (Layout((0, 1, 2, 3), ((0, 4),)), "blocks an axis whose extent isn't constant"),
        (Layout((0, 1, 2, 3), (), ((0, 0), (1, 1))), "has a halo for 2 of 4 axes"),
        (Layout((0, 1, 2, 3), (), ((0, 0), (0, 0), (-1, 0), (0, 0))), "has a negative halo"),
        (Layout((0, 1, 2, 3), ((1, 4),), ((0, 0), (1, 0), (0, 0), (0, 0))), "a halo around a blocked axis"),
    ],
)
def test_layouts_fit_their_types(layout, fault):
    found = layout_fault(layout, tensor(DType.F32, BATCH, 64, 9, 9).shape)
    assert fault in found and bool(fault) == bool(found)
    graph = Graph(
        inputs=[Value("x", Type(DType.F32, tensor(DType.F32, BATCH, 64, 9, 9).shape), layout=layout)]
    )
    if fault:
        fails(graph, fault)
    else:
        verify(graph)


def test_a_node_without_outputs_is_fine(graph):
    graph.nodes.append(Node("bind_symbols", [Value("n", tensor(DType.I64))], [], {"names": ("Z",)}))
    graph.inputs.append(graph.nodes[-1].input(0))
    verify(graph)
