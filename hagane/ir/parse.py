"""Reads the printed form of a graph.

    file   := "graph @" name "(" inputs ")" "->" results ["where" fact, ...] "{" body "}" line...
    body   := node... "return" operands
    node   := ["%" name, ... "="] op "(" operands ")" [attributes] [":" types] ["{" graphs "}"] ["//" loc]
    graphs := (key ["@" name] "(" inputs ")" "{" body "}")...
    line   := "const @" name ":" type "=" content ["from" recipe] | "weight" ... | "metadata" key "=" text

One statement a line. A type is `f16[B, 128]`, a state's `state<f16[B, 128]>`; a layout follows in braces.
Whatever the text is, the outcome is a valid graph or a ModelError that names the line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import hagane.ir.region  # noqa: F401  registers the op
from hagane.core.errors import HaganeError, ModelError
from hagane.ir.graph import Array, Graph, Loc, Node, Value
from hagane.ir.literals import Literals
from hagane.ir.registry import is_op, op_def
from hagane.ir.scanner import Scanner
from hagane.ir.text import print_type
from hagane.ir.verify import check_node, verify

MAX_DEPTH = 64
_STATEMENT = re.compile(r"(const @|weight |metadata \")")


def parse_graph(
    text: str | bytes, weights: Mapping[str, Array] | None = None, *, check: bool = True
) -> Graph:
    """The graph that `print_graph` printed.

    weights: arrays by content hash or by name, for the constants whose content the text doesn't hold.
    check: whether ops must be known and types follow from them (import hagane.ops first: it registers them).
    Raises: ModelError with the line's number.
    """
    try:
        lines = (text.decode("ascii") if isinstance(text, bytes) else text).split("\n")
    except UnicodeDecodeError as error:
        raise ModelError(f"the text of the graph is damaged at byte {error.start}") from None
    numbered = [Scanner(line, number) for number, line in enumerate(lines, 1)]
    kept = [s for s in numbered if not s.at_end and not s.sees("//")]
    trailing = [s for s in kept if _STATEMENT.match(s.text)]
    graph = _Parser([s for s in kept if not _STATEMENT.match(s.text)], trailing, weights or {}, check).graph()
    try:
        verify(graph, types=check)
    except HaganeError as error:
        raise ModelError(f"the text is no valid graph: {error.what}", where=error.where) from error
    except Exception as error:  # ops that are given nonsense may fail in any way
        raise ModelError(f"the text is no valid graph: {error!r}") from error
    return graph


@dataclass
class _Scope:
    """Values by name, inner ones before those of the graphs around."""

    parent: _Scope | None = None
    values: dict[str, Value] = field(default_factory=dict)

    def find(self, name: str) -> Value | None:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return None


class _Parser:
    def __init__(
        self, lines: list[Scanner], trailing: list[Scanner], weights: Mapping[str, Array], check: bool
    ) -> None:
        self._lines = lines
        self._trailing = trailing
        self._at = 0
        self._check = check
        self._literals = Literals(weights)
        self._names: set[str] = set()
        self._constants: dict[str, Value] = {}

    def graph(self) -> Graph:
        graph, results = self._signature()
        for line in self._trailing:
            self._statement(graph, line)
        scope = _Scope(values={v.name: v for v in graph.inputs})
        self._body(graph, scope, 0)
        closing = self._next("'}'")
        closing.expect("}")
        closing.end()
        if self._at < len(self._lines):
            self._lines[self._at].fail("expected nothing more after the graph")
        stated, returned = [print_type(v) for v in results], [print_type(v) for v in graph.outputs]
        if stated != returned:
            self._lines[0].fail(f"the graph returns ({', '.join(returned)}), not ({', '.join(stated)})")
        return graph

    def _next(self, what: str) -> Scanner:
        if self._at == len(self._lines):
            last = self._lines[-1].number if self._lines else 1
            raise ModelError(f"line {last}: the text ends where {what} should follow")
        self._at += 1
        return self._lines[self._at - 1]

    # ---- the signature and the statements after the graph

    def _signature(self) -> tuple[Graph, list[Value]]:
        """The graph with its inputs, and values of the types that it returns."""
        line = self._next("graph @name")
        # facts about symbols follow the types that use them: read the line once for them, then again
        start = line.position
        self._read_signature(line, Graph(), facts_only=True)
        line.position = start
        graph = Graph()
        return graph, self._read_signature(line, graph, facts_only=False)

    def _read_signature(self, line: Scanner, graph: Graph, facts_only: bool) -> list[Value]:
        self._literals.raw_dims = facts_only
        line.expect("graph")
        line.expect("@")
        graph.name = line.name()
        graph.inputs = self._inputs(line, new_names=not facts_only)
        line.expect("->")
        results = self._results(line)
        graph.output_names = [v.name for v in results if v.name]
        if len(graph.output_names) not in (0, len(results)):
            line.fail("either all results have names or none has")
        if line.accept("where"):
            graph.symbols = self._literals.facts(line)
        line.expect("{")
        line.end()
        return results

    def _inputs(self, line: Scanner, new_names: bool = True) -> list[Value]:
        line.expect("(")
        inputs: list[Value] = []
        while not line.accept(")"):
            if inputs:
                line.expect(",")
            line.expect("%")
            name = self._new_name(line) if new_names else line.name()
            line.expect(":")
            inputs.append(self._declared(line, name))
        return inputs

    def _results(self, line: Scanner) -> list[Value]:
        """The types that are returned, with the outputs' names if they have some."""
        results: list[Value] = []
        several = line.accept("(")
        while not (several and line.accept(")")):
            if results:
                line.expect(",")
            named = _PORT.match(line.text, line.position) is not None
            name = line.name() if named else ""
            if named:
                line.expect(":")
            results.append(self._declared(line, name))
            if not several:
                break
        return results

    def _statement(self, graph: Graph, line: Scanner) -> None:
        if line.accept("metadata"):
            key = line.string()
            line.expect("=")
            graph.metadata[key] = line.string()
        elif line.accept("weight"):
            name = line.name()
            line.expect(":")
            graph.weights[name] = self._literals.content(line, name, self._literals.type(line))
        else:
            line.expect("const")
            line.expect("@")
            name = self._new_name(line)
            line.expect(":")
            self._constants[name] = self._literals.constant(line, name)
        line.end()

    def _new_name(self, line: Scanner) -> str:
        name = line.name()
        if name in self._names:
            line.fail(f"{name!r} is defined twice")
        self._names.add(name)
        return name

    def _declared(self, line: Scanner, name: str) -> Value:
        """A value from its type, layout and symbolic content."""
        type_ = self._literals.type(line)
        value = Value(name, type_, layout=self._literals.layout(line, len(type_.shape)))
        if line.accept("="):
            value.elements = self._literals.dims(line)
        return value

    # ---- nodes

    def _body(self, graph: Graph, scope: _Scope, depth: int) -> None:
        while True:
            line = self._next("'return'")
            if line.match(_RETURN) is not None:
                while not line.at_end and not line.sees("//"):
                    if graph.outputs:
                        line.expect(",")
                    graph.outputs.append(self._operand(line, scope))
                return
            graph.nodes.append(self._node(line, scope, depth))

    def _node(self, line: Scanner, scope: _Scope, depth: int) -> Node:
        names: list[str] = []
        while line.accept("%"):
            names.append(self._new_name(line))
            if not line.accept(","):
                line.expect("=")
                break
        node = Node(line.name("an op"), [], [])
        node.inputs = self._operands(line, scope)
        if line.sees("{") and _OPENS.match(line.text, line.position) is None:
            node.attrs = self._literals.attributes(line)
        if names:
            line.expect(":")
        for position, name in enumerate(names):
            if position:
                line.expect(",")
            value = self._declared(line, name)
            value.producer = node
            node.outputs.append(value)
        nested = line.accept("{")
        node.loc = self._loc(line)
        if nested:
            self._graphs(node, scope, depth + 1, line)
        self._finish(node, line)
        scope.values.update((v.name, v) for v in node.outputs)
        return node

    def _finish(self, node: Node, line: Scanner) -> None:
        """Derives symbolic contents and checks the node against its op."""
        if not is_op(node.op):
            if self._check:
                line.fail(f"op {node.op!r} is unknown to this version")
            return
        rule = op_def(node.op).elements
        try:
            if self._check:
                check_node(node)
            if rule is not None and node.outputs and node.outputs[0].elements is None:
                node.outputs[0].elements = rule(node)
        except HaganeError as error:
            line.fail(f"{node.op}: {error.what}")
        except Exception as error:  # an op's own functions, given operands that don't fit
            line.fail(f"{node.op} doesn't accept these operands and attributes: {error!r}")

    def _graphs(self, node: Node, scope: _Scope, depth: int, line: Scanner) -> None:
        if depth > MAX_DEPTH:
            line.fail(f"graphs are nested more than {MAX_DEPTH} deep")
        while True:
            line = self._next("'}'")
            if line.accept("}"):
                line.end()
                return
            key = line.name("a graph's name or '}'")
            if key in node.graphs:
                line.fail(f"graph {key!r} is given twice")
            graph = Graph(line.name() if line.accept("@") else key)
            graph.inputs = self._inputs(line)
            line.expect("{")
            line.end()
            self._body(graph, _Scope(scope, {v.name: v for v in graph.inputs}), depth)
            node.graphs[key] = graph
            closing = self._next("'}'")
            closing.expect("}")
            closing.end()

    def _operands(self, line: Scanner, scope: _Scope) -> list[Value | None]:
        line.expect("(")
        operands: list[Value | None] = []
        while not line.accept(")"):
            if operands:
                line.expect(",")
            operands.append(None if line.accept("none") else self._operand(line, scope))
        return operands

    def _operand(self, line: Scanner, scope: _Scope) -> Value:
        if line.accept("@"):
            name = line.name()
            return self._constants.get(name) or line.fail(f"constant @{name} is not defined")
        line.expect("%")
        name = line.name()
        return scope.find(name) or line.fail(f"%{name} is not defined here")

    def _loc(self, line: Scanner) -> Loc:
        if not line.accept("//"):
            line.end()
            return Loc()
        if not line.accept("["):
            return Loc()
        names: list[str] = []
        while not line.accept("]"):
            if names:
                line.expect(",")
            names.append(line.string())
        if not names:
            line.fail("a place starts with the model's file")
        line.end()
        return Loc(names[0], tuple(names[1:]))


_PORT = re.compile(r'("(\\.|[^"\\])*"|[A-Za-z0-9_][A-Za-z0-9_./~-]*)\s*:')
_OPENS = re.compile(r"\{\s*(//.*)?$")
_RETURN = re.compile(r"return(?![A-Za-z0-9_./~(-])")
