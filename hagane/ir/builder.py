"""Appends nodes to a graph with inferred types: how frontends, decompositions and tests make IR."""

from __future__ import annotations

from typing import Any

import numpy as np

from hagane.core.dtypes import DType, from_numpy
from hagane.core.errors import HaganeError
from hagane.core.symbolic import Expr, provably_nonneg
from hagane.ir.graph import Array, Graph, Loc, Node, Type, Value, constant
from hagane.ir.registry import op_def


class Builder:
    """Writes into one graph. `loc` is given to the nodes made next."""

    def __init__(self, graph: Graph, parent: Builder | None = None, names: set[str] | None = None) -> None:
        """names: value names that are taken; it grows with each new value."""
        self.graph = graph
        self.loc: Loc = parent.loc if parent else Loc()
        self._names: set[str] = parent._names if parent else set() if names is None else names

    def fresh(self, hint: str = "") -> str:
        """A value name that is not taken: the hint, or the hint with a number."""
        base = "".join(c if c.isalnum() or c in "_.-/" else "_" for c in hint) or "v"
        name, number = base, 0
        while name in self._names:
            number += 1
            name = f"{base}.{number}"
        self._names.add(name)
        return name

    def input(self, name: str, type: Type) -> Value:
        """A new input of the graph."""
        value = Value(self.fresh(name), type)
        self.graph.inputs.append(value)
        return value

    def const(self, data: Any, dtype: DType | None = None, name: str = "c") -> Value:
        """A constant from anything NumPy takes."""
        array = np.asarray(data, dtype=dtype.np if dtype else None)
        return constant(
            self.fresh(name), np.ascontiguousarray(array).reshape(array.shape), from_numpy(array.dtype)
        )

    def scalar_like(self, value: Value, number: float | int) -> Value:
        """A rank-0 constant of value's dtype."""
        return self.const(np.asarray(number).astype(value.dtype.np), name="k")

    def op(self, op: str, *inputs: Value | None, name: str = "", **attrs: Any) -> Value:
        """Appends a node of one output and returns it."""
        return self.ops(op, *inputs, name=name, **attrs)[0]

    def ops(
        self,
        op: str,
        *inputs: Value | None,
        name: str = "",
        graphs: dict[str, Graph] | None = None,
        **attrs: Any,
    ) -> list[Value]:
        """Appends a node, returns all its outputs. Raises: ShapeError with the node's place in the model."""
        definition = op_def(op)
        node = Node(op, list(inputs), [], attrs, graphs or {}, self.loc)
        try:
            types = definition.infer(node)
        except HaganeError as error:
            if "node" not in error.where:
                operands = ", ".join("none" if v is None else str(v) for v in inputs)
                error.where = {"node": str(self.loc), "inputs": operands, **error.where}
            raise
        node.outputs = [Value(self.fresh(name or op), t, node) for t in types]
        if definition.elements is not None:
            node.outputs[0].elements = _held(definition.elements(node), node.outputs[0].dtype)
        self.graph.nodes.append(node)
        return node.outputs


def _held(elements: tuple[Expr, ...] | None, dtype: DType) -> tuple[Expr, ...] | None:
    """The elements, unless one may wrap around in this type, which their expressions don't.

    Sizes that are computed in signed types of 32 bits and more are taken to fit.
    """
    if elements is None or not dtype.is_int:
        return elements
    least = -(1 << dtype.bits - 1) if dtype.is_signed else 0
    most = (1 << dtype.bits - dtype.is_signed) - 1
    for element in elements:
        lo, hi = element.bounds()
        surely = lo is not None and lo >= least and hi is not None and hi <= most
        likely = not element.is_const and dtype.bits >= 32 and (dtype.is_signed or provably_nonneg(element))
        if not surely and not likely:
            return None
    return elements


def single_op_graph(op: str, inputs: tuple[Array | None, ...], attrs: dict[str, Any]) -> Graph:
    """A graph of one node over inputs with the arrays' types: what op tests run."""
    builder = Builder(Graph(op))
    values = [
        None if a is None else builder.input(f"x{i}", Type(from_numpy(a.dtype), tuple(_dims(a))))
        for i, a in enumerate(inputs)
    ]
    builder.graph.outputs = builder.ops(op, *values, **attrs)
    return builder.graph


def _dims(array: Array) -> list[Any]:
    from hagane.core.symbolic import const

    return [const(d) for d in array.shape]
