"""Recurrent layers against the interpreter: cells, directions, optional inputs, activations, dims."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hagane.core.dtypes import DType, from_numpy
from hagane.core.symbolic import to_expr
from hagane.core.targets import CpuTarget, can_run
from hagane.ir import interpreter
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Type
from hagane.ir.registry import op_def
from hagane.kernels.llvm.recurrent import TACTIC
from hagane.ops.recurrent import DEFAULT_ACTIVATIONS, NUM_GATES
from tests.differential.harness import Case, dims_of, prepare, uniform
from tests.unit.codegen.native import V3, V4

Array = np.ndarray[Any, Any]
NAMES = ("x", "w", "r", "bias", "lengths", "h", "c", "peepholes")


@pytest.fixture(params=[V4, V3], ids=["v4", "v3"])
def target(request: pytest.FixtureRequest) -> CpuTarget:
    found: CpuTarget = request.param
    if not can_run(found):
        pytest.skip(f"this machine doesn't run {found}")
    return found


def layer_case(
    op: str, inputs: tuple[Array | None, ...], attrs: dict[str, Any], dynamic: bool = False
) -> Case:
    """One layer; weights are constants, x[S, B, I] may have symbolic S and B."""
    builder = Builder(Graph(op))
    feed: dict[str, Array] = {}
    operands: list[Any] = []
    symbols = {"x": ("s", "b", None), "lengths": ("b",), "h": (None, "b", None), "c": (None, "b", None)}
    for name, array in zip(NAMES, inputs, strict=False):
        if array is None:
            operands.append(None)
        elif name in ("w", "r", "bias", "peepholes"):
            operands.append(builder.const(array, name=name))
        else:
            feed[name] = array
            named = symbols[name] if dynamic else (None,) * array.ndim
            shape = tuple(to_expr(d) for d in dims_of(array.shape, named))
            operands.append(builder.input(name, Type(from_numpy(array.dtype), shape)))
    builder.graph.outputs = builder.ops(op, *operands, **attrs)
    return Case(builder.graph, feed)


def check(case: Case, target: CpuTarget, bound: float = 4e-6) -> None:
    """Values are sums of a few units; errors neither grow nor vanish along the steps of these short
    sequences."""
    want = list(interpreter.run(case.graph, case.feed).values())
    for params in TACTIC.space(case.region(), target):
        runner = prepare(TACTIC, case, target, params)
        first: list[Array] = []
        for threads in (1, 2, 3):
            results = runner.run(threads)
            for result, wanted in zip(results, want, strict=True):
                assert result.shape == wanted.shape
                np.testing.assert_allclose(result, wanted, rtol=0, atol=bound)
            assert not first or all(a.tobytes() == b.tobytes() for a, b in zip(first, results, strict=True))
            first = results


def attributes(op: str, hidden: int, **changes: Any) -> dict[str, Any]:
    attrs: dict[str, Any] = {"activations": DEFAULT_ACTIVATIONS[op], "alphas": (), "betas": (), "clip": None}
    attrs |= {"direction": "forward", "hidden": hidden}
    attrs |= {} if op == "rnn" else {"linear_before_reset" if op == "gru" else "input_forget": False}
    return attrs | changes


def tensors(op: str, length: int, batch: int, features: int, hidden: int, directions: int = 1) -> list[Any]:
    """x, w, r, bias, no lengths, h and, of lstm, c."""
    rows = NUM_GATES[op] * hidden
    found: list[Any] = [uniform(1, length, batch, features), uniform(2, directions, rows, features) * 0.5]
    found += [uniform(3, directions, rows, hidden) * 0.3, uniform(4, directions, 2 * rows), None]
    found += [uniform(5, directions, batch, hidden)]
    return found + ([uniform(6, directions, batch, hidden)] if op == "lstm" else [])


@pytest.mark.parametrize("op", ["rnn", "gru", "lstm"])
def test_samples(target: CpuTarget, op: str) -> None:
    for sample in op_def(op).samples():
        check(layer_case(op, sample.inputs, sample.attrs), target)


@pytest.mark.parametrize("op", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("size", [(1, 1, 40, 32), (5, 1, 9, 16), (3, 15, 12, 40), (4, 7, 1, 5)])
def test_sizes(target: CpuTarget, op: str, size: tuple[int, int, int, int]) -> None:
    for dynamic in (False, True):
        check(layer_case(op, tuple(tensors(op, *size)), attributes(op, size[3]), dynamic), target)


def test_both_directions_with_lengths(target: CpuTarget) -> None:
    for op, change in (("gru", {"linear_before_reset": True}), ("lstm", {"input_forget": True})):
        inputs = tensors(op, 6, 5, 8, 19, directions=2)
        inputs[4] = np.array([6, 1, 0, 3, 5], np.int32)
        names = ("Relu", "Softsign", "Tanh", "HardSigmoid", "Softplus", "Elu")
        mixed = names[:2] + names[3:5] if op == "gru" else names
        attrs = attributes(op, 19, direction="bidirectional", activations=mixed, clip=2.0, **change)
        check(layer_case(op, tuple(inputs), attrs, dynamic=True), target, 2e-5)


@pytest.mark.parametrize("name", ["LeakyRelu", "ThresholdedRelu", "ScaledTanh", "Affine", "Elu", "Sigmoid"])
def test_activations(target: CpuTarget, name: str) -> None:
    takes_beta = name in ("ScaledTanh", "Affine")
    attrs = attributes("rnn", 10, activations=(name,), alphas=(0.4,), betas=(0.3,) if takes_beta else ())
    check(layer_case("rnn", tuple(tensors("rnn", 4, 2, 6, 10)), attrs), target)


def test_what_is_left_alone() -> None:
    inputs = tensors("lstm", 3, 2, 5, 7)
    double = [None if a is None else a.astype(np.float64) for a in inputs]
    case = layer_case("lstm", tuple(double), attributes("lstm", 7))
    assert not TACTIC.supports(case.region(), V4)
    assert case.graph.outputs[0].dtype is DType.F64
