"""Reads the text form of a plan. The text may come from a damaged file: the only error is EngineError.

The work is bounded by the length of the text: expressions that would expand without bound are refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from hagane.core.errors import EngineError, HaganeError
from hagane.core.symbolic import Expr, Sym, const, parse_expr
from hagane.plan.model import (
    Alloc,
    Bind,
    Buffer,
    Call,
    Collective,
    Constant,
    Copy,
    Fill,
    Host,
    If,
    Launch,
    Loop,
    Plan,
    Port,
    Program,
    Recipe,
    RecipeNode,
    RegionInfo,
    Require,
    Shape,
    Step,
    Symbol,
    Variant,
)
from hagane.plan.tokens import MAX_DIGITS, Line

# what a text can provoke in the code below and in Python's own parser of expressions
_FAULTS = (
    HaganeError,
    SyntaxError,
    ValueError,
    LookupError,
    TypeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)
_MAX_DEPTH = 32
_MAX_EXPR_CHARS = 4000
_MAX_TERMS = 1000  # of an expression when multiplied out
_MAX_CHOICES = 16  # arguments of min and max


def parse_plan(text: str) -> Plan:
    """The plan that a text describes. Raises: EngineError, with the line's number, if it describes none."""
    parser = _Parser(text)
    try:
        return parser.plan()
    except _FAULTS as error:
        reason = error.what if isinstance(error, HaganeError) else str(error)
        raise EngineError(
            f"the plan can't be read at line {parser.number}: {reason}",
            where={"line": parser.line.strip()[:100]},
            next_step="build the engine anew",
        ) from error


