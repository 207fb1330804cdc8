"""Fourier transforms of constant length become products, and mean what they did."""

from __future__ import annotations

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.build.builder import build_graph
from hagane.build.options import BuildOptions
from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr, sym
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, tensor
from hagane.ir.interpreter import run
from hagane.ir.registry import Sample, op_def
from hagane.ir.verify import verify
from hagane.passes.base import run_passes
from hagane.passes.fourier_matrix import MOST_ELEMENTS
from hagane.passes.pipelines import SIMPLIFY
from hagane.runtime.session import Session

SAMPLES = list(op_def("dft").samples())
PLAIN = {"inverse": False, "onesided": False, "length": None}


def transform(dtype: DType, shape: tuple[int | Expr, ...], axis: int, **attrs: object) -> Graph:
    builder = Builder(Graph(output_names=["y"]))
    x = builder.input("x", tensor(dtype, *shape))
    given: dict[str, object] = {**PLAIN, **attrs, "axis": axis}
    builder.graph.outputs = [builder.op("dft", x, **given)]  # type: ignore[arg-type]
    return builder.graph


@pytest.mark.parametrize("sample", SAMPLES, ids=range(len(SAMPLES)))
def test_a_product_means_the_same(sample: Sample) -> None:
    [x] = sample.inputs
    assert x is not None
    graph = transform(DType.F64, x.shape, **sample.attrs)
    before = run(graph, {"x": x})["y"]
    run_passes(graph, SIMPLIFY)
    verify(graph)
    ops = [node.op for node in graph.nodes]
    assert "matmul" in ops
    assert "dft" not in ops
    np.testing.assert_allclose(run(graph, {"x": x})["y"], before, rtol=0, atol=1e-13)


def test_unknown_and_very_long_transforms_stay() -> None:
    long = transform(DType.F32, (1, MOST_ELEMENTS, 1), 1)
    for graph in (long, transform(DType.F32, (2, sym("L", 1), 1), 1)):
        run_passes(graph, SIMPLIFY)
        assert [node.op for node in graph.nodes] == ["dft"]


@pytest.mark.parametrize("length", [40, sym("L", 1)], ids=["constant", "dynamic"])
def test_absent_frequencies_are_zero(length: int | Expr) -> None:
    """Of a strong wave in f32 nothing leaks into other frequencies but its own rounding."""
    graph = transform(DType.F32, (sym("N", 1), length, 1), 1)
    wanted = transform(DType.F32, (sym("N", 1), length, 1), 1)
    engine = build_graph(graph, BuildOptions(verify="off"))
    wave = np.rint(1000 * np.cos(2 * np.pi * 5 * np.arange(40) / 40)).astype(np.float32)
    x = np.stack([wave, np.roll(wave, 3), np.full(40, 450, np.float32)])[:, :, None]
    with Session(engine.image, threads=2) as session:
        got = session.run({"x": x})["y"]
    want = run(wanted, {"x": x})["y"]
    np.testing.assert_allclose(got, want, rtol=2.0**-23, atol=1e-9)
    np.testing.assert_allclose(got[2, 1:], 0, rtol=0, atol=1e-9)
