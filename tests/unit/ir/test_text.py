"""Printing and reading graphs: the identity in both directions, and the exact text of each construct."""

import ml_dtypes
import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.core.symbolic import const, sym
from hagane.ir.builder import Builder, single_op_graph
from hagane.ir.diff import same_graph
from hagane.ir.graph import Graph, Loc, Node, Type, Value, constant, tensor
from hagane.ir.layout import Layout, blocked_channels
from hagane.ir.parse import parse_graph
from hagane.ir.registry import all_ops
from hagane.ir.text import hash_of, hash_of_array, print_graph
from hagane.plan.model import Recipe, RecipeNode

MLP = """\
graph @main(%x: f16[B, 128, 768]) -> y: f16[B, 128, 3] where B in 1..64 {
  %0 = matmul(%x, @up.w) : f16[B, 128, 3]  // ["mlp.onnx", "/mlp/up/MatMul"]
  %1 = gelu(%0) {approx="tanh"} : f16[B, 128, 3]  // ["mlp.onnx", "/mlp/act/Gelu"]
  return %1
}
metadata "producer" = "test"
const @up.w: f16[768, 3] = HASH
"""


def arrays_of(graph: Graph) -> dict[str, np.ndarray]:
    """The data that a graph's text doesn't hold, by hash."""
    found = {hash_of(v): v.data for v in graph.constants()}
    return found | {hash_of_array(a): a for a in graph.weights.values()}


def round_trip(graph: Graph) -> Graph:
    """The graph read back; asserts that it prints the same and is the same."""
    text = print_graph(graph)
    again = parse_graph(text, arrays_of(graph))
    assert print_graph(again) == text
    assert same_graph(graph, again, locs=True)
    return again


def wrapped(value: Value, **facts) -> Graph:
    """A graph that returns one value."""
    return Graph(outputs=[value], **facts)


def test_a_whole_graph():
    weights = np.arange(768 * 3).reshape(768, 3).astype(np.float16)
    text = MLP.replace("HASH", hash_of_array(weights))
    graph = parse_graph(text, {hash_of_array(weights): weights})
    assert print_graph(graph) == text
    assert [n.op for n in graph.nodes] == ["matmul", "gelu"]
    assert graph.nodes[1].attrs == {"approx": "tanh"}
    assert graph.nodes[0].loc == Loc("mlp.onnx", ("/mlp/up/MatMul",))
    assert graph.output_names == ["y"] and graph.metadata == {"producer": "test"}
    assert graph.constants()[0].data is weights
    batch = graph.inputs[0].shape[0].as_sym
    assert (batch.name, batch.lo, batch.hi) == ("B", 1, 64)


def test_data_is_found_by_name_too_so_that_weights_can_be_exchanged():
    weights = np.ones((768, 3), np.float16)
    graph = parse_graph(MLP.replace("HASH", "0" * 32), {"up.w": weights})
    assert graph.constants()[0].data is weights


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, "there is no data for 'up.w'"),
        ({"up.w": np.ones((3, 768), np.float16)}, "its data isn't: it is float16"),
    ],
)
def test_missing_or_unfit_data(weights, message):
    with pytest.raises(ModelError, match="line 7") as error:
        parse_graph(MLP.replace("HASH", "0" * 32), weights)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "op", [o for o in all_ops() if o.kind not in ("control", "host")], ids=lambda o: o.name
)
def test_every_sample_of_every_op(op):
    for sample in op.samples():
        inputs = tuple(None if a is None else np.asarray(a) for a in sample.inputs)
        round_trip(single_op_graph(op.name, inputs, sample.attrs))


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_small_constants_are_printed_exactly(dtype):
    if dtype is DType.STRING:
        data = np.array(["", 'a"b', "ü\n", "\ud800"], object)
    elif dtype is DType.BOOL:
        data = np.array([True, False])
    elif dtype.is_int:
        lowest = -1 << dtype.bits - 1 if dtype.is_signed else 0
        data = np.zeros(4, dtype.np)
        data[:] = [dtype.np.type(n) for n in (1, 7, lowest, (1 << dtype.bits - dtype.is_signed) - 1)]
    else:
        with np.errstate(all="ignore"):
            data = np.array([0.1, -0.0, 1 / 3, 6.0, np.inf, -np.inf, np.nan, 1e-3, 3e38]).astype(dtype.np)
    for array in (data, data[:0], data[1].reshape(())) if dtype is not DType.STRING else (data,):
        again = round_trip(wrapped(constant("c", array, dtype))).outputs[0]
        assert again.data.dtype == array.dtype and again.data.shape == array.shape
        assert hash_of_array(again.data) == hash_of_array(array)


