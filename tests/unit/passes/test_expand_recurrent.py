"""Layers without a kernel become loops, or layers in f32, and mean what they did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.build.builder import build_graph
from hagane.build.options import BuildOptions
from hagane.core.dtypes import DType, from_numpy
from hagane.core.symbolic import const, sym
from hagane.core.targets import parse_target
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Type
from hagane.ir.interpreter import run
from hagane.ir.layout import Layouts
from hagane.ir.region import Region
from hagane.ir.registry import Sample, op_def
from hagane.ir.verify import verify
from hagane.kernels.catalog import CpuModel
from hagane.ops.recurrent import NUM_GATES
from hagane.passes.expand_recurrent import ExpandRecurrent
from hagane.runtime.session import Session

Array = np.ndarray[Any, Any]
NAMES = ("x", "w", "r", "bias", "lengths", "h", "c", "peepholes")
CASES = [(op, k) for op in NUM_GATES for k in range(len(list(op_def(op).samples())))]


@dataclass(frozen=True)
class Lacking:
    """A target without kernels for recurrent layers of the given types."""

    dtypes: tuple[DType, ...]

    def layouts(self, region: Region) -> Layouts:
        raise NotImplementedError

    def computes(self, region: Region) -> bool:
        return region.outputs[0].dtype not in self.dtypes


def layer(
    op: str, sample: Sample, dtype: DType, computed: bool, dynamic: bool = False
) -> tuple[Graph, dict[str, Array]]:
    """The layer of a sample in another float type, with weights as constants or as inputs."""
    builder = Builder(Graph(output_names=["y", "h", "c"][: 3 if op == "lstm" else 2]))
    feed: dict[str, Array] = {}
    operands = []
    dims = {"x": {0: sym("S"), 1: sym("B")}, "lengths": {0: sym("B")}, "h": {1: sym("B")}, "c": {1: sym("B")}}
    for name, array in zip(NAMES, sample.inputs, strict=False):
        if array is None:
            operands.append(None)
            continue
        data = array.astype(dtype.np) if array.dtype.kind == "f" else array
        if not computed and name not in ("x", "lengths", "h", "c"):
            operands.append(builder.const(data, name=name))
            continue
        feed[name] = data
        named = dims.get(name, {}) if dynamic else {}
        shape = tuple(named.get(axis, const(extent)) for axis, extent in enumerate(data.shape))
        operands.append(builder.input(name, Type(from_numpy(data.dtype), shape)))
    builder.graph.outputs = builder.ops(op, *operands, **sample.attrs)
    return builder.graph, feed


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize(("op", "number"), CASES)
def test_a_loop_means_the_same(op: str, number: int, dtype: DType) -> None:
    sample = list(op_def(op).samples())[number]
    graph, feed = layer(op, sample, dtype, computed=True, dynamic=bool(sample.dynamic))
    before = run(graph, feed)
    assert ExpandRecurrent(Lacking((dtype,))).run(graph)
    verify(graph)
    assert not any(node.op in NUM_GATES for node in graph.walk())
    # f32: each step of the loop rounds its state
    bound = 2e-6 if dtype is DType.F32 else 1e-13
    for name, value in run(graph, feed).items():
        np.testing.assert_allclose(value, before[name], rtol=0, atol=bound, err_msg=name)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_halves_are_computed_in_f32(dtype: DType) -> None:
    """By the kernel for f32, with the same result to the last rounding; constant weights stay constants."""
    sample = list(op_def("lstm").samples())[1]
    graph, feed = layer("lstm", sample, dtype, computed=False)
    before = run(graph, feed)
    assert ExpandRecurrent(Lacking((dtype,))).run(graph)
    verify(graph)
    [wide] = [node for node in graph.nodes if node.op == "lstm"]
    assert wide.output.dtype is DType.F32
    assert wide.input(1).is_const
    assert wide.input(2).is_const
    for name, value in run(graph, feed).items():
        assert value.dtype == before[name].dtype
        np.testing.assert_array_equal(value.view(np.uint16), before[name].view(np.uint16), err_msg=name)


def test_what_has_a_kernel_stays() -> None:
    sample = next(iter(op_def("gru").samples()))
    graph, _ = layer("gru", sample, DType.F32, computed=False)
    assert not ExpandRecurrent(Lacking((DType.F64,))).run(graph)
    assert not ExpandRecurrent(CpuModel(parse_target("cpu:x86-64-v3"))).run(graph)
    assert ExpandRecurrent(CpuModel(parse_target("cpu:aarch64"))).run(graph)
    verify(graph)


@pytest.mark.parametrize(
    ("op", "dtype", "computed", "bound"),
    [
        ("lstm", DType.F32, True, 4e-6),
        ("gru", DType.F64, False, 1e-13),
        ("rnn", DType.F16, True, 2.0**-9),
        ("lstm", DType.BF16, False, 2.0**-7),
    ],
)
def test_engines_compute_them(op: str, dtype: DType, computed: bool, bound: float) -> None:
    """At two lengths and batches of one engine. Values are below 2, so the bound is one rounding of y."""
    first = next(iter(op_def(op).samples()))
    graph, _ = layer(op, first, dtype, computed, dynamic=True)
    wanted, _ = layer(op, first, dtype, computed, dynamic=True)
    engine = build_graph(graph, BuildOptions(verify="off"))
    rng = np.random.default_rng(1)
    with Session(engine.image, threads=2) as session:
        for length, batch in ((6, 3), (1, 1), (9, 2)):
            x = rng.uniform(-1, 1, (length, batch, 5)).astype(dtype.np)
            _, feed = layer(op, first, dtype, computed)
            feed["x"] = x
            expected = run(wanted, feed)
            for name, value in session.run(feed).items():
                wide = np.asarray(expected[name], np.float64)
                np.testing.assert_allclose(value.astype(np.float64), wide, rtol=0, atol=bound, err_msg=name)
