"""Engines on tensors of 8-bit and 4-bit types: moved, chosen, compared, converted, as in the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hagane.build.builder import build_graph
from hagane.build.options import BuildOptions
from hagane.core.dtypes import DType
from hagane.core.symbolic import sym
from hagane.ir import interpreter
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, tensor
from hagane.kernels.llvm.narrow import REGISTERS
from hagane.runtime.session import Session

Array = np.ndarray[Any, Any]
COLUMNS = 19


def _codes(dtype: DType, rows: int, seed: int = 0) -> Array:
    """Any numbers of the type; of floats only finite ones, as a sum follows."""
    codes = np.random.default_rng(seed).integers(0, 1 << dtype.bits, (rows, COLUMNS)).astype(np.uint8)
    array = codes.view(dtype.np)
    finite = np.isfinite(array.astype(np.float32))
    return np.where(finite, codes, np.uint8(1)).view(dtype.np)


def _graph(dtype: DType) -> Graph:
    builder = Builder(Graph(output_names=["moved", "chosen", "best", "sums", "quantized"]))
    rows = sym("N", 1)
    x = builder.input("x", tensor(dtype, rows, COLUMNS))
    scales = builder.input("scales", tensor(DType.F32, COLUMNS))
    other = builder.const(_codes(dtype, 3, seed=1), name="other")
    joined = builder.op(
        "concat", builder.op("transpose", x, perm=(1, 0)), builder.op("transpose", other, perm=(1, 0)), axis=1
    )
    picked = builder.op("gather", joined, builder.const(np.array([18, 0, 7])), axis=0)
    chosen = builder.op(
        "where",
        builder.op("gt", x, builder.op("slice", other, starts=(0, 0), steps=(1, 1), sizes=(1, COLUMNS))),
        x,
        builder.scalar_like(x, 1),
    )
    wide = builder.op("cast", x, to=DType.F32)
    attrs: dict[str, Any] = {"axis": 1, "block": None}
    real = builder.op("dequantize", x, scales, None, to=DType.F32, **attrs)
    again = builder.op("quantize", real, scales, None, to=dtype, **attrs)
    best = builder.op("argmax", x, axis=1, keepdims=False, select_last=False)
    sums = builder.op("reduce_sum", wide, axes=(1,), keepdims=False)
    builder.graph.outputs = [picked, chosen, best, sums, again]
    return builder.graph


@pytest.mark.parametrize("dtype", REGISTERS, ids=str)
def test_engine(dtype: DType) -> None:
    wanted = _graph(dtype)
    engine = build_graph(_graph(dtype), BuildOptions(verify="off"))
    scales = (2.0 ** np.random.default_rng(2).integers(-3, 3, COLUMNS)).astype(np.float32)
    with Session(engine.image, threads=2) as session:
        for rows in (1, 5, 40):
            feed: dict[str, Array] = {"x": _codes(dtype, rows, seed=rows), "scales": scales}
            got, want = session.run(feed), interpreter.run(wanted, feed)
            for name, expected in want.items():
                assert got[name].dtype == expected.dtype
                a, b = got[name].astype(np.float64), expected.astype(np.float64)
                largest = np.abs(feed["x"].astype(np.float64)).sum(axis=1).max()
                bound = COLUMNS * 2.0**-24 * largest if name == "sums" else 0.0
                np.testing.assert_allclose(a, b, rtol=0, atol=bound, err_msg=name)