class _Parser:
    """Goes through the lines; line and number tell where it stands."""

    def __init__(self, text: str) -> None:
        self._lines = iter(text.split("\n"))
        self.number = 0
        self.line = ""
        self._symbols: dict[str, Expr] = {}
        self._exprs: dict[str, Expr] = {}
        self._recipe_nodes: dict[str, RecipeNode] = {}  # by text: most of them come again and again

    def _next_text(self) -> str | None:
        """The next line that isn't blank, without its indentation, or None at the end."""
        for line in self._lines:
            self.number += 1
            self.line = line
            text = line.strip()
            if text:
                return text
        return None

    def _next(self) -> Line | None:
        text = self._next_text()
        return None if text is None else Line(text, self._expr)

    def _inside(self) -> Iterator[Line]:
        """The lines up to a closing brace; the one with the brace too, if more follows on it."""
        while True:
            tokens = self._next()
            if tokens is None:
                raise ValueError("the text ends inside a block")
            if tokens.peek() == "}":
                tokens.expect("}")
                if tokens.peek():
                    yield tokens
                return
            yield tokens

    def _expr(self, text: str) -> Expr:
        found = self._exprs.get(text)
        if found is None:
            found = self._exprs[text] = self._read_expr(text)
        return found

    def _read_expr(self, text: str) -> Expr:
        if text.isdecimal() and len(text) <= MAX_DIGITS:
            return const(int(text))
        known = self._symbols.get(text)
        if known is not None:
            return known
        if len(text) > _MAX_EXPR_CHARS:
            raise ValueError("an expression is too long")
        _check_size(ast.parse(text, mode="eval").body, 0)
        return parse_expr(text, self._symbols)

    def plan(self) -> Plan:
        head = self._next()
        if head is None:
            raise ValueError("the text is empty")
        head.expect("plan")
        target = head.name()
        head.expect("workspace")
        workspace_line = head
        symbols: list[Symbol] = []
        constants: list[Constant] = []
        regions: list[RegionInfo] = []
        programs: dict[str, Program] = {}
        workspace: Expr | None = None
        while (tokens := self._next()) is not None:
            kind = tokens.take()
            if kind == "symbol":
                symbols.append(self._symbol(tokens))
                continue
            if workspace is None:
                workspace = workspace_line.expr()
                workspace_line.end()
            if kind == "constant":
                constants.append(self._constant(tokens))
            elif kind == "region":
                regions.append(self._region(tokens))
            elif kind == "program":
                program = self._program(tokens)
                if program.name in programs:
                    raise ValueError(f"there are two programs named {program.name}")
                programs[program.name] = program
            else:
                raise ValueError(f"found {kind[:20]!r}, expected symbol, constant, region or program")
        if workspace is None:
            workspace = workspace_line.expr()
        return Plan(target, tuple(symbols), tuple(constants), programs, tuple(regions), workspace)

    def _symbol(self, tokens: Line) -> Symbol:
        name = tokens.word()
        tokens.expect("in")
        lo = tokens.integer()
        tokens.expect("..")
        hi = tokens.integer() if tokens.peek() and tokens.peek() != "multiple" else None
        multiple = tokens.integer() if tokens.accept("multiple") else 1
        tokens.end()
        # not by sym(), which makes a constant of a range with one value
        self._symbols[name] = Expr([((Sym(name, lo, hi, multiple),), 1)])
        return Symbol(name, lo, hi, multiple)

    def _constant(self, tokens: Line) -> Constant:
        name = tokens.name()
        tokens.expect(":")
        dtype = tokens.dtype()
        shape = tokens.listed("[", tokens.integer)
        tokens.expect("{")
        tokens.end()
        nodes: list[RecipeNode] = []
        while (text := self._next_text()) != "}":
            number, _, rest = (text or "").partition(" = ")
            if number != str(len(nodes)):
                raise ValueError("the nodes of a recipe are numbered from 0")
            node = self._recipe_nodes.get(rest)
            if node is None:
                node = self._recipe_nodes[rest] = _recipe_node(Line(rest, self._expr))
            nodes.append(node)
        return Constant(name, dtype, shape, Recipe(tuple(nodes)))

    def _region(self, tokens: Line) -> RegionInfo:
        name = tokens.name()
        tokens.expect("kind")
        kind = tokens.name()
        tokens.expect("tactic")
        tactic = tokens.name()
        tokens.expect("work")
        flops, num_bytes = tokens.exprs()
        tokens.expect("nodes")
        nodes = tokens.names()
        tokens.expect("notes")
        notes = tokens.names()
        tokens.end()
        return RegionInfo(name, kind, tactic, nodes, flops, num_bytes, notes)

    def _program(self, tokens: Line) -> Program:
        name = tokens.name()
        tokens.expect("{")
        tokens.end()
        ports: dict[str, list[Port]] = {"input": [], "output": [], "state": []}
        buffers: list[Buffer] = []
        steps: list[Step] = []
        for line in self._inside():
            kind = line.take()
            if kind in ports:
                ports[kind].append(line.port())
                line.end()
            elif kind == "buffer":
                buffers.append(_buffer(line))
            else:
                steps.append(self._step(kind, line, 0))
        return Program(
            name,
            tuple(ports["input"]),
            tuple(ports["output"]),
            tuple(ports["state"]),
            tuple(buffers),
            tuple(steps),
        )

    def _step(self, kind: str, tokens: Line, depth: int) -> Step:
        if depth > _MAX_DEPTH:
            raise ValueError("steps are nested too deep")
        if kind == "if":
            return self._if(tokens, depth)
        if kind == "loop":
            return self._loop(tokens, depth)
        reader = _STEPS.get(kind)
        if reader is None:
            raise ValueError(f"there is no step {kind[:20]!r}")
        step = reader(tokens)
        tokens.end()
        return step

    def _block(self, depth: int) -> tuple[tuple[Step, ...], Line | None]:
        """The steps of a block, and what follows the closing brace on its line."""
        steps: list[Step] = []
        for line in self._inside():
            kind = line.take()
            if kind == "else":
                return tuple(steps), line
            steps.append(self._step(kind, line, depth))
        return tuple(steps), None

    def _if(self, tokens: Line, depth: int) -> If:
        cond = tokens.name()
        device = _device(tokens)
        tokens.expect("{")
        tokens.end()
        then, more = self._block(depth + 1)
        otherwise: tuple[Step, ...] = ()
        if more is not None:
            more.expect("{")
            more.end()
            otherwise, more = self._block(depth + 1)
            if more is not None:
                raise ValueError("a second else")
        return If(cond, then, otherwise, device)

    def _loop(self, tokens: Line, depth: int) -> Loop:
        count = tokens.expr() if tokens.accept("count") else None
        cond = tokens.name() if tokens.accept("while") else None
        index = tokens.name() if tokens.accept("index") else None
        device = _device(tokens)
        tokens.expect("{")
        tokens.end()
        body, more = self._block(depth + 1)
        if more is not None:
            raise ValueError("a loop has no else")
        return Loop(count, cond, index, body, device)


def _recipe_node(tokens: Line) -> RecipeNode:
    op = tokens.word()
    inputs = tokens.listed("(", lambda: _recipe_input(tokens))
    node = RecipeNode(op, inputs, tokens.attrs())
    tokens.end()
    return node


def _recipe_input(tokens: Line) -> int | str:
    return tokens.name() if tokens.peek()[:1] == '"' else tokens.integer()


