"""fuse-attention keeps the meaning of exported attention in its many forms, and leaves alone what only looks
like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.symbolic import sym, to_expr
from hagane.ir import interpreter
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Type, Value
from hagane.passes.base import run_passes
from hagane.passes.fuse_attention import FuseAttention
from hagane.passes.strided_views import strided_view

Array = np.ndarray[Any, Any]


class Written:
    """A graph in the making with values for its inputs."""

    def __init__(self) -> None:
        self.graph = Graph("attention")
        self.builder = Builder(self.graph)
        self.feed: dict[str, Array] = {}

    def input(self, name: str, *dims: Any, dtype: DType = DType.F32) -> Value:
        shape = [d if isinstance(d, int) else {"b": 2, "s": 5, "t": 7}[d] for d in dims]
        rng = np.random.default_rng(len(self.feed))
        numbers = rng.standard_normal(shape)
        self.feed[name] = (numbers > 0) if dtype is DType.BOOL else numbers.astype(np.float32)
        symbols = tuple(to_expr(d) if isinstance(d, int) else sym(d, 1) for d in dims)
        return self.builder.input(name, Type(dtype, symbols))

    def op(self, op: str, *inputs: Value, **attrs: Any) -> Value:
        return self.builder.op(op, *inputs, **attrs)

    def number(self, value: float) -> Value:
        return self.builder.const(np.float32(value))

    def heads(self, name: str, length: str, perm: tuple[int, ...]) -> Value:
        x = self.op("reshape", self.input(name, "b", length, 12), shape=(sym("b", 1), sym(length, 1), 3, 4))
        return self.op("transpose", x, perm=perm)

    def qkv(self) -> tuple[Value, Value, Value]:
        keys, rows = (0, 2, 3, 1), (0, 2, 1, 3)
        return self.heads("q", "s", rows), self.heads("k", "t", keys), self.heads("v", "t", rows)

    def finish(self, y: Value, *, fused: bool = True) -> Graph:
        """Runs the pass, compares with the graph before, returns the graph after."""
        self.graph.outputs = [y]
        before = interpreter.run(self.graph, self.feed)
        run_passes(self.graph, [FuseAttention()])
        regions = [n for n in self.graph.nodes if n.op == "region"]
        assert len(regions) == int(fused)
        after = interpreter.run(self.graph, self.feed)
        for a, b in zip(before.values(), after.values(), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
        return self.graph


def plain(w: Written) -> Value:
    q, k, v = w.qkv()
    scores = w.op("mul", w.op("matmul", q, k), w.number(0.5))
    y = w.op("matmul", w.op("softmax", scores, axis=3), v)
    return w.op("transpose", y, perm=(0, 2, 1, 3))


def masked(w: Written) -> Value:
    q, k, v = w.qkv()
    scores = w.op("div", w.op("matmul", q, k), w.number(1.7))
    scores = w.op("add", w.op("add", w.input("m", "b", 1, 1, "t"), scores), w.input("p", 1, 3, "s", "t"))
    return w.op("matmul", w.op("softmax", scores, axis=-1), v)


def scaled_operands(w: Written) -> Value:
    """As torch exports scaled_dot_product_attention; a row that is hidden as a whole gives zeros."""
    q, k, v = w.qkv()
    q, k = (w.op("mul", x, w.number(0.7)) for x in (q, k))
    hidden = w.op("where", w.input("m", "b", 1, "s", "t", dtype=DType.BOOL), w.number(0), w.number(-np.inf))
    w.feed["m"][:, :, 2] = False
    weights = w.op("softmax", w.op("add", w.op("matmul", q, k), hidden), axis=3)
    weights = w.op("where", w.op("isnan", weights), w.number(0), weights)
    return w.op("matmul", weights, v)


def kept(w: Written) -> Value:
    q, k, v = w.qkv()
    scores = w.op("mul", w.op("matmul", q, k), w.number(0.5))
    keep = w.input("m", "s", "t", dtype=DType.BOOL)
    w.feed["m"][:, 0] = True
    scores = w.op("where", keep, scores, w.number(-np.inf))
    return w.op("matmul", w.op("softmax", scores, axis=3), v)


def pixels(w: Written) -> Value:
    """Rank 3, keys and values along the last axis, the product taken from the other side."""
    q, k, v = w.input("q", "b", 4, "s"), w.input("k", "b", 4, "t"), w.input("v", "b", 6, "t")
    scores = w.op("matmul", w.op("transpose", q, perm=(0, 2, 1)), k)
    weights = w.op("transpose", w.op("softmax", scores, axis=2), perm=(0, 2, 1))
    return w.op("matmul", v, weights)


@pytest.mark.parametrize("write", [plain, masked, scaled_operands, kept, pixels])
def test_forms(write: Callable[[Written], Value]) -> None:
    w = Written()
    graph = w.finish(write(w))
    (region,) = [n for n in graph.nodes if n.op == "region"]
    assert {v.name for v in region.inputs if v is not None} >= {"q", "k", "v"}  # nothing is moved before it
    assert not any(n.op in ("transpose", "softmax") for n in graph.nodes)


def shared_weights(w: Written) -> Value:
    q, k, v = w.qkv()
    weights = w.op("softmax", w.op("matmul", q, k), axis=3)
    return w.op("add", w.op("matmul", weights, v), w.op("reduce_sum", weights, axes=(3,), keepdims=True))


def masked_before_scaling(w: Written) -> Value:
    q, k, v = w.qkv()
    scores = w.op("add", w.op("matmul", q, k), w.input("m", "b", 1, 1, "t"))
    return w.op("matmul", w.op("softmax", w.op("mul", scores, w.number(2)), axis=3), v)


def other_axis(w: Written) -> Value:
    q, k, v = w.qkv()
    return w.op("matmul", w.op("softmax", w.op("matmul", q, k), axis=2), v)


def spread_heads(w: Written) -> Value:
    q, k, v = w.qkv()
    one = w.op("slice", k, starts=(0, 0, 0, 0), steps=(1,) * 4, sizes=(*k.shape[:1], 1, *k.shape[2:]))
    return w.op("matmul", w.op("softmax", w.op("matmul", q, one), axis=3), v)


@pytest.mark.parametrize("write", [shared_weights, masked_before_scaling, other_axis, spread_heads])
def test_lookalikes(write: Callable[[Written], Value]) -> None:
    w = Written()
    w.finish(write(w), fused=False)


def test_a_graph_output_stays() -> None:
    w = Written()
    q, k, v = w.qkv()
    weights = w.op("softmax", w.op("matmul", q, k), axis=3)
    w.graph.outputs = [w.op("matmul", weights, v), weights]
    assert not FuseAttention().run(w.graph)


def test_views_stop_where_memory_would_move() -> None:
    w = Written()
    x = w.input("x", 2, 6, 8)
    swapped = w.op("transpose", x, perm=(0, 2, 1))
    assert strided_view(swapped, False).source is x
    merged = w.op("reshape", swapped, shape=(2, 48))
    assert strided_view(merged, False).source is swapped  # its memory, once written
    again = w.op("reshape", merged, shape=(2, 8, 6))
    assert strided_view(again, False).source is x
    doubled = w.op("mul", again, w.number(2.0))
    assert strided_view(doubled, False).source is doubled
    assert strided_view(doubled, True).scale == 2.0
