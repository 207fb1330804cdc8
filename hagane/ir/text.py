"""The printed form of a graph. It is deterministic and parses back: see parse.py, which states the grammar.

Constants follow the graph: small ones with their content, others by its hash.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from hagane.core.dtypes import DType, from_numpy
from hagane.core.hashing import content_hash
from hagane.core.symbolic import Expr, Sym, const
from hagane.ir.graph import Array, Graph, Loc, Node, Type, Value
from hagane.ir.registry import is_op, op_def
from hagane.plan.model import Recipe, RecipeNode

INLINE_ELEMENTS = 16
"""Constants of at most this many elements are printed with their content."""

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./~-]*")
"""Names that are printed as they are; others are quoted."""

NameOf = Callable[[Value], str]


def print_graph(graph: Graph, *, locs: bool = True, name_of: NameOf | None = None) -> str:
    """Text of a graph. name_of: other names for its values."""
    printer = _Printer(locs, name_of or (lambda value: value.name))
    lines = [printer.signature(graph), *printer.body(graph, 1), "}"]
    lines += [
        f"metadata {json.dumps(key)} = {json.dumps(text)}" for key, text in sorted(graph.metadata.items())
    ]
    lines += [printer.constant(value) for value in graph.constants()]
    lines += [f"weight {print_name(name)}: {_stored(a)}" for name, a in sorted(graph.weights.items())]
    return "\n".join(lines) + "\n"


def hash_of(value: Value) -> str:
    """Content hash of a constant's data."""
    assert value.data is not None
    return hash_of_array(value.data)


