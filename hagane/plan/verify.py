"""Checks that a plan means something: names exist, symbols are bound before use, lifetimes cover uses.

What can't be checked without running, such as sizes, is checked when shapes bind. Whether a kernel stays
inside the buffers that it is given, nothing here can tell.
"""

from __future__ import annotations

import keyword
from collections.abc import Collection, Iterator, Mapping
from math import prod

from hagane.core.dtypes import DType
from hagane.core.errors import HaganeError, InternalError
from hagane.core.symbolic import Expr
from hagane.plan.model import (
    BUFFER_KINDS,
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
    Require,
    Shape,
    Step,
    Symbol,
    children,
    count_steps,
)

_MAX_DEPTH = 32  # of nested steps
_MAX_BYTES = 1 << 50
_MAX_VALUE = 1 << 62  # leaves room for sums in 64 bits
_MAX_ALIGN = 4096
_RESERVED = {"min", "max"}  # functions in the text form of expressions

KernelTable = Mapping[str, tuple[int, int]]


def verify_plan(
    plan: Plan, kernels: KernelTable | Collection[str], error: type[HaganeError] = InternalError
) -> None:
    """Raises `error` at the first thing that is wrong.

    kernels: the names that the code defines, with their numbers of args and dims if those are known.
    """
    _Verifier(plan, kernels, error).run()


def kernel_table(plan: Plan) -> dict[str, tuple[int, int]]:
    """Numbers of args and dims of each kernel that the plan launches."""
    table: dict[str, tuple[int, int]] = {}
    for program in plan.programs.values():
        for step in _all_steps(program.steps):
            if isinstance(step, Launch):
                for name in (step.kernel, *(variant.kernel for variant in step.variants)):
                    table[name] = (len(step.args), len(step.dims))
    return table


