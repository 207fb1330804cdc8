"""The table of ops: each registers one `OpDef`, from which verifier, interpreter and kernels follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hagane.core.errors import InternalError
from hagane.core.symbolic import Expr
from hagane.ir.graph import Array, Node, Type, Value
from hagane.ir.scalar import Index, Read, Scalar

Attrs = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """Inputs (None for an absent optional one) and attributes that a test runs the op on.

    dynamic: positions of (input, axis) pairs that a test may also make symbolic dims.
    """

    inputs: tuple[Array | None, ...]
    attrs: Attrs = field(default_factory=dict)
    dynamic: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class OpDef:
    """An op.

    kind: the region kind: pointwise, movement, reduction, normalisation, contraction, window, scan, select,
        scatter, control, shape, host.
    infer(node) -> types of the outputs, from node.inputs and node.attrs. Raises: ShapeError.
    reference(attrs, *inputs) -> output array or tuple of arrays; floats come in as float64, expressions in
        attrs as ints. It defines the op's meaning. An op of kind control has reference(node, inputs, run)
        instead: run(graph, arrays) -> arrays runs one of the node's sub-graphs.
    define(node, read, index, output) -> the scalar of one output element, None if no such form exists.
    elements(node) -> symbolic content of the output, where inputs' elements are known (integer tensors of
        rank 0, 1).
    samples() -> inputs on which tests compare every implementation with the reference.
    """

    name: str
    kind: str
    infer: Callable[[Node], list[Type]]
    reference: Callable[..., Array | tuple[Array, ...]]
    define: Callable[[Node, Read, Index, int], Scalar] | None = None
    elements: Callable[[Node], tuple[Expr, ...] | None] | None = None
    samples: Callable[[], Iterable[Sample]] = tuple


_OPS: dict[str, OpDef] = {}


def register(op: OpDef) -> OpDef:
    """Adds an op. Raises: InternalError if the name is taken."""
    if op.name in _OPS:
        raise InternalError(f"op {op.name!r} is registered twice")
    _OPS[op.name] = op
    return op


def op_def(name: str) -> OpDef:
    """The definition of an op. Raises: InternalError for an unknown name."""
    found = _OPS.get(name)
    if found is None:
        raise InternalError(f"unknown op {name!r}")
    return found


def is_op(name: str) -> bool:
    """True if an op of that name is registered."""
    return name in _OPS


def all_ops() -> list[OpDef]:
    """All ops by name. Import hagane.ops first: it registers them."""
    return [_OPS[name] for name in sorted(_OPS)]


def as_tuple(result: Array | tuple[Array, ...]) -> tuple[Array, ...]:
    """The arrays of a reference's result."""
    return result if isinstance(result, tuple) else (np.asarray(result),)


__all__ = ["Attrs", "OpDef", "Sample", "Value", "all_ops", "as_tuple", "is_op", "op_def", "register"]