def hash_of_array(array: Array) -> str:
    """Content hash of an array's elements in C order; neither shape nor type counts."""
    if array.dtype == object:
        return content_hash(repr(array.tolist()))
    return content_hash(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def print_name(name: str) -> str:
    """A name, quoted if it holds unusual characters."""
    return name if PLAIN_NAME.fullmatch(name) else json.dumps(name)


def print_attribute(attribute: Any) -> str:
    """Text of an attribute. Raises: TypeError for a type that attributes don't have."""
    match attribute:
        case bool():
            return "true" if attribute else "false"
        case None:
            return "none"
        case DType():
            return str(attribute)
        case Expr():
            return f"`{attribute}`"
        case float():
            return repr(float(attribute))
        case int():
            return str(int(attribute))
        case str():
            return json.dumps(attribute)
        case tuple():
            if attribute and all(isinstance(a, Expr) for a in attribute):
                return _dims(attribute)
            return "[" + ", ".join(map(print_attribute, attribute)) + "]"
    raise TypeError(f"attribute {attribute!r} of type {type(attribute).__name__} has no text form")


def print_element(element: Any) -> str:
    """One element of an array: a number, true, false, a string, or raw bits for a NaN with a payload."""
    scalar = np.asarray(element)
    if isinstance(element, str):
        return json.dumps(element)
    if scalar.dtype.kind in "biu" or scalar.dtype.name in ("int4", "uint4"):
        return print_attribute(bool(element) if scalar.dtype.kind == "b" else int(element))
    number = float(element)
    if math.isnan(number) and scalar.tobytes() != np.asarray(np.nan).astype(scalar.dtype).tobytes():
        return "0x" + scalar.tobytes()[::-1].hex()
    short = str(element)  # the fewest digits that tell the number from others of its type
    with np.errstate(all="ignore"):
        exact = np.asarray(float(short)).astype(scalar.dtype) == scalar
    return short if exact and short != "-0" else repr(number)


def symbols_of(graph: Graph) -> dict[str, Expr]:
    """Facts about all symbols that occur in a graph, by name: the declared ones win."""
    found: dict[str, Expr] = {}
    pending = list(_expressions(graph))
    while pending:
        for symbol in pending.pop().symbols():
            if symbol.name not in found:
                found[symbol.name] = Expr([((symbol,), 1)])
                pending += [symbol.bound] if symbol.bound is not None else []
    return dict(sorted({**found, **graph.symbols}.items()))


def expected_elements(value: Value) -> tuple[Expr, ...] | None:
    """The symbolic content that a value has without saying so: what its op derives."""
    node = value.producer
    if node is None or not node.outputs or node.outputs[0] is not value or not is_op(node.op):
        return None
    rule = op_def(node.op).elements
    try:
        return None if rule is None else rule(node)
    except Exception:  # a node that is wrong must still print
        return None


def _expressions(graph: Graph) -> Iterator[Expr]:
    yield from graph.symbols.values()
    for value in graph.inputs:
        yield from _of_value(value)
    for node in graph.nodes:
        for attribute in node.attrs.values():
            yield from _of_attribute(attribute)
        for value in node.outputs:
            yield from _of_value(value)
        for inner in node.graphs.values():
            yield from _expressions(inner)


def _of_value(value: Value) -> Iterator[Expr]:
    yield from value.shape
    yield from value.elements or ()


def _of_attribute(attribute: Any) -> Iterator[Expr]:
    if isinstance(attribute, Expr):
        yield attribute
    elif isinstance(attribute, tuple):
        for item in attribute:
            yield from _of_attribute(item)


class _Printer:
    def __init__(self, locs: bool, name_of: NameOf) -> None:
        self._locs = locs
        self._name_of = name_of

    def signature(self, graph: Graph) -> str:
        types = [print_type(v) for v in graph.outputs]
        if graph.output_names:
            named = zip(graph.output_names, types, strict=True)
            types = [f"{print_name(name)}: {text}" for name, text in named]
        where = ", ".join(_facts(symbols_of(graph)))
        results = types[0] if len(types) == 1 else f"({', '.join(types)})"
        head = f"graph @{print_name(graph.name)}({self._inputs(graph)}) -> {results}"
        return head + (f" where {where}" if where else "") + " {"

    def body(self, graph: Graph, depth: int) -> Iterator[str]:
        for node in graph.nodes:
            yield from self._node(node, depth)
        results = ", ".join(self._operand(v) for v in graph.outputs)
        yield f"{'  ' * depth}return {results}".rstrip()

    def constant(self, value: Value) -> str:
        data = value.data
        assert data is not None
        recipe = "" if value.recipe is None else f" from {_recipe(value.recipe)}"
        return f"const {self._operand(value)}: {print_type(value)} = {_content(data)}{recipe}"

    def _node(self, node: Node, depth: int) -> Iterator[str]:
        pad = "  " * depth
        results = ", ".join(map(self._operand, node.outputs))
        operands = ", ".join("none" if v is None else self._operand(v) for v in node.inputs)
        head = f"{pad}{results}{' = ' if results else ''}{print_name(node.op)}({operands})"
        head += _attributes(node.attrs)
        head += " : " + ", ".join(map(_result_type, node.outputs)) if node.outputs else ""
        where = ""
        if self._locs and node.loc != Loc():
            where = "  // " + json.dumps([node.loc.file, *node.loc.nodes])
        if not node.graphs:
            yield head + where
            return
        yield head + " {" + where
        for key in sorted(node.graphs):
            graph = node.graphs[key]
            name = "" if graph.name == key else f" @{print_name(graph.name)}"
            yield f"{pad}  {print_name(key)}{name}({self._inputs(graph)}) {{"
            yield from self.body(graph, depth + 2)
            yield f"{pad}  }}"
        yield pad + "}"

    def _inputs(self, graph: Graph) -> str:
        return ", ".join(f"{self._operand(v)}: {_result_type(v)}" for v in graph.inputs)

    def _operand(self, value: Value) -> str:
        return ("@" if value.is_const else "%") + print_name(self._name_of(value))


def print_type(value: Value) -> str:
    """Type and layout of a value."""
    return str(value.type) + (f"{{{value.layout}}}" if value.layout is not None else "")


def _result_type(value: Value) -> str:
    """Type and layout, and the symbolic content where it isn't what the op derives anyway."""
    known = value.elements
    shown = known is not None and known != expected_elements(value)
    return print_type(value) + (f" = {_dims(known)}" if shown and known is not None else "")


def _dims(dims: tuple[Expr, ...]) -> str:
    return "(" + ", ".join(map(str, dims)) + ")"


def _facts(symbols: dict[str, Expr]) -> list[str]:
    """Facts about symbols, each after those of the symbols that it mentions."""
    done: dict[str, str] = {}
    pending = list(symbols.items())
    while pending:
        ready = [item for item in pending if _mentioned(*item) <= done.keys()] or pending
        done.update((name, _fact(name, facts)) for name, facts in ready)
        pending = [item for item in pending if item[0] not in done]
    return list(done.values())


def _is_itself(name: str, facts: Expr) -> Sym | None:
    symbol = facts.as_sym
    return symbol if symbol is not None and symbol.name == name else None


def _mentioned(name: str, facts: Expr) -> set[str]:
    symbol = _is_itself(name, facts)
    other = facts if symbol is None else symbol.bound
    return {s.name for s in other.symbols()} if other is not None else set()


def _fact(name: str, facts: Expr) -> str:
    symbol = _is_itself(name, facts)
    if symbol is None:
        return f"{name} = {facts}"
    text = f"{name} in {symbol.lo}..{'' if symbol.hi is None else symbol.hi}"
    text += f" by {symbol.multiple}" if symbol.multiple != 1 else ""
    return text + (f" below {symbol.bound}" if symbol.bound is not None else "")


def _content(array: Array) -> str:
    if array.size > INLINE_ELEMENTS:
        return hash_of_array(array)
    elements = ", ".join(map(print_element, array.reshape(-1)))
    return f"[{elements}]" if array.ndim else elements


def _stored(array: Array) -> str:
    type_ = Type(from_numpy(array.dtype), tuple(const(d) for d in array.shape))
    return f"{type_} = {_content(array)}"


def _recipe(recipe: Recipe) -> str:
    return "{" + "; ".join(map(_recipe_node, recipe.nodes)) + "}"


def _recipe_node(node: RecipeNode) -> str:
    inputs = ", ".join(json.dumps(i) if isinstance(i, str) else f"#{i}" for i in node.inputs)
    return f"{print_name(node.op)}({inputs}){_attributes(node.attrs)}"


def _attributes(attrs: Mapping[str, Any]) -> str:
    shown = ", ".join(f"{print_name(k)}={print_attribute(attrs[k])}" for k in sorted(attrs))
    return f" {{{shown}}}" if shown else ""
