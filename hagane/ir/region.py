"""Regions: what one tactic computes. A region is an op whose `body` graph holds the nodes it was fused from.

The body's inputs correspond one to one to the node's inputs; its only constants are single numbers. Kinds of
regions are the kinds of ops; where the body has an anchor (a contraction, recurrent cell, sort ...), the
region has its kind.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hagane.core.errors import InternalError
from hagane.core.symbolic import Expr, Sym, sym
from hagane.ir.graph import Array, Graph, Node, Type, Value
from hagane.ir.registry import OpDef, op_def, register
from hagane.ir.scalar import Acc, Axis, Index, Lit, Load, Scalar, lit

ANCHOR_KINDS = ("contraction", "attention", "scan", "select", "scatter", "shape", "control", "host", "custom")


class Region:
    """A view of a region node: its operands, anchor and tensor expressions."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.body = node.graphs["body"]
        anchors = [n for n in self.body.nodes if op_def(n.op).kind in ANCHOR_KINDS]
        self.anchor: Node | None = anchors[0] if anchors else None

    @property
    def kind(self) -> str:
        return str(self.node.attrs["kind"])

    @property
    def operands(self) -> list[Value]:
        """The values outside that the region reads; layouts and data are theirs."""
        return [v for v in self.node.inputs if v is not None]

    @property
    def outputs(self) -> list[Value]:
        return self.node.outputs

    def operand_of(self, value: Value | None) -> int:
        """The operand number of a body input.

        Raises: InternalError if the value is computed in the body.
        """
        for position, inner in enumerate(self.body.inputs):
            if inner is value:
                return position
        raise InternalError(f"{value} is no operand of the region {self.node.loc}")

    def is_operand(self, value: Value | None) -> bool:
        return any(inner is value for inner in self.body.inputs)

    def axes(self, output: int = 0) -> tuple[Axis, ...]:
        """Loops over the elements of an output, named o0, o1, ..."""
        return output_axes(self.outputs[output].shape)

    def expression(self, index: Index, output: int = 0) -> Scalar:
        """One element of an output at a logical index, everything computed from loads of operands.

        Raises: InternalError if an op in the body has no such form.
        """
        return _Inliner(self, None).value(self.body.outputs[output], index)

    def epilogue(self, index: Index, output: int = 0) -> Scalar:
        """One element of an output at a logical index, given the anchor's result there as `Acc`."""
        if self.anchor is None:
            raise InternalError(f"the region {self.node.loc} has no anchor")
        return _Inliner(self, self.anchor).value(self.body.outputs[output], index)

    def anchor_read(self, position: int, index: Index) -> Scalar:
        """An element of the anchor's input `position`: an operand's load, or its prologue's expression."""
        if self.anchor is None:
            raise InternalError(f"the region {self.node.loc} has no anchor")
        return _Inliner(self, None).value(self.anchor.input(position), index)


def output_axes(shape: tuple[Expr, ...]) -> tuple[Axis, ...]:
    """Loops over a shape, named o0, o1, ...; an axis of extent 1 keeps its symbol, whose range says 0."""
    axes = []
    for position, extent in enumerate(shape):
        symbol = index_symbol(f"o{position}", extent).as_sym
        assert symbol is not None
        axes.append(Axis(symbol, extent))
    return tuple(axes)


def index_symbol(name: str, extent: Expr) -> Expr:
    """A symbol that runs from 0 to extent - 1, with the facts that simplification needs."""
    top = extent.bounds()[1]
    hi = None if top is None else max(top - 1, 0)
    return Expr([((Sym(name, 0, hi, 1, extent),), 1)])


def region_symbols(region: Region) -> tuple[Expr, ...]:
    """All symbols that the region's shapes and attributes mention, sorted by name."""
    nodes = region.body.nodes
    exprs = [d for v in (*region.operands, *region.outputs) for d in v.shape]
    exprs += [d for node in nodes for v in node.outputs for d in v.shape]
    exprs += [e for node in nodes for a in node.attrs.values() for e in _exprs(a)]
    found = {s.name: s for e in exprs for s in e.symbols()}
    return tuple(sym(s.name, s.lo, s.hi, s.multiple, s.bound) for _, s in sorted(found.items()))


def _exprs(attribute: object) -> list[Expr]:
    if isinstance(attribute, Expr):
        return [attribute]
    return [e for part in attribute for e in _exprs(part)] if isinstance(attribute, tuple) else []


class _Inliner:
    """Expands body values into scalars; each (value, index) becomes one shared node."""

    def __init__(self, region: Region, stop: Node | None) -> None:
        self._operand = {value: k for k, value in enumerate(region.body.inputs)}
        self._stop = stop
        self._memo: dict[tuple[Value, Index], Scalar] = {}

    def value(self, value: Value, index: Index) -> Scalar:
        key = (value, index)
        found = self._memo.get(key)
        if found is None:
            found = self._expand(value, index)
            self._memo[key] = found
        return found

    def _expand(self, value: Value, index: Index) -> Scalar:
        if value in self._operand:
            return Load(value.dtype, self._operand[value], index)
        if value.data is not None:
            return _literal(value)
        node = value.producer
        if node is None:
            raise InternalError(f"{value} has no producer in its region")
        if node is self._stop:
            return Acc(value.dtype)
        define = op_def(node.op).define
        if define is None:
            raise InternalError(f"op {node.op!r} has no tensor expression", where={"node": str(node.loc)})

        def read(position: int, at: Index) -> Scalar:
            return self.value(node.input(position), at)

        return define(node, read, index, node.outputs.index(value))


def _literal(value: Value) -> Lit:
    assert value.data is not None
    if value.data.size != 1:
        raise InternalError(f"constant {value} in a region's body is no single number")
    return lit(value.dtype, value.data.reshape(-1)[0].item() if value.data.dtype != object else 0)


def _infer(node: Node) -> list[Type]:
    return [v.type for v in node.graphs["body"].outputs]


def _reference(
    node: Node, inputs: list[Array], run: Callable[[Graph, list[Array]], list[Array]]
) -> tuple[Array, ...]:
    return tuple(np.asarray(a) for a in run(node.graphs["body"], inputs))


register(OpDef("region", "region", _infer, _reference))
