"""Kernels whose order matters, against the interpreter: topk, nonzero, compress, cumsum, scatters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hagane.core.dtypes import from_numpy
from hagane.core.symbolic import to_expr
from hagane.core.targets import CpuTarget, can_run
from hagane.ir import interpreter
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Type
from hagane.ir.registry import Sample, op_def
from hagane.kernels.llvm import nonzero, scan, scatter, topk
from hagane.kernels.tactic import Tactic
from tests.differential.harness import Case, dims_of, prepare
from tests.unit.codegen.native import V3, V4

Array = np.ndarray[Any, Any]
TACTICS: dict[str, Tactic] = {
    "topk": topk.TACTIC,
    "nonzero": nonzero.TACTIC,
    "compress": nonzero.TACTIC,
    "cumsum": scan.TACTIC,
    "scatter_elements": scatter.TACTIC,
    "scatter_nd": scatter.TACTIC,
}


@pytest.fixture(params=[V4, V3], ids=["v4", "v3"])
def target(request: pytest.FixtureRequest) -> CpuTarget:
    found: CpuTarget = request.param
    if not can_run(found):
        pytest.skip(f"this machine doesn't run {found}")
    return found


def op_case(op: str, sample: Sample, dynamic: bool = False) -> Case:
    """One op over inputs with the sample's arrays; its dynamic dims are symbols, named alike where they
    agree."""
    builder = Builder(Graph(op))
    feed: dict[str, Array] = {}
    operands: list[Any] = []
    for number, array in enumerate(sample.inputs):
        if array is None:
            operands.append(None)
            continue
        name = f"x{number}"
        feed[name] = array
        axes = [axis for k, axis in sample.dynamic if k == number] if dynamic else []
        names = tuple(f"d{axis}_{array.shape[axis]}" if axis in axes else None for axis in range(array.ndim))
        shape = tuple(to_expr(d) for d in dims_of(array.shape, names))
        operands.append(builder.input(name, Type(from_numpy(array.dtype), shape)))
    builder.graph.outputs = builder.ops(op, *operands, **sample.attrs)
    return Case(builder.graph, feed)


def check(case: Case, tactic: Tactic, target: CpuTarget, rtol: float = 0.0) -> None:
    want = list(interpreter.run(case.graph, case.feed).values())
    runner = prepare(tactic, case, target)
    first: list[Array] = []
    for threads in (1, 2, 3):
        results = runner.run(threads)
        for result, wanted in zip(results, want, strict=True):
            assert result.dtype == wanted.dtype and result.shape == wanted.shape
            np.testing.assert_allclose(
                result.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=rtol
            )
        assert not first or all(a.tobytes() == b.tobytes() for a, b in zip(first, results, strict=True))
        first = results


@pytest.mark.parametrize("op", TACTICS)
def test_samples(target: CpuTarget, op: str) -> None:
    for sample in op_def(op).samples():
        half = any(a is not None and a.dtype == np.float16 for a in sample.inputs)
        check(op_case(op, sample), TACTICS[op], target, 2e-3 if half else 2e-6)
        if sample.dynamic:
            check(op_case(op, sample, dynamic=True), TACTICS[op], target, 2e-3 if half else 2e-6)


def test_topk_orders_what_compares_strangely(target: CpuTarget) -> None:
    row = np.array([0.0, -0.0, np.nan, 1.0, -np.inf, np.inf, np.nan, -1.0, 1.0, 5e-324], np.float64)
    numbers = np.array([0, 1 << 63, (1 << 64) - 1, 5, 5], np.uint64)
    bytes_ = np.array([-128, 127, 0, -1, 127], np.int8)
    for array in (row, row.astype(np.float32), row.astype(np.float16), numbers, bytes_):
        for largest in (True, False):
            sample = Sample((array,), {"k": len(array), "axis": 0, "largest": largest, "sorted": True})
            case = op_case("topk", sample)
            (values, places) = prepare(topk.TACTIC, case, target).run(2)
            wanted = interpreter.run(case.graph, case.feed)
            assert places.tolist() == list(wanted.values())[1].tolist()
            np.testing.assert_array_equal(values, array[places])


def test_many_candidates(target: CpuTarget) -> None:
    x = np.random.default_rng(0).integers(0, 500, (3, 3000)).astype(np.float32)
    for k in (1, 2, 100, 3000):
        sample = Sample((x,), {"k": k, "axis": 1, "largest": True, "sorted": True}, ((0, 1),))
        check(op_case("topk", sample, dynamic=True), topk.TACTIC, target)


def test_positions_outside_write_nothing(target: CpuTarget) -> None:
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    places = np.array([[1, 9], [-99, 0], [3, 2]])
    sample = Sample((data, places, np.full((3, 2), 50, np.float32)), {"axis": 1, "reduction": "add"})
    case = op_case("scatter_elements", sample)
    (got,) = prepare(scatter.TACTIC, case, target).run(2)
    data[0, 1] += 50
    data[1, 0] += 50
    data[2, [3, 2]] += 50
    np.testing.assert_array_equal(got, data)


def test_a_slice_is_shared_by_threads(target: CpuTarget) -> None:
    rng = np.random.default_rng(0)
    data, updates = rng.standard_normal((5, 70)).astype(np.float32), rng.standard_normal((8, 70))
    places = rng.integers(-5, 5, (8, 1))
    for reduction in ("none", "add", "max"):
        sample = Sample((data, places, updates.astype(np.float32)), {"reduction": reduction})
        check(op_case("scatter_nd", sample), scatter.TACTIC, target, 1e-6)