def test_payloads_of_nans_survive():
    data = np.array([0x7FC00001, 0xFFC00000, 0x7FC00000, 0x3DCCCCCD], np.uint32).view(np.float32)
    graph = wrapped(constant("c", data, DType.F32))
    assert "[0x7fc00001, 0xffc00000, nan, 0.1]" in print_graph(graph)
    np.testing.assert_array_equal(round_trip(graph).outputs[0].data.view(np.uint32), data.view(np.uint32))
    half = np.array([0x7FC1], np.uint16).view(ml_dtypes.bfloat16)
    assert round_trip(wrapped(constant("c", half, DType.BF16))).outputs[0].data.view(np.uint16)[0] == 0x7FC1


def test_small_floats_take_few_digits():
    assert "= [0.1, 1e-05]\n" in print_graph(
        wrapped(constant("c", np.array([0.1, 1e-5], np.float32), DType.F32))
    )


def test_names_of_any_kind():
    builder = Builder(Graph("a b"))
    for name in ("serving_default_x:0", 'a"b\\', "ü", "", "none", "//", "%x", "1"):
        value = Value(name, tensor(DType.F32, 2))
        builder.graph.inputs.append(value)
    builder.graph.outputs = list(builder.graph.inputs)
    builder.graph.output_names = [f"out {v.name}" for v in builder.graph.outputs]
    assert [v.name for v in round_trip(builder.graph).inputs] == [v.name for v in builder.graph.inputs]


def test_attributes_of_all_types():
    batch = sym("B", 1, 64)
    attrs = {
        "ints": (1, -2),
        "none": None,
        "flag": False,
        "text": 'x"\n`{}',
        "float": 1e-5,
        "special": (float("inf"), -float("inf"), float("nan"), -0.0),
        "type": DType.BF16,
        "types": (DType.F32, DType.I4),
        "dim": batch * 2 - 1,
        "dims": (batch, const(3), (batch + 1) // 2),
        "mixed": (1, batch),
        "empty": (),
        "nested": ((1, 2), (), ("a",)),
    }
    graph = Graph(inputs=[Value("x", tensor(DType.F32, batch))])
    node = Node("mystery", [graph.inputs[0], None], [], attrs)
    node.outputs = [Value("y", tensor(DType.F32, batch), node)]
    graph.nodes, graph.outputs = [node], node.outputs
    text = print_graph(graph)
    again = parse_graph(text, check=False)
    assert print_graph(again) == text
    read = again.nodes[0].attrs
    assert {k: v for k, v in read.items() if k != "special"} == {
        k: v for k, v in attrs.items() if k != "special"
    }
    assert repr(read["special"]) == repr(attrs["special"])
    assert all(type(read[k]) is type(attrs[k]) for k in attrs)
    assert "dims=(B, 3, ((B + 1) // 2))" in text and "dim=`2*B - 1`" in text


def test_attributes_without_a_text_form_are_refused():
    graph = single_op_graph("transpose", (np.zeros((2, 3), np.float32),), {"perm": (1, 0)})
    graph.nodes[0].attrs["perm"] = np.array([1, 0])
    with pytest.raises(TypeError, match="ndarray has no text form"):
        print_graph(graph)


def test_layouts():
    channels_last = Value("x", tensor(DType.F32, 1, 64, 9, 9), layout=Layout((0, 2, 3, 1)))
    blocked = Value(
        "y", tensor(DType.F32, 1, 64, 9, 9), layout=blocked_channels(4, 16, ((0, 0), (0, 0), (1, 1), (2, 0)))
    )
    graph = Graph(inputs=[channels_last, blocked], outputs=[channels_last])
    assert "%x: f32[1, 64, 9, 9]{0231}, %y: f32[1, 64, 9, 9]{0123_b1x16_h2:1:1_h3:2:0}" in print_graph(graph)
    again = round_trip(graph)
    assert [v.layout for v in again.inputs] == [channels_last.layout, blocked.layout]


def test_symbolic_contents_are_printed_only_where_nothing_else_tells_them():
    batch = sym("B", 1)
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.I64, 2))
    x.elements = (batch, const(3))
    builder.input("z", tensor(DType.F32, batch))
    builder.graph.outputs = [builder.op("add", x, builder.const([1, 1]))]
    text = print_graph(builder.graph)
    assert "%x: i64[2] = (B, 3)" in text and "} : i64[2] =" not in text
    assert round_trip(builder.graph).outputs[0].elements == (batch + 1, const(4))


