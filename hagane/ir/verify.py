"""Checks a graph's invariants; runs after every pass. A failure is our own fault, never the user's.

Values are defined once, before use, each under its own name. Types follow from the ops, layouts fit their
types, symbols are bound before they are used, states are updated in one order (see state.py), and a region's
body is a function of the region's operands.
"""

from __future__ import annotations

from hagane.core.errors import InternalError
from hagane.core.symbolic import Expr
from hagane.ir.graph import Graph, Node, Type, Value
from hagane.ir.layout import layout_fault
from hagane.ir.registry import is_op, op_def
from hagane.ir.state import check_states
from hagane.ir.text import print_attribute, print_type


def verify(graph: Graph, *, types: bool = True) -> None:
    """Raises: InternalError that names the value or node at fault. types: whether ops check theirs."""
    _Verifier(types).graph(graph)
    check_states(graph)


def check_node(node: Node) -> None:
    """Raises: InternalError unless the node's attributes and types are as its op wants them."""
    for name, attribute in node.attrs.items():
        try:
            print_attribute(attribute)
        except TypeError as error:
            raise _fault(f"attribute {name} of {node}: {error}", node) from None
    if node.op == "region":
        _check_body(node)
    inferred = op_def(node.op).infer(node)
    if len(inferred) != len(node.outputs):
        raise _fault(f"{node} should have {len(inferred)} outputs, it has {len(node.outputs)}", node)
    for value, want in zip(node.outputs, inferred, strict=True):
        if not compatible(want, value.type):
            raise _fault(f"{node} should have type {want}, it has {value.type}", node)


def compatible(want: Type, have: Type) -> bool:
    """True unless the types surely differ: dims that aren't both constant may turn out equal."""
    if want.dtype is not have.dtype or len(want.shape) != len(have.shape) or want.state != have.state:
        return False
    pairs = zip(want.shape, have.shape, strict=True)
    return not any(a.is_const and b.is_const and a != b for a, b in pairs)


def _fault(what: str, node: Node) -> InternalError:
    return InternalError(what, where={"node": f"{node} {node.loc}".strip()})


def _check_body(node: Node) -> None:
    body = node.graphs["body"]
    if len(body.inputs) != len(node.inputs):
        raise _fault(f"a region of {len(node.inputs)} operands has a body of {len(body.inputs)}", node)
    for outer, inner in zip(node.inputs, body.inputs, strict=True):
        if outer is None or not compatible(outer.type, inner.type):
            raise _fault(f"%{inner.name} of a region's body should be {outer}, it is {inner.type}", node)
    captured = body.captured()
    if captured:
        raise _fault(f"a region's body reads {captured[0]!r} from outside", node)
    for value in body.constants():
        if value.data is not None and value.data.size != 1:
            raise _fault(f"constant {value!r} in a region's body is no single number", node)


class _Verifier:
    """What is defined at the point that has been reached; what a sub-graph defines is forgotten after it."""

    def __init__(self, types: bool) -> None:
        self._types = types
        self._defined: set[Value] = set()
        self._names: dict[str, Value] = {}
        self._symbols: set[str] = set()

    def graph(self, graph: Graph) -> None:
        """Checks a graph and leaves its values defined."""
        for value in graph.inputs:
            self._define(value)
            self._symbols.update(s.name for d in value.shape if (s := d.as_sym) is not None)
        for value in graph.inputs:
            self._known(value.shape, f"input %{value.name}", None)
        for node in graph.nodes:
            self._node(node)
        for value in graph.outputs:
            if value.is_const:
                self._name(value)
            elif value not in self._defined:
                raise InternalError(f"output %{value.name} is not defined in {graph.name}")

    def _node(self, node: Node) -> None:
        for value in node.inputs:
            if value is not None and value.is_const:
                self._name(value)
            elif value is not None and value not in self._defined:
                raise _fault(f"%{value.name} is used before it is defined", node)
        for inner in node.graphs.values():
            before = set(self._symbols)
            self.graph(inner)
            self._symbols = before
            self._defined.difference_update(inner.inputs, *(n.outputs for n in inner.nodes))
        if node.op == "bind_symbols":
            self._symbols.update(node.attrs["names"])
        for name, attribute in node.attrs.items():
            if name == "count":  # the extent of the node's own result, as of a nonzero, which binds it
                continue
            items = attribute if isinstance(attribute, tuple) else (attribute,)
            self._known(tuple(i for i in items if isinstance(i, Expr)), f"an attribute of {node}", node)
        for value in node.outputs:
            if value.producer is not node:
                raise InternalError(f"%{value.name} doesn't name {node} as its producer")
            self._define(value)
            self._symbols.update(s.name for d in value.shape if (s := d.as_sym) is not None)
        for value in node.outputs:
            self._known(value.shape, f"%{value.name}", node)
        if not is_op(node.op):
            if self._types:
                raise _fault(f"unknown op {node.op!r}", node)
        elif self._types:
            check_node(node)

    def _known(self, dims: tuple[Expr, ...], what: str, node: Node | None) -> None:
        for dim in dims:
            if dim.is_const:
                continue
            unbound = sorted({s.name for s in dim.symbols()} - self._symbols)
            if unbound:
                where = {} if node is None else {"node": f"{node} {node.loc}".strip()}
                raise InternalError(f"symbol {unbound[0]} of {what} is bound nowhere before", where=where)

    def _define(self, value: Value) -> None:
        if value in self._defined:
            raise InternalError(f"%{value.name} is defined twice")
        self._name(value)
        self._defined.add(value)
        if value.layout is not None:
            fault = layout_fault(value.layout, value.shape)
            if fault:
                raise InternalError(f"the layout of {print_type(value)} (%{value.name}) {fault}")

    def _name(self, value: Value) -> None:
        if self._names.setdefault(value.name, value) is not value:
            raise InternalError(f"two values are named {value.name}")
