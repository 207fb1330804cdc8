"""The oracle: float64 inside, types and dims at the borders, control flow, and its error messages."""

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.errors import RunError
from hagane.ir.interpreter import run
from hagane.ir.parse import parse_graph

ADD = """\
graph @main(%x: f16[B, 2], %y: f16[B, 2]) -> sum: f16[B, 2] where B in 1.. {
  %0 = add(%x, %y) : f16[B, 2]
  %1 = sub(%0, %y) : f16[B, 2]
  return %1
}
"""


def test_floats_are_wide_inside_and_rounded_at_the_end():
    x, y = np.full((3, 2), 1.001, np.float16), np.full((3, 2), 3000, np.float16)
    result = run(parse_graph(ADD), {"x": x, "y": y})["sum"]
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, x)  # in f16, 3001.001 - 3000 would be 2


def test_a_cast_rounds_on_the_way():
    text = ADD.replace("%1 = sub(%0, %y)", "%2 = cast(%0) {to=bf16} : bf16[B, 2]\n  %1 = cast(%2) {to=f16}")
    result = run(
        parse_graph(text), {"x": np.full((1, 2), 1, np.float16), "y": np.full((1, 2), 512, np.float16)}
    )
    assert result["sum"].tolist() == [[512, 512]]


def test_every_value_can_be_watched():
    seen = []
    x = np.ones((1, 2), np.float16)
    run(parse_graph(ADD), {"x": x, "y": x}, lambda value, array: seen.append((value.name, array.shape)))
    assert seen == [("0", (1, 2)), ("1", (1, 2))]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": (3, 2)}, "input 'y' is missing"),
        ({"x": (3, 2), "y": (3, 2, 1)}, "it should have rank 2"),
        ({"x": (3, 2), "y": (4, 2)}, r"input 'y' has shape \[4, 2\], expected \[3, 2\]"),
        ({"x": (3, 5), "y": (3, 5)}, r"input 'x' has shape \[3, 5\], expected \[3, 2\]"),
    ],
)
def test_inputs_that_do_not_fit(shapes, message):
    with pytest.raises(RunError, match=message):
        run(parse_graph(ADD), {name: np.zeros(shape, np.float16) for name, shape in shapes.items()})


def test_an_op_that_fails_is_named():
    text = """\
graph @main(%x: f32[3], %i: i64[1]) -> f32[1] {
  %0 = gather(%x, %i) {axis=0} : f32[1]  // ["m.onnx", "/pick/Gather"]
  return %0
}
"""
    with pytest.raises(RunError, match="gather failed in the interpreter") as error:
        run(parse_graph(text), {"x": np.zeros(3, np.float32), "i": np.array([9])})
    assert error.value.where == {"node": "/pick/Gather in m.onnx", "inputs": "float64[3], int64[1]"}


def test_dims_that_data_tells():
    text = """\
graph @main(%x: f32[B], %n: i64[]) -> (head: f32[N], next: i64[1]) where B in 1.., N in 0.. {
  bind_symbols(%n) {names=["N"]}
  %0 = slice(%x) {sizes=(N), starts=[0], steps=[1]} : f32[N]
  %1 = shape_values() {values=(N + B)} : i64[1]
  return %0, %1
}
"""
    results = run(parse_graph(text), {"x": np.arange(5, dtype=np.float32), "n": np.asarray(2)})
    assert results["head"].tolist() == [0, 1] and results["next"].tolist() == [7]


def test_loops_and_branches():
    text = """\
graph @main(%n: i64[], %x: f32[2]) -> (last: f32[2], all: f32[N, 2]) where N in 0.. {
  %last, %all = loop(%n, none, %x) : f32[2], f32[N, 2] {
    body(%i: i64[], %go: bool[], %s: f32[2]) {
      %odd = eq(%i, @one) : bool[]
      %t = if(%odd) : f32[2] {
        else() {
          %a = add(%s, %x) : f32[2]
          return %a
        }
        then() {
          return %s
        }
      }
      return %go, %t, %s
    }
  }
  return %last, %all
}
const @one: i64[] = 1
"""
    graph = parse_graph(text)
    x = np.array([1, 10], np.float32)
    results = run(graph, {"n": np.asarray(3), "x": x})
    np.testing.assert_array_equal(results["last"], 3 * x)
    np.testing.assert_array_equal(results["all"], [x, 2 * x, 2 * x])
    assert run(graph, {"n": np.asarray(0), "x": x})["all"].shape == (0, 2)
