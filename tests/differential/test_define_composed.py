"""Definitions expanded inside each other, as fusion does it: producer into op into consumer.

Producers and consumers rearrange or reduce without changing values, and bring their own index symbols: loops,
loaded positions, guards. A captured or clashing symbol gives wrong elements or a load out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType, from_numpy
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Node, Value, tensor
from hagane.ir.registry import OpDef, Sample, all_ops, as_tuple, op_def
from hagane.ir.scalar import Index, Load, Scalar
from tests.differential.evaluator import axis_symbols, evaluate_scalar

Array = np.ndarray[Any, Any]
Wrap = Callable[["Composed", Array], Value]


class Composed:
    """A graph under construction with the arrays of its inputs."""

    def __init__(self) -> None:
        self.builder = Builder(Graph())
        self.arrays: list[Array] = []

    def input(self, array: Array) -> Value:
        self.arrays.append(array)
        value = self.builder.input("x", tensor(from_numpy(array.dtype), *array.shape))
        return value

    def expand(self, value: Value, index: Index) -> Scalar:
        """An element with all definitions put in place, down to loads of the graph's inputs."""
        node = value.producer
        if node is None:
            return Load(value.dtype, self.builder.graph.inputs.index(value), index)
        define = op_def(node.op).define
        assert define is not None
        return define(node, lambda k, at: self.expand(node.input(k), at), index, node.outputs.index(value))

    def evaluate(self, value: Value) -> Array:
        extents = value.static_shape
        assert extents is not None
        scalar = self.expand(value, axis_symbols(value.shape))
        operands = [a.astype(np.float64) if from_numpy(a.dtype).is_float else a for a in self.arrays]
        env: dict[str, Any] = {f"i{a}": g.reshape(-1) for a, g in enumerate(np.indices(extents, np.int64))}
        return evaluate_scalar(scalar, list(operands), env).reshape(extents)


def _direct(c: Composed, x: Array) -> Value:
    return c.input(x)


def _gathered(c: Composed, x: Array) -> Value:
    """x from its rows in reverse, read at loaded positions."""
    order = np.arange(x.shape[0])[::-1].copy()
    return c.builder.op("gather", c.input(x[::-1].copy()), c.input(order), axis=0)


def _reduced(c: Composed, x: Array) -> Value:
    """x as the maximum over a new axis of extent 2."""
    doubled = c.input(np.stack([x, x], axis=-1))
    op = "reduce_all" if x.dtype == np.bool_ else "reduce_max"
    return c.builder.op(op, doubled, axes=(x.ndim,), keepdims=False)


def _joined(c: Composed, x: Array) -> Value:
    """x from two parts of its last axis."""
    middle = x.shape[-1] // 2
    parts = [c.input(np.ascontiguousarray(p)) for p in (x[..., :middle], x[..., middle:])]
    return c.builder.op("concat", *parts, axis=-1)


def _reshaped(c: Composed, x: Array) -> Value:
    return c.builder.op("reshape", c.input(x.reshape(-1)), shape=x.shape)


PRODUCERS: dict[str, Wrap] = {
    "gathered": _gathered,
    "reduced": _reduced,
    "joined": _joined,
    "reshaped": _reshaped,
}


def _consume(c: Composed, y: Value, expected: Array) -> tuple[Value, Array]:
    """y flattened, then read at loaded positions that reverse it; scalars are left alone."""
    if expected.ndim == 0 or expected.size == 0:
        return y, expected
    flat = c.builder.op("reshape", y, shape=(expected.size,))
    order = c.input(np.arange(expected.size)[::-1].copy())
    return c.builder.op("gather", flat, order, axis=0), expected.reshape(-1)[::-1]


def _cases() -> list[Any]:
    found = []
    for op in all_ops():
        if op.define is None or op.kind in ("control", "host"):
            continue
        for number, sample in enumerate(op.samples()):
            small = all(a is None or 0 < np.size(a) <= 2500 for a in sample.inputs)
            if small and any(np.ndim(a) for a in sample.inputs if a is not None):
                found.append(pytest.param(op, sample, id=f"{op.name}-{number}"))
                break
    return found


def _may_wrap(array: Array) -> bool:
    return array.ndim > 0 and from_numpy(array.dtype) is not DType.STRING


@pytest.mark.parametrize(("op", "sample"), _cases())
@pytest.mark.parametrize("producer", sorted(PRODUCERS))
def test_expanded_definition_equals_reference(op: OpDef, sample: Sample, producer: str) -> None:
    c = Composed()
    inputs: list[Value | None] = []
    for array in sample.inputs:
        if array is None:
            inputs.append(None)
            continue
        given = np.asarray(array)
        wrap = PRODUCERS[producer] if _may_wrap(given) and given.size <= 400 else _direct
        inputs.append(wrap(c, given))
    outputs = c.builder.ops(op.name, *inputs, **sample.attrs)
    wide = [
        None
        if a is None
        else np.asarray(a).astype(np.float64)
        if from_numpy(np.asarray(a).dtype).is_float
        else a
        for a in sample.inputs
    ]
    expected = np.asarray(as_tuple(op.reference(sample.attrs, *wide))[0])
    value, expected = _consume(c, outputs[0], expected)
    assert isinstance(value.producer, Node)
    actual = c.evaluate(value)
    if value.dtype.is_float:
        np.testing.assert_allclose(
            actual, expected.astype(np.float64), rtol=1e-2 if value.dtype.bits < 32 else 1e-6, atol=1e-12
        )
    else:
        np.testing.assert_array_equal(actual, expected)
