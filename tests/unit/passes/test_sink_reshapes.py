"""Reshapes over axes of extent 1 disappear or end up last; the meaning stays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.symbolic import sym
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Value, tensor
from hagane.ir.interpreter import run
from hagane.ir.verify import verify
from hagane.passes.base import run_passes
from hagane.passes.pipelines import SIMPLIFY
from hagane.passes.sink_reshapes import SinkReshapes

RNG = np.random.default_rng(1)


def simplified(write: Callable[[Builder, Value], Value], *shape: object, data: tuple[int, ...]) -> list[str]:
    """Ops after simplifying what `write` makes of x; checks that the result is the same."""
    builder = Builder(Graph(output_names=["y"]))
    builder.graph.outputs = [write(builder, builder.input("x", tensor(DType.F32, *shape)))]
    x = RNG.normal(size=data).astype(np.float32)
    before = run(builder.graph, {"x": x})["y"]
    run_passes(builder.graph, SIMPLIFY)
    verify(builder.graph)
    np.testing.assert_allclose(run(builder.graph, {"x": x})["y"], before, rtol=1e-6)
    return [n.op for n in builder.graph.nodes]


def test_a_norm_with_dropped_axes_gets_one_rank():
    def norm(b: Builder, x: Value) -> Value:
        n = x.shape[0]
        mean = b.op("mul", b.op("reduce_sum", x, axes=(1,), keepdims=False), b.const(np.float32(1 / 8)))
        square = b.op("reduce_mean", b.op("mul", x, x), axes=(1,), keepdims=False)
        variance = b.op("sub", square, b.op("mul", mean, mean))
        back = b.op("reshape", variance, shape=(n, 1))
        inverse = b.op("reciprocal", b.op("sqrt", b.op("add", back, b.const(np.float32(1e-6)))))
        return b.op("mul", b.op("sub", x, b.op("reshape", mean, shape=(n, 1))), inverse)

    assert "reshape" not in simplified(norm, sym("N", 1), 8, data=(3, 8))


def test_what_drops_axes_at_the_end_stays_last():
    def relu(b: Builder, x: Value) -> Value:
        return b.op("relu", b.op("reduce_max", x, axes=(2, 3), keepdims=False))

    assert simplified(relu, 2, 3, 4, 5, data=(2, 3, 4, 5)) == ["reduce_max", "relu", "reshape"]


def test_constants_along_kept_axes_follow():
    weight = RNG.normal(size=(3, 1)).astype(np.float32)

    def scaled(b: Builder, x: Value) -> Value:
        flat = b.op("reshape", x, shape=(2, 3, 5))
        return b.op("reshape", b.op("mul", flat, b.const(weight)), shape=(2, 3, 5, 1))

    assert simplified(scaled, 2, 3, 1, 5, data=(2, 3, 1, 5)) == ["mul", "reshape"]


def test_values_of_other_shapes_keep_the_reshape():
    def spread(b: Builder, x: Value) -> Value:
        return b.op("add", b.op("reshape", x, shape=(4, 1)), b.const(np.ones((1, 3), np.float32)))

    assert simplified(spread, 4, data=(4,)) == ["reshape", "add"]

    def split(b: Builder, x: Value) -> Value:
        return b.op("relu", b.op("reshape", x, shape=(2, 6)))

    assert simplified(split, 3, 4, data=(3, 4)) == ["reshape", "relu"]


def test_sources_of_different_shapes_stay():
    builder = Builder(Graph())
    a = builder.op("reshape", builder.input("a", tensor(DType.F32, 2, 1, 3)), shape=(2, 3))
    b = builder.op("reshape", builder.input("b", tensor(DType.F32, 1, 2, 3)), shape=(2, 3))
    builder.graph.outputs = [builder.op("add", a, b)]
    assert not SinkReshapes().run(builder.graph)


def test_a_convolution_of_columns_becomes_one_of_rows():
    weight = RNG.normal(size=(6, 4, 5, 1)).astype(np.float32)

    def conv(b: Builder, x: Value) -> Value:
        attrs = {"strides": (2, 1), "dilations": (1, 1), "pads_begin": (1, 0), "pads_end": (2, 0)}
        y = b.op("conv", x, b.const(weight), None, group=1, **attrs)
        y = b.op("relu", b.op("add", y, b.const(np.ones((1, 6, 1, 1), np.float32))))
        return b.op("reshape", y, shape=y.shape[:3])

    assert simplified(conv, 2, 4, 9, 1, data=(2, 4, 9, 1)) == ["reshape", "conv", "relu"]
