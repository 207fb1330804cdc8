"""The generic tactic on every op that has a tensor expression: all samples, static and symbolic, both vector
widths.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hagane.core.dtypes import from_numpy
from hagane.core.symbolic import Expr, sym
from hagane.core.targets import can_run, parse_target
from hagane.ir import interpreter
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Value, tensor
from hagane.ir.registry import OpDef, Sample, all_ops
from hagane.kernels.llvm.generic import TACTIC
from tests.differential.harness import Case, Runner, set_layouts

Array = np.ndarray[Any, Any]
# unit round-off times a few functions in a row; errors are relative to the element and to the largest one
_RELATIVE = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6, "float64": 1e-12}


def _cases() -> list[Any]:
    return [
        pytest.param(op, sample, symbolic, id=f"{op.name}-{k}-{'symbolic' if symbolic else 'static'}")
        for op in all_ops()
        if op.define is not None
        for k, sample in enumerate(op.samples())
        for symbolic in ((False, True) if sample.dynamic else (False,))
    ]


def _case(op: OpDef, sample: Sample, symbolic: bool) -> Case:
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


@pytest.mark.parametrize("target", ["cpu:x86-64-v4", "cpu:x86-64-v3"])
@pytest.mark.parametrize(("op", "sample", "symbolic"), _cases())
def test_generic_kernel_matches_reference(op: OpDef, sample: Sample, symbolic: bool, target: str) -> None:
    machine = parse_target(target)
    if not can_run(machine):
        pytest.skip(f"this CPU does not run {target}")
    case = _case(op, sample, symbolic)
    region = case.region()
    if not TACTIC.supports(region, machine):
        pytest.skip("needs an element type that no CPU kernel computes on")
    set_layouts(region, TACTIC, machine)
    runner = Runner(region, TACTIC.lower(region, machine, {}), machine, case)
    want = list(interpreter.run(case.graph, case.feed).values())
    for threads in (1, 3):
        for got, expected in zip(runner.run(threads), want, strict=True):
            _check(got, expected)


def _check(got: Array, want: Array) -> None:
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    relative = _RELATIVE.get(want.dtype.name)
    if relative is None or want.size == 0:
        np.testing.assert_array_equal(got, want)
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    np.testing.assert_array_equal(a[~finite], b[~finite])
    largest = np.abs(b[finite]).max(initial=0.0)
    assert (np.abs(a[finite] - b[finite]) <= relative * (4 * np.abs(b[finite]) + largest / 2) + 1e-30).all()