def test_facts_about_symbols():
    builder = Builder(Graph())
    sequence = sym("S", 0, None, 8)
    builder.input("x", tensor(DType.F32, sym("B", 2, 9), sequence))
    builder.graph.symbols = {"N": const(4), "Q": sym("Q", -3, 3), "H": sequence * 2}
    assert " where B in 2..9, N = 4, Q in -3..3, S in 0.. by 8, H = 2*S {" in print_graph(builder.graph)
    again = round_trip(builder.graph)
    assert again.symbols["N"] == 4 and again.inputs[0].shape[1].divisor() == 8


def test_symbolic_bounds_come_after_what_they_mention():
    batch = sym("Z", 1)
    count = sym("N", 0, None, bound=batch + 1)
    inner = sym("A", 0, 9, 3, bound=count)
    builder = Builder(Graph())
    builder.input("x", tensor(DType.F32, inner, count, batch))
    assert "where Z in 1.., N in 0.. below Z + 1, A in 0..9 by 3 below N {" in print_graph(builder.graph)
    read = round_trip(builder.graph).inputs[0].shape[0].as_sym
    assert read.bound.as_sym.name == "N" and read.bound.as_sym.bound == batch + 1


def test_recipes_and_the_weights_that_they_start_from():
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    steps = (
        RecipeNode("weight", ("w\n",)),
        RecipeNode("transpose", (0,), {"perm": (1, 0)}),
        RecipeNode("cast", (1,), {"dtype": "f32"}),
    )
    value = constant("w.t", data.T.copy(), DType.F32, Recipe(steps))
    graph = wrapped(value, weights={"w\n": data, "big": np.zeros(99)})
    text = print_graph(graph)
    assert 'from {weight("w\\n"); transpose(#0) {perm=[1, 0]}; cast(#1) {dtype="f32"}}\n' in text
    again = round_trip(graph)
    assert again.outputs[0].recipe == value.recipe
    np.testing.assert_array_equal(again.weights["w\n"], data)


LOOP = """\
graph @main(%n: i64[], %x: f32[B]) -> f32[B] where B in 1.. {
  %c = lt(%n, @k) : bool[]
  %y = if(%c) : f32[B] {
    else() {
      %a, %b = loop(%n, none, %x) : f32[B], i64[N] {
        body(%i: i64[], %go: bool[], %s: f32[B]) {
          %t = add(%s, %x) : f32[B]
          return %go, %t, %i
        }
      }
      return %a
    }
    then @other() {
      return %x
    }
  }
  return %y
}
const @k: i64[] = 3
"""


def test_nested_graphs():
    graph = parse_graph(LOOP.replace("B in 1..", "B in 1.., N in 0.."))
    assert print_graph(graph) == LOOP.replace("B in 1..", "B in 1.., N in 0..")
    assert graph.nodes[1].graphs["then"].name == "other"
    assert graph.captured() == []
    assert [v.name for v in graph.nodes[1].graphs["else"].captured()] == ["n", "x"]
    round_trip(graph)


def test_locs_can_be_left_out():
    graph = single_op_graph("relu", (np.zeros(3, np.float32),), {})
    graph.nodes[0].loc = Loc("m.onnx", ("/a/Relu", "b, c"))
    assert '// ["m.onnx", "/a/Relu", "b, c"]' in print_graph(graph)
    assert "//" not in print_graph(graph, locs=False)
    assert round_trip(graph).nodes[0].loc == graph.nodes[0].loc


def test_comments_and_blank_lines_are_skipped():
    graph = parse_graph("// a comment\n\ngraph @g(%x: f32[2]) -> f32[2] {\n  // another\n  return %x\n}\n")
    assert graph.outputs == graph.inputs


def test_types_with_equal_dims_share_expressions_exactly():
    """An expression that would simplify further when computed anew is read back as it was."""
    n = sym("N", 1)
    builder = Builder(Graph())
    builder.input("n", Type(DType.F32, (n,)))
    for number in range(1, 9):
        builder.input(f"x{number}", Type(DType.F32, ((n * number + 3) // (number + 1) % 5,)))
    again = round_trip(builder.graph)
    assert [v.shape for v in again.inputs] == [v.shape for v in builder.graph.inputs]


def test_equal_bytes_have_one_hash_whatever_their_type_and_shape():
    data = np.arange(40, dtype=np.int32)
    values = [
        constant("a", data, DType.I32),
        constant("b", data.reshape(4, 10), DType.I32),
        constant("c", data.view(np.float32).reshape(2, 20), DType.F32),
        constant("d", data.view(np.int64), DType.I64),
    ]
    again = round_trip(Graph(outputs=values))
    assert [v.data.shape for v in again.outputs] == [(40,), (4, 10), (2, 20), (20,)]