def _device(tokens: Line) -> str:
    return tokens.name() if tokens.accept("on") else "cpu:0"


def _buffer(tokens: Line) -> Buffer:
    name, kind, dtype, size = tokens.name(), tokens.word(), tokens.dtype(), tokens.expr()
    tokens.expect("live")
    first = tokens.integer()
    tokens.expect("..")
    last = tokens.integer()
    tokens.expect("align")
    align = tokens.integer()
    tokens.end()
    return Buffer(name, kind, dtype, size, first, last, align)


def _launch(tokens: Line) -> Launch:
    kernel, args, dims = tokens.name(), tokens.names(), tokens.exprs()
    tokens.expect("region")
    region = tokens.integer()
    serial = tokens.accept("serial")
    variants: list[Variant] = []
    while tokens.accept("variant"):
        name = tokens.name()
        tokens.expect("when")
        variants.append(Variant(tokens.exprs(), name))
    return Launch(kernel, args, dims, serial, region, tuple(variants), _device(tokens))


def _copy(tokens: Line) -> Copy:
    source = tokens.name()
    tokens.expect("->")
    return Copy(source, tokens.name(), tokens.expr(), _device(tokens))


def _fill(tokens: Line) -> Fill:
    buffer, size = tokens.name(), tokens.expr()
    tokens.expect("with")
    return Fill(buffer, size, tokens.integer(), _device(tokens))


def _shape(tokens: Line) -> Shape:
    symbols: list[tuple[str, Expr]] = []
    while not symbols or tokens.accept(","):
        name = tokens.word()
        tokens.expect("=")
        symbols.append((name, tokens.expr()))
    return Shape(tuple(symbols), _device(tokens))


def _require(tokens: Line) -> Require:
    left = tokens.exprs()
    tokens.expect("=")
    right = tokens.exprs()
    tokens.expect("else")
    return Require(left, right, tokens.name(), _device(tokens))


def _bind(tokens: Line) -> Bind:
    symbol = tokens.word()
    tokens.expect("=")
    buffer = tokens.name()
    (index,) = tokens.listed("[", tokens.integer)
    return Bind(symbol, buffer, index, _device(tokens))


def _host(tokens: Line) -> Host:
    fn, attrs, inputs = tokens.name(), tokens.attrs(), tokens.ports()
    tokens.expect("->")
    return Host(fn, attrs, inputs, tokens.ports(), _device(tokens))


def _collective(tokens: Line) -> Collective:
    op = tokens.name()
    tokens.expect("axis")
    axis, inputs = tokens.name(), tokens.names()
    tokens.expect("->")
    return Collective(op, axis, inputs, tokens.names(), _device(tokens))


def _call(tokens: Line) -> Call:
    program, inputs = tokens.name(), tokens.ports()
    tokens.expect("->")
    return Call(program, inputs, tokens.ports(), _device(tokens))


_STEPS: dict[str, Callable[[Line], Step]] = {
    "launch": _launch,
    "copy": _copy,
    "fill": _fill,
    "shape": _shape,
    "require": _require,
    "bind": _bind,
    "host": _host,
    "alloc": lambda tokens: Alloc(tokens.names(), _device(tokens)),
    "collective": _collective,
    "call": _call,
}


def _check_size(node: ast.expr, depth: int) -> tuple[int, int]:
    """How many terms an expression may expand to, and how deep its divisions, minima and maxima are nested.

    Raises: ValueError beyond what is sensible.
    """
    terms, nesting = 1, 0
    if isinstance(node, ast.Call):
        if len(node.args) > _MAX_CHOICES:
            raise ValueError("min or max of too many expressions")
        nesting = 1 + max((_check_size(argument, depth + 1)[1] for argument in node.args), default=0)
    elif isinstance(node, ast.BinOp):
        left, right = _check_size(node.left, depth), _check_size(node.right, depth + 1)
        terms = left[0] * right[0] if isinstance(node.op, ast.Mult) else left[0] + right[0]
        nesting = max(left[1], right[1]) + isinstance(node.op, ast.FloorDiv | ast.Mod)
    elif isinstance(node, ast.UnaryOp):
        terms, nesting = _check_size(node.operand, depth + 1)
    elif isinstance(node, ast.Constant) and (type(node.value) is not int or node.value >= 1 << 63):
        raise ValueError("an expression has a constant that is no 64-bit integer")
    if depth > _MAX_DEPTH or nesting > _MAX_DEPTH or terms > _MAX_TERMS:
        raise ValueError("an expression is too complex")
    return terms, nesting
