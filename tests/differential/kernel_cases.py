"""Every op that has a tensor expression, with its samples, as cases for the generic tactics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hagane.core.dtypes import from_numpy
from hagane.core.symbolic import Expr, sym
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Value, tensor
from hagane.ir.registry import OpDef, Sample, all_ops
from tests.differential.harness import Case

Array = np.ndarray[Any, Any]
# unit round-off times a few functions in a row; errors are relative to the element and to the largest one
_RELATIVE = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6, "float64": 1e-12}


def op_cases() -> list[Any]:
    return [
        pytest.param(op, sample, symbolic, id=f"{op.name}-{k}-{'symbolic' if symbolic else 'static'}")
        for op in all_ops()
        if op.define is not None
        for k, sample in enumerate(op.samples())
        for symbolic in ((False, True) if sample.dynamic else (False,))
    ]


def op_case(op: OpDef, sample: Sample, symbolic: bool) -> Case:
    builder = Builder(Graph(op.name))
    values: list[Value | None] = []
    feed: dict[str, Array] = {}
    for number, given in enumerate(sample.inputs):
        if given is None:
            values.append(None)
            continue
        array = np.asarray(given)
        shape: list[int | Expr] = [
            sym(f"d{number}_{axis}", 1) if symbolic and (number, axis) in sample.dynamic else extent
            for axis, extent in enumerate(array.shape)
        ]
        value = builder.input(f"x{number}", tensor(from_numpy(array.dtype), *shape))
        values.append(value)
        feed[value.name] = array
    builder.graph.outputs = builder.ops(op.name, *values, **sample.attrs)
    return Case(builder.graph, feed)


def check_close(got: Array, want: Array, factor: float = 1.0) -> None:
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    relative = factor * _RELATIVE.get(want.dtype.name, 0.0)
    if (
        from_numpy(want.dtype).is_float and want.dtype.itemsize == 1
    ):  # NumPy doesn't know that NaN is NaN here
        got, want = got.astype(np.float64), want.astype(np.float64)
    if not relative or want.size == 0:
        np.testing.assert_array_equal(got, want)
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    np.testing.assert_array_equal(a[~finite], b[~finite])
    largest = np.abs(b[finite]).max(initial=0.0)
    assert (np.abs(a[finite] - b[finite]) <= relative * (4 * np.abs(b[finite]) + largest / 2) + 1e-30).all()
