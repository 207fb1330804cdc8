"""Ragged batches and collectives: a program of each, and what becomes of it."""

from itertools import pairwise

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.errors import ModelError, RunError
from hagane.ir.interpreter import run
from hagane.ir.parse import parse_graph
from hagane.ir.text import print_graph
from hagane.passes.base import run_passes
from hagane.passes.fuse import Fuse
from hagane.passes.pipelines import SIMPLIFY

# Attention over the tokens of all rows at once: tokens of different rows don't see each other. Then the last
# token of each row.
RAGGED = """\
graph @ragged(%x: f32[T, 4], %offsets: i64[R]) -> (y: f32[T, 4], last: f32[R - 1, 4]) \
where R in 2.., T in 1.. {
  %rows = ragged_rows(%offsets) {tokens=`T`} : i64[T]
  %column = reshape(%rows) {shape=(T, 1)} : i64[T, 1]
  %same = eq(%column, %rows) : bool[T, T]
  %turned = transpose(%x) {perm=[1, 0]} : f32[4, T]
  %dots = matmul(%x, %turned) : f32[T, T]
  %masked = where(%same, %dots, @low) : f32[T, T]
  %weights = softmax(%masked) {axis=1} : f32[T, T]
  %y = matmul(%weights, %x) : f32[T, 4]
  %ends = slice(%offsets) {sizes=(R - 1), starts=[1], steps=[1]} : i64[R - 1]
  %lasts = sub(%ends, @one) : i64[R - 1]
  %last = gather(%y, %lasts) {axis=0} : f32[R - 1, 4]
  return %y, %last
}
const @low: f32[] = -inf
const @one: i64[] = 1
"""

SHARDED = """\
graph @shard(%x: f16[T, 16], %w: f16[16, 8]) -> f16[T, 8] where T in 1..64 {
  %0 = matmul(%x, %w) : f16[T, 8]
  %1 = collective(%0) {axis="tp", kind="all_reduce_sum", size=4} : f16[T, 8]
  return %1
}
"""


@pytest.mark.parametrize("passes", [(), (*SIMPLIFY, Fuse())], ids=["as read", "fused"])
def test_a_ragged_batch(passes):
    graph = parse_graph(RAGGED)
    assert print_graph(graph) == RAGGED
    run_passes(graph, passes)
    x = np.random.default_rng(0).standard_normal((7, 4)).astype(np.float32)
    offsets = np.array([0, 3, 4, 7])
    results = run(graph, {"x": x, "offsets": offsets})
    for first, end in pairwise(offsets):
        row = x[first:end].astype(np.float64)
        scores = np.exp(row @ row.T)
        wanted = scores / scores.sum(axis=1, keepdims=True) @ row
        np.testing.assert_allclose(results["y"][first:end], wanted, rtol=1e-5)
    np.testing.assert_array_equal(results["last"], results["y"][offsets[1:] - 1])


def test_tokens_behind_the_last_row_belong_to_none():
    graph = parse_graph(
        "graph @g(%o: i64[4]) -> i64[9] {\n  %r = ragged_rows(%o) {tokens=9} : i64[9]\n  return %r\n}\n"
    )
    rows = run(graph, {"o": np.array([0, 2, 2, 5])})["r"]
    assert rows.tolist() == [0, 0, 2, 2, 2, 3, 3, 3, 3]


def test_a_collective_passes_through_the_compiler():
    graph = parse_graph(SHARDED)
    assert print_graph(graph) == SHARDED
    run_passes(graph, (*SIMPLIFY, Fuse()))
    assert [n.op for n in graph.nodes] == ["region", "collective"]


def test_one_process_computes_no_collective_of_several_ranks():
    graph = parse_graph(SHARDED)
    feed = {"x": np.ones((2, 16), np.float16), "w": np.ones((16, 8), np.float16)}
    with pytest.raises(RunError, match="all_reduce_sum over 4 ranks of mesh axis 'tp'"):
        run(graph, feed)
    alone = parse_graph(SHARDED.replace("size=4", "size=1"))
    assert run(alone, feed)["1"].tolist() == np.full((2, 8), 16).tolist()


def test_the_builder_refuses_a_collective_and_says_where():
    pytest.importorskip("llvmlite")
    from hagane.build.builder import build_graph
    from hagane.build.options import BuildOptions
    from hagane.core.errors import BuildError

    text = SHARDED.replace("size=4} : f16[T, 8]", 'size=4} : f16[T, 8]  // ["llm.onnx", "/layer0/AllReduce"]')
    with pytest.raises(BuildError, match="collective") as error:
        build_graph(parse_graph(text), BuildOptions())
    assert "/layer0/AllReduce" in str(error.value)


@pytest.mark.parametrize(
    ("attrs", "result", "message"),
    [
        ('axis="tp", kind="all_gather", size=4, dim=1', "f16[T, 32]", ""),
        ('axis="tp", kind="reduce_scatter_sum", size=4, dim=-1', "f16[T, 2]", ""),
        ('axis="tp", kind="all_gather", size=4, dim=1', "f16[T, 8]", "should have type f16"),
        ('axis="tp", kind="reduce_scatter_sum", size=3, dim=1', "f16[T, 2]", "can't be split among 3 ranks"),
        ('axis="tp", kind="sum", size=4', "f16[T, 8]", "collective has no kind 'sum'"),
        ('axis=0, kind="all_reduce_sum", size=4', "f16[T, 8]", "the name of a mesh axis"),
    ],
)
def test_types_of_collectives(attrs, result, message):
    head = f"graph @g(%x: f16[T, 8]) -> {result} where T in 1.. {{\n"
    text = f"{head}  %y = collective(%x) {{{attrs}}} : {result}\n  return %y\n}}\n"
    if not message:
        parse_graph(text)
        return
    with pytest.raises(ModelError, match=message):
        parse_graph(text)
