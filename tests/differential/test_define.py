"""Every op's definition against its reference, on every sample: with static dims, then with symbolic ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import from_numpy
from hagane.core.symbolic import Expr, sym
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Node, Type, tensor
from hagane.ir.registry import OpDef, Sample, all_ops, as_tuple
from tests.differential.evaluator import evaluate_define

Array = np.ndarray[Any, Any]


def _cases(defined: bool) -> list[Any]:
    return [
        pytest.param(op, sample, id=f"{op.name}-{number}")
        for op in all_ops()
        if op.kind not in ("control", "host")
        for number, sample in enumerate(op.samples())
        if not defined or op.define is not None
    ]


def _node(op: OpDef, sample: Sample, symbolic: bool) -> tuple[Node, dict[str, int]]:
    """The sample's node; symbolic dims are named d{input}_{axis}."""
    builder, dims = Builder(Graph(op.name)), {}
    values = []
    for number, array in enumerate(sample.inputs):
        if array is None:
            values.append(None)
            continue
        shape: list[int | Expr] = list(np.shape(array))
        for axis in range(len(shape)):
            if symbolic and (number, axis) in sample.dynamic:
                dims[f"d{number}_{axis}"] = np.shape(array)[axis]
                shape[axis] = sym(f"d{number}_{axis}", 1)
        values.append(builder.input(f"x{number}", tensor(from_numpy(np.asarray(array).dtype), *shape)))
    builder.ops(op.name, *values, **sample.attrs)
    return builder.graph.nodes[-1], dims


def _wide(array: Array | None) -> Array | None:
    """An input as references get it: floats in float64."""
    if array is None:
        return None
    array = np.asarray(array)
    return array.astype(np.float64) if from_numpy(array.dtype).is_float else array


def _expected(op: OpDef, sample: Sample) -> tuple[Array, ...]:
    return as_tuple(op.reference(sample.attrs, *map(_wide, sample.inputs)))


def _assert_equal(actual: Array, expected: Array, type_: Type) -> None:
    assert actual.shape == expected.shape
    if not type_.dtype.is_float:
        np.testing.assert_array_equal(actual, expected)
        return
    with np.errstate(all="ignore"):
        rounded = [
            np.asarray(a, np.float64).astype(type_.dtype.np).astype(np.float64) for a in (actual, expected)
        ]
    ulp = 2.0 ** -{"f64": 46, "f32": 22, "f16": 9, "bf16": 7}.get(type_.dtype.value, 2)
    np.testing.assert_allclose(*rounded, rtol=ulp, atol=1e-12)
    zeros = (rounded[1] == 0) & (rounded[0] == 0)
    np.testing.assert_array_equal(np.signbit(rounded[0])[zeros], np.signbit(rounded[1])[zeros])


@pytest.mark.parametrize(("op", "sample"), _cases(defined=False))
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "dynamic"])
def test_inferred_types_are_those_of_the_reference(op: OpDef, sample: Sample, symbolic: bool) -> None:
    node, dims = _node(op, sample, symbolic)
    expected = _expected(op, sample)
    assert len(node.outputs) == len(expected)
    for value, array in zip(node.outputs, expected, strict=True):
        assert tuple(d.evaluate(dims) for d in value.shape) == np.shape(array)
        if not value.dtype.is_float:
            assert from_numpy(array.dtype) is value.dtype
        else:
            assert from_numpy(array.dtype).is_float


@pytest.mark.parametrize(("op", "sample"), _cases(defined=True))
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "dynamic"])
def test_definition_equals_reference(op: OpDef, sample: Sample, symbolic: bool) -> None:
    node, dims = _node(op, sample, symbolic)
    if symbolic and not dims:
        return
    expected = _expected(op, sample)
    for output, value in enumerate(node.outputs):
        actual = evaluate_define(node, [_wide(a) for a in sample.inputs], dims, output)
        _assert_equal(actual, np.asarray(expected[output]), value.type)


@pytest.mark.parametrize(("op", "sample"), _cases(defined=False))
def test_elements_are_those_of_the_reference(op: OpDef, sample: Sample) -> None:
    """Symbolic content, where the inputs are constants, is the reference's result."""
    if op.elements is None or any(a is None or np.ndim(a) > 1 for a in sample.inputs):
        return
    builder = Builder(Graph(op.name))
    output = builder.op(op.name, *(builder.const(np.asarray(a)) for a in sample.inputs), **sample.attrs)
    if output.elements is not None:
        content = np.array([e.value for e in output.elements], np.int64)
        np.testing.assert_array_equal(
            content, np.asarray(_expected(op, sample)[0]).astype(np.int64).reshape(-1)
        )
