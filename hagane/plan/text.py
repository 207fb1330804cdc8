"""Prints a plan as text; `plan.parse` reads it back, and printing that gives the same text again.

One thing a line. Names are JSON strings, expressions stand in square brackets, attribute lists are sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from json.encoder import encode_basestring

from hagane.core.symbolic import Expr
from hagane.plan.model import (
    Alloc,
    Attr,
    Attrs,
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
    RecipeNode,
    RegionInfo,
    Require,
    Shape,
    Step,
    Symbol,
)

_CPU = "cpu:0"


def print_plan(plan: Plan) -> str:
    """The text form of a plan."""
    return "\n".join(_plan_lines(plan)) + "\n"


def _plan_lines(plan: Plan) -> Iterator[str]:
    yield f"plan {quote(plan.target)} workspace {_exprs((plan.workspace_bytes_per_thread,))}"
    for symbol in plan.symbols:
        yield _symbol(symbol)
    for constant in plan.constants:
        yield from _constant(constant)
    for region in plan.regions:
        yield _region(region)
    for program in plan.programs.values():
        yield from _program(program)


def quote(name: str) -> str:
    """A name as a JSON string."""
    return encode_basestring(name)


def _exprs(exprs: Iterable[Expr]) -> str:
    return f"[{', '.join(map(str, exprs))}]"


def _names(names: Iterable[str]) -> str:
    return f"({', '.join(map(quote, names))})"


def _ports(ports: Iterable[Port]) -> str:
    return f"({', '.join(map(_port, ports))})"


def _port(port: Port) -> str:
    return f"{quote(port.name)}: {port.dtype}{_exprs(port.shape)}"


def _symbol(symbol: Symbol) -> str:
    hi = "" if symbol.hi is None else symbol.hi
    multiple = "" if symbol.multiple == 1 else f" multiple {symbol.multiple}"
    return f"symbol {symbol.name} in {symbol.lo}..{hi}{multiple}"


def _constant(constant: Constant) -> Iterator[str]:
    yield f"constant {quote(constant.name)}: {constant.dtype}[{', '.join(map(str, constant.shape))}] {{"
    for number, node in enumerate(constant.recipe.nodes):
        yield f"  {number} = {_recipe_node(node)}"
    yield "}"


def _recipe_node(node: RecipeNode) -> str:
    inputs = ", ".join(quote(i) if isinstance(i, str) else str(i) for i in node.inputs)
    return f"{node.op}({inputs}){_attrs(node.attrs)}"


def _attrs(attrs: Attrs) -> str:
    pairs = [f"{name} = {_value(attrs[name])}" for name in sorted(attrs)]
    return f" {{{', '.join(pairs)}}}" if pairs else ""


def _value(value: Attr) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_value, value))})"
    return repr(value)


def _region(region: RegionInfo) -> str:
    head = f"region {quote(region.name)} kind {quote(region.kind)} tactic {quote(region.tactic)}"
    work = _exprs((region.flops, region.bytes))
    return f"{head} work {work} nodes {_names(region.nodes)} notes {_names(region.notes)}"


def _program(program: Program) -> Iterator[str]:
    yield f"program {quote(program.name)} {{"
    for kind, ports in (("input", program.inputs), ("output", program.outputs), ("state", program.states)):
        for port in ports:
            yield f"  {kind} {_port(port)}"
    for buffer in program.buffers:
        yield f"  {_buffer(buffer)}"
    yield from _steps(program.steps, "  ")
    yield "}"


def _buffer(buffer: Buffer) -> str:
    where = f"live {buffer.first_step}..{buffer.last_step} align {buffer.align}"
    return f"buffer {quote(buffer.name)} {buffer.kind} {buffer.dtype}{_exprs((buffer.size_bytes,))} {where}"


def _steps(steps: tuple[Step, ...], indent: str) -> Iterator[str]:
    for step in steps:
        device = "" if step.device == _CPU else f" on {quote(step.device)}"
        if isinstance(step, If):
            yield f"{indent}if {quote(step.cond_buffer)}{device} {{"
            yield from _steps(step.then, indent + "  ")
            if step.otherwise:
                yield f"{indent}}} else {{"
                yield from _steps(step.otherwise, indent + "  ")
            yield f"{indent}}}"
        elif isinstance(step, Loop):
            yield f"{indent}{_loop_head(step)}{device} {{"
            yield from _steps(step.body, indent + "  ")
            yield f"{indent}}}"
        else:
            yield f"{indent}{_simple_step(step)}{device}"


def _loop_head(step: Loop) -> str:
    parts = ["loop"]
    if step.trip_count is not None:
        parts.append(f"count {_exprs((step.trip_count,))}")
    if step.cond_buffer is not None:
        parts.append(f"while {quote(step.cond_buffer)}")
    if step.index_buffer is not None:
        parts.append(f"index {quote(step.index_buffer)}")
    return " ".join(parts)


def _simple_step(step: Step) -> str:
    if isinstance(step, Launch):
        return _launch(step)
    if isinstance(step, Copy):
        return f"copy {quote(step.src)} -> {quote(step.dst)} {_exprs((step.size_bytes,))}"
    if isinstance(step, Fill):
        return f"fill {quote(step.dst)} {_exprs((step.size_bytes,))} with {step.value}"
    if isinstance(step, Shape):
        return "shape " + ", ".join(f"{name} = [{expr}]" for name, expr in step.symbols)
    if isinstance(step, Require):
        return f"require {_exprs(step.left)} = {_exprs(step.right)} else {quote(step.message)}"
    if isinstance(step, Bind):
        return f"bind {step.symbol} = {quote(step.buffer)}[{step.index}]"
    if isinstance(step, Host):
        return f"host {quote(step.fn)}{_attrs(step.attrs)} {_ports(step.inputs)} -> {_ports(step.outputs)}"
    if isinstance(step, Alloc):
        return f"alloc {_names(step.buffers)}"
    if isinstance(step, Collective):
        sides = f"{_names(step.inputs)} -> {_names(step.outputs)}"
        return f"collective {quote(step.op)} axis {quote(step.axis)} {sides}"
    assert isinstance(step, Call)
    return f"call {quote(step.program)} {_ports(step.inputs)} -> {_ports(step.outputs)}"


def _launch(step: Launch) -> str:
    text = f"launch {quote(step.kernel)}{_names(step.args)} {_exprs(step.dims)} region {step.region}"
    if step.serial:
        text += " serial"
    for variant in step.variants:
        text += f" variant {quote(variant.kernel)} when {_exprs(variant.guards)}"
    return text
