"""What is known of small tensors while a model is imported: numbers, or expressions of dims.

Small integer tensors become constants as soon as their content is known, since shapes depend on them. The
content of floats can be asked for, but their nodes stay: folding them is a pass, and weights keep names.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import HaganeError
from hagane.core.symbolic import Expr, const, product, to_expr
from hagane.ir.graph import Array, Node, Value
from hagane.ir.registry import as_tuple, op_def

SMALL = 1024  # elements of a tensor that is looked into; shapes have far fewer
SYMBOLIC = 64  # elements of a tensor of expressions
MAX_DEPTH = 64  # nodes that the content of one tensor is followed back through
FOLDED_TYPES = (DType.I64, DType.I32, DType.BOOL)
_OPAQUE_KINDS = ("control", "host", "custom", "region", "shape")
_UNKNOWN = object()


class Knowledge:
    """Contents of values, shared by all graphs of one import."""

    def __init__(self) -> None:
        self._arrays: dict[Value, Array | None] = {}
        self._contents: dict[Value, Array] = {}
        self._depth = 0

    def array(self, x: Value) -> Array | None:
        """The content of a small tensor as numbers, found by evaluating what it comes from."""
        if x.data is not None:
            return x.data
        if x not in self._arrays:
            self._arrays[x] = None  # whatever is asked on the way there
            elements = x.elements
            if elements is not None and all(e.is_const for e in elements):
                self._arrays[x] = _as_array([e.value for e in elements], x)
            elif x.producer is not None and self._depth < MAX_DEPTH:
                self._depth += 1
                try:
                    found = self.evaluate(x.producer)
                finally:
                    self._depth -= 1
                if found is not None:
                    self._arrays.update(zip(x.producer.outputs, found, strict=True))
        return self._arrays[x]

    def fold(self, node: Node) -> list[Array] | None:
        """The outputs of a node, if they are small integers that are known."""
        output = node.outputs[0]
        if any(v.dtype not in FOLDED_TYPES for v in node.outputs):
            return None
        known = output.elements if len(node.outputs) == 1 else None
        if known is not None and all(e.is_const for e in known):
            return [_as_array([e.value for e in known], output)]
        return self.evaluate(node)

    def evaluate(self, node: Node) -> list[Array] | None:
        """The outputs of a node, if they are small and all that goes in is known and small."""
        definition = op_def(node.op)
        if definition.kind in _OPAQUE_KINDS or node.graphs:
            return None
        sizes = [product(v.shape) for v in node.outputs]
        if not all(s.is_const and s.value <= SMALL for s in sizes):
            return None
        attrs = {name: _numbers(a) for name, a in node.attrs.items()}
        arrays = [None if v is None else self._operand(v) for v in node.inputs]
        known = all(a is not None or v is None for a, v in zip(arrays, node.inputs, strict=True))
        if not known or any(a is _UNKNOWN for a in attrs.values()):
            return None
        try:
            with np.errstate(all="ignore"):
                results = as_tuple(definition.reference(attrs, *arrays))
                return [
                    np.asarray(r).astype(v.dtype.np).reshape([d.value for d in v.shape])
                    for r, v in zip(results, node.outputs, strict=True)
                ]
        except HaganeError:
            raise
        except Exception:  # whatever the reference trips over: the node stays, and is reported where it runs
            return None

    def _operand(self, x: Value) -> Array | None:
        """A small tensor as the references take it: floats as float64."""
        if not all(d.is_const for d in x.shape) or math.prod(d.value for d in x.shape) > SMALL:
            return None
        array = None if x.dtype is DType.STRING else self.array(x)
        return array.astype(np.float64) if array is not None and x.dtype.is_float else array

    def content(self, x: Value, elements: tuple[Expr, ...] | None) -> Array | None:
        """A small integer tensor of any rank: its numbers, or an array of expressions."""
        if x.data is not None:
            return x.data if x.data.size <= SMALL and _is_integer(x) else None
        if elements is not None and x.static_shape is not None:
            return _object_array(elements, x.static_shape)
        return self._contents.get(x)

    def follow(self, node: Node, contents: list[Array | None]) -> None:
        """Notes the expressions in the output of a node that moves elements, such as a transpose.

        contents: those of the inputs, None for one that is absent.
        """
        output = node.outputs[0]
        shape = output.static_shape
        if shape is None or math.prod(shape) > SYMBOLIC:
            return
        attrs = {name: _numbers(a) for name, a in node.attrs.items()}
        if any(a is _UNKNOWN for a in attrs.values()):
            return
        try:
            result = np.asarray(as_tuple(op_def(node.op).reference(attrs, *contents))[0], dtype=object)
        except Exception:  # a reference that doesn't take arrays of objects: nothing is known then
            return
        exprs = tuple(to_expr(e) for e in result.reshape(-1).tolist())
        self._contents[output] = _object_array(exprs, shape)
        if output.rank <= 1:
            output.elements = exprs


def elements_of(x: Value) -> tuple[Expr, ...] | None:
    """What is known of a small integer tensor's content, without looking further."""
    if x.elements is None and x.data is not None and x.rank <= 1 and x.data.size <= SMALL and _is_integer(x):
        return tuple(const(int(v)) for v in x.data.reshape(-1))
    return x.elements


def is_followed(node: Node) -> bool:
    """True for a node that moves integers whose content isn't known yet."""
    output = node.outputs[0]
    return op_def(node.op).kind == "movement" and output.elements is None and _is_integer(output)


def _is_integer(value: Value) -> bool:
    return value.dtype.is_int or value.dtype is DType.BOOL


def _object_array(exprs: tuple[Expr, ...], shape: tuple[int, ...]) -> Array:
    array = np.empty(len(exprs), dtype=object)
    array[:] = exprs
    return array.reshape(shape)


def _as_array(values: list[int], like: Value) -> Array:
    return np.array(values, np.int64).astype(like.dtype.np).reshape(() if like.rank == 0 else (len(values),))


def _numbers(attribute: Any) -> Any:
    """An attribute with expressions as ints; _UNKNOWN if one is symbolic."""
    if isinstance(attribute, Expr):
        return attribute.value if attribute.is_const else _UNKNOWN
    if isinstance(attribute, tuple):
        items = tuple(_numbers(a) for a in attribute)
        return _UNKNOWN if any(a is _UNKNOWN for a in items) else items
    return attribute