def _all_steps(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        yield step
        for nested in children(step):
            yield from _all_steps(nested)


class _Verifier:
    def __init__(self, plan: Plan, kernels: KernelTable | Collection[str], error: type[HaganeError]) -> None:
        self.plan = plan
        self.kernels = kernels
        self.error = error
        self.symbols: set[str] = set()
        self.constants: dict[str, Constant] = {}
        self.where = "plan"

    def fail(self, what: str) -> HaganeError:
        return self.error(
            f"the plan is invalid: {what}",
            where={"place": f"{self.where} (target {self.plan.target})"},
            next_step="build the engine anew",
        )

    def require(self, condition: bool, what: str) -> None:
        if not condition:
            raise self.fail(what)

    def run(self) -> None:
        self._check_symbols()
        for constant in self.plan.constants:
            self.require(constant.name not in self.constants, f"two constants are named {constant.name}")
            self.constants[constant.name] = constant
            self._check_constant(constant)
        self.require(bool(self.plan.programs), "it has no program")
        for region in self.plan.regions:
            self._check_exprs((region.flops, region.bytes), self.symbols)
        self._check_exprs((self.plan.workspace_bytes_per_thread,), self.symbols)
        for name, program in self.plan.programs.items():
            self.where = f"program {name}"
            self.require(name == program.name, f"program {program.name} is stored as {name}")
            _ProgramVerifier(self, program).run()
        self._check_calls()

    def _check_symbols(self) -> None:
        for symbol in self.plan.symbols:
            self.require(symbol.name not in self.symbols, f"two symbols are named {symbol.name}")
            self.symbols.add(symbol.name)
            self._check_symbol(symbol)

    def _check_symbol(self, symbol: Symbol) -> None:
        name = symbol.name
        usable = name.isidentifier() and not keyword.iskeyword(name) and name not in _RESERVED
        self.require(usable, f"{name!r} can't be a symbol's name")
        limits = [symbol.lo, symbol.multiple, *([] if symbol.hi is None else [symbol.hi])]
        small = all(abs(value) < _MAX_VALUE for value in limits)
        self.require(small, f"symbol {name} has a limit beyond 62 bits")
        self.require(symbol.multiple >= 1, f"symbol {name} is a multiple of {symbol.multiple}")
        self.require(symbol.hi is None or symbol.lo <= symbol.hi, f"symbol {name} has an empty range")

    def _check_constant(self, constant: Constant) -> None:
        name = constant.name
        self.require(min(constant.shape, default=0) >= 0, f"constant {name} has a negative dim")
        size = prod(constant.shape) * constant.dtype.itemsize
        self.require(size <= _MAX_BYTES, f"constant {name} has {size} bytes")
        self.require(constant.dtype is not DType.STRING, f"constant {name} holds strings")
        self.require(bool(constant.recipe.nodes), f"constant {name} has an empty recipe")
        for place, node in enumerate(constant.recipe.nodes):
            earlier = all(isinstance(i, str) or 0 <= i < place for i in node.inputs)
            self.require(earlier, f"node {place} of the recipe of {name} refers to a later node")

    def _check_exprs(self, exprs: tuple[Expr, ...], bound: Collection[str]) -> None:
        for expr in exprs:
            small = not expr.is_const or abs(expr.value) < _MAX_VALUE
            self.require(small, f"the value {expr} is beyond 62 bits")
            for symbol in expr.symbols():
                self.require(symbol.name in self.symbols, f"symbol {symbol.name} isn't declared")
                self.require(symbol.name in bound, f"symbol {symbol.name} is used before it is bound")

    def _check_calls(self) -> None:
        calls = {
            name: {step.program for step in _all_steps(program.steps) if isinstance(step, Call)}
            for name, program in self.plan.programs.items()
        }
        done: set[str] = set()
        while len(done) < len(calls):
            ready = {name for name, callees in calls.items() if name not in done and callees <= done}
            self.require(bool(ready), "programs call each other in a circle")
            done |= ready


class _ProgramVerifier:
    """Walks one program in order, with the symbols bound so far."""

    def __init__(self, parent: _Verifier, program: Program) -> None:
        self.parent = parent
        self.program = program
        self.require = parent.require
        self.buffers: dict[str, Buffer] = {}
        self.size_symbols: dict[str, set[str]] = {}
        self.loops: list[tuple[int, int]] = []
        self.number = 0
        self.inputs: set[str] = set()

    def run(self) -> None:
        program = self.program
        ports = [*program.inputs, *program.outputs, *program.states]
        names = [port.name for port in ports]
        self.require(len(set(names)) == len(names), "two ports have one name")
        bound = {s.name for port in program.inputs for s in [_bare(dim) for dim in port.shape] if s}
        self.inputs = set(bound)
        for port in program.inputs + program.states:
            self.parent._check_exprs(port.shape, bound)
        self._check_buffers()
        kinds = dict.fromkeys((p.name for p in program.inputs), "input")
        kinds |= dict.fromkeys((p.name for p in program.outputs), "output")
        kinds |= dict.fromkeys((p.name for p in program.states), "state")
        for port in ports:
            buffer = self.buffers.get(port.name)
            fits = buffer is not None and buffer.kind == kinds[port.name] and buffer.dtype == port.dtype
            self.require(fits, f"port {port.name} has no {kinds[port.name]} buffer of dtype {port.dtype}")
        for buffer in program.buffers:
            if buffer.kind in ("input", "output", "state"):
                self.require(kinds.get(buffer.name) == buffer.kind, f"buffer {buffer.name} has no port")
        self._steps(program.steps, bound, 0)
        for port in program.outputs:
            self.parent._check_exprs(port.shape, bound)

    def _check_buffers(self) -> None:
        total = max(1, count_steps(self.program.steps))
        for buffer in self.program.buffers:
            name = buffer.name
            self.require(name not in self.buffers, f"two buffers are named {name}")
            self.buffers[name] = buffer
            self.require(buffer.kind in BUFFER_KINDS, f"buffer {name} is of kind {buffer.kind!r}")
            align = buffer.align
            self.require(0 < align <= _MAX_ALIGN and not align & (align - 1), f"{name} is aligned to {align}")
            lifetime = 0 <= buffer.first_step <= buffer.last_step < total
            self.require(lifetime or buffer.kind != "arena", f"buffer {name} has no valid lifetime")
            self.parent._check_exprs((buffer.size_bytes,), self.parent.symbols)
            if buffer.size_bytes.is_const:
                size = buffer.size_bytes.value
                self.require(0 <= size <= _MAX_BYTES, f"buffer {name} has {size} bytes")
            self.size_symbols[name] = {symbol.name for symbol in buffer.size_bytes.symbols()}
            if buffer.kind == "constant":
                constant = self.parent.constants.get(name)
                known = constant is not None and constant.dtype == buffer.dtype
                self.require(known, f"buffer {name} has no constant of dtype {buffer.dtype}")

    def _use(self, name: str, bound: set[str], writes: bool = False) -> None:
        """A step with the present number touches a buffer."""
        buffer = self.buffers.get(name)
        if buffer is None:
            self.require(name in self.parent.constants and not writes, f"there is no buffer {name}")
            return
        self.require(
            not writes or buffer.kind not in ("input", "constant"), f"a step writes {buffer.kind} {name}"
        )
        if buffer.kind == "arena":
            missing = sorted(self.size_symbols[name] - bound)
            self.require(not missing, f"{name} is used before {', '.join(missing)} is bound")
            first, last = self.loops[0] if self.loops else (self.number, self.number)
            covered = buffer.first_step <= first and last <= buffer.last_step
            self.require(covered, f"{name} is used at step {self.number}, outside its lifetime")

    def _steps(self, steps: tuple[Step, ...], bound: set[str], depth: int) -> None:
        self.require(depth <= _MAX_DEPTH, f"steps are nested more than {_MAX_DEPTH} deep")
        for step in steps:
            self._step(step, bound, depth)

    def _step(self, step: Step, bound: set[str], depth: int) -> None:
        self.parent.where = f"program {self.program.name}, step {self.number}, {type(step).__name__}"
        if isinstance(step, If):
            self._use(step.cond_buffer, bound)
            self.number += 1
            then, otherwise = set(bound), set(bound)
            self._steps(step.then, then, depth + 1)
            self._steps(step.otherwise, otherwise, depth + 1)
            bound |= then & otherwise
            return
        if isinstance(step, Loop):
            self._loop(step, bound, depth)
            return
        self._simple_step(step, bound)
        self.number += 1

    def _loop(self, step: Loop, bound: set[str], depth: int) -> None:
        endless = step.trip_count is None and step.cond_buffer is None
        self.require(not endless, "a loop has neither count nor condition")
        if step.trip_count is not None:
            self.parent._check_exprs((step.trip_count,), bound)
        self.loops.append((self.number, self.number + count_steps(step.body)))
        for name, writes in ((step.cond_buffer, False), (step.index_buffer, True)):
            if name is not None:
                self._use(name, bound, writes)
        self.number += 1
        self._steps(step.body, set(bound), depth + 1)
        self.loops.pop()

    def _simple_step(self, step: Step, bound: set[str]) -> None:
        if isinstance(step, Launch):
            self._launch(step, bound)
        elif isinstance(step, Copy):
            self.parent._check_exprs((step.size_bytes,), bound)
            self._use(step.src, bound)
            self._use(step.dst, bound, writes=True)
        elif isinstance(step, Fill):
            self.parent._check_exprs((step.size_bytes,), bound)
            self.require(0 <= step.value <= 255, f"{step.value} is no byte")
            self._use(step.dst, bound, writes=True)
        elif isinstance(step, Require):
            self.require(len(step.left) == len(step.right), "a require step compares unequal numbers of dims")
            self.parent._check_exprs((*step.left, *step.right), bound)
        elif isinstance(step, Shape):
            for name, expr in step.symbols:
                self.parent._check_exprs((expr,), bound)
                self._define(name, bound)
        elif isinstance(step, Bind):
            self._use(step.buffer, bound)
            buffer = self.buffers.get(step.buffer)
            integer = buffer is not None and buffer.dtype in (DType.I64, DType.I32) and step.index >= 0
            self.require(integer, f"a symbol can't be read from {step.buffer}")
            self._define(step.symbol, bound)
        elif isinstance(step, Alloc):
            for name in step.buffers:
                self._use(name, bound)
                self.require(
                    name in self.buffers and self.buffers[name].kind == "arena", f"{name} is no arena buffer"
                )
        elif isinstance(step, Collective):
            for name in step.inputs:
                self._use(name, bound)
            for name in step.outputs:
                self._use(name, bound, writes=True)
        elif isinstance(step, Host | Call):
            self._exchange(step, bound)

    def _define(self, name: str, bound: set[str]) -> None:
        self.require(name in self.parent.symbols, f"symbol {name} isn't declared")
        self.require(name not in self.inputs, f"symbol {name} comes from an input's shape")
        bound.add(name)

    def _launch(self, step: Launch, bound: set[str]) -> None:
        counts = (len(step.args), len(step.dims))
        for kernel in (step.kernel, *(variant.kernel for variant in step.variants)):
            self.require(kernel in self.parent.kernels, f"the code has no kernel {kernel}")
            if isinstance(self.parent.kernels, Mapping):
                declared = self.parent.kernels[kernel]
                self.require(
                    counts == declared,
                    f"kernel {kernel} wants {declared} args and dims, the launch has {counts}",
                )
        regions = max(1, len(self.parent.plan.regions))
        self.require(0 <= step.region < regions, f"there is no region {step.region}")
        self.parent._check_exprs(step.dims, bound)
        for variant in step.variants:
            self.parent._check_exprs(variant.guards, bound)
        for name in step.args:
            self._use(name, bound)
            buffer = self.buffers.get(name)
            self.require(
                buffer is None or buffer.dtype is not DType.STRING, f"a kernel can't take strings: {name}"
            )

    def _exchange(self, step: Host | Call, bound: set[str]) -> None:
        if isinstance(step, Call):
            callee = self.parent.plan.programs.get(step.program)
            if callee is None:
                raise self.parent.fail(f"there is no program {step.program}")
            same = _signature(step.inputs) == _signature(callee.inputs)
            same = same and _signature(step.outputs) == _signature(callee.outputs)
            self.require(same, f"the call of {step.program} doesn't fit its ports")
        for port in step.inputs:
            self.parent._check_exprs(port.shape, bound)
            self._use(port.name, bound)
            self._check_port(port)
        for port in step.outputs:
            for symbol in filter(None, map(_bare, port.shape)):
                if symbol.name not in bound:
                    self._define(symbol.name, bound)
        for port in step.outputs:
            self.parent._check_exprs(port.shape, bound)
            self._use(port.name, bound, writes=True)
            self._check_port(port)

    def _check_port(self, port: Port) -> None:
        buffer = self.buffers.get(port.name) or self.parent.constants.get(port.name)
        self.require(
            buffer is not None and buffer.dtype == port.dtype, f"{port.name} is not of dtype {port.dtype}"
        )


def _bare(dim: Expr) -> Symbol | None:
    symbol = dim.as_sym
    return None if symbol is None else Symbol(symbol.name)


def _signature(ports: tuple[Port, ...]) -> list[tuple[DType, int]]:
    return [(port.dtype, len(port.shape)) for port in ports]
