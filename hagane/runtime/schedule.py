"""Cuts a program into native segments and the items between them that Python carries out.

Symbols are static if input shapes alone determine them; all others get their value while the program runs,
from a Bind, Host, Call or Shape item. Such an item is an *event*: when it has run, the buffers whose size
its symbols change are placed. A program without events is one segment, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from hagane.core.errors import EngineError
from hagane.core.symbolic import Expr
from hagane.plan.model import (
    Alloc,
    Bind,
    Buffer,
    Call,
    Collective,
    Copy,
    Fill,
    Host,
    If,
    Launch,
    Loop,
    Port,
    Program,
    Require,
    Shape,
    Step,
    preorder,
)
from hagane.runtime.table import TableBuilder, Template


@dataclass(eq=False)
class Segment:
    """Steps of one native call. is_dynamic: its words depend on more than the input shapes."""

    template: Template
    is_dynamic: bool
    steps: tuple[Step, ...]


@dataclass(eq=False)
class Event:
    """What Python does between segments, and what has to be placed when it is done."""

    step: Bind | Host | Shape | Require | Call | Alloc
    number: int
    buffers: tuple[Buffer, ...]
    outputs: tuple[Port, ...]


@dataclass(eq=False)
class Branch:
    """An If that Python drives, since there are events inside."""

    step: If
    then: tuple[Item, ...]
    otherwise: tuple[Item, ...]


@dataclass(eq=False)
class Repeat:
    """A Loop that Python drives, since there are events inside."""

    step: Loop
    body: tuple[Item, ...]


Item = Segment | Event | Branch | Repeat
Clock = Callable[[Launch], int]


@dataclass
class Schedule:
    """A program cut into items. shapes: the static Shape steps in order, evaluated at binding.

    requires: the outermost Require steps over static symbols, checked at binding.
    """

    items: tuple[Item, ...]
    shapes: tuple[Shape, ...]
    requires: tuple[Require, ...]
    static_symbols: frozenset[str]
    static_buffers: tuple[Buffer, ...]
    dynamic_buffers: frozenset[str]

    @property
    def only_segment(self) -> Segment | None:
        """The segment, if the program is just one."""
        if len(self.items) == 1 and isinstance(self.items[0], Segment):
            return self.items[0]
        return None

    def segments(self) -> list[Segment]:
        """All segments, nested ones too."""
        return [item for item in _walk(self.items) if isinstance(item, Segment)]


def _walk(items: Sequence[Item]) -> Iterator[Item]:
    for item in items:
        yield item
        if isinstance(item, Branch):
            yield from _walk(item.then)
            yield from _walk(item.otherwise)
        elif isinstance(item, Repeat):
            yield from _walk(item.body)


def symbol_names(*exprs: Expr) -> set[str]:
    """Names of all symbols in the expressions."""
    return {symbol.name for expr in exprs for symbol in expr.symbols()}


def defined_symbols(step: Step) -> tuple[str, ...]:
    """Symbols that a step may give a value."""
    if isinstance(step, Bind):
        return (step.symbol,)
    if isinstance(step, Shape):
        return tuple(name for name, _ in step.symbols)
    if isinstance(step, Host | Call):
        dims = [dim.as_sym for port in step.outputs for dim in port.shape]
        return tuple(dict.fromkeys(symbol.name for symbol in dims if symbol is not None))
    return ()


def build_schedule(
    program: Program, kernel_address: Callable[[str], int], threads: int, clock: Clock | None = None
) -> Schedule:
    """The schedule for a number of threads. clock: the address of each launch's cell, to time it."""
    return _Scheduler(program, kernel_address, threads, clock).build()


class _Scheduler:
    def __init__(
        self, program: Program, kernel_address: Callable[[str], int], threads: int, clock: Clock | None
    ) -> None:
        self._program = program
        self._clock = clock
        self._kernel_address = kernel_address
        self._threads = threads
        self._events = 0
        self._static = _static_symbols(program)
        ports = {port.name: port for port in program.outputs}
        self._sizes = {buffer.name: symbol_names(buffer.size_bytes) for buffer in program.buffers}
        for name, port in ports.items():
            self._sizes[name] = self._sizes.get(name, set()) | symbol_names(*port.shape)
        self._dynamic_buffers = {name for name, names in self._sizes.items() if not names <= self._static}
        for _, step in preorder(program.steps):
            if isinstance(step, Alloc):
                self._dynamic_buffers.update(step.buffers)

    def build(self) -> Schedule:
        shapes = [step for _, step in preorder(self._program.steps) if self._is_static_shape(step)]
        static = [
            buffer
            for buffer in self._program.buffers
            if buffer.kind == "arena" and buffer.name not in self._dynamic_buffers
        ]
        return Schedule(
            self._items(self._program.steps, outermost=True),
            tuple(step for step in shapes if isinstance(step, Shape)),
            tuple(step for step in self._program.steps if self._is_static_require(step)),
            frozenset(self._static),
            tuple(static),
            frozenset(self._dynamic_buffers),
        )

    def _is_static_shape(self, step: Step) -> bool:
        return isinstance(step, Shape) and all(name in self._static for name, _ in step.symbols)

    def _is_static_require(self, step: Step) -> TypeGuard[Require]:
        return isinstance(step, Require) and symbol_names(*step.left, *step.right) <= self._static

    def _is_native(self, step: Step) -> bool:
        if isinstance(step, If):
            return all(map(self._is_native, step.then + step.otherwise))
        if isinstance(step, Loop):
            return all(map(self._is_native, step.body))
        if isinstance(step, Launch | Copy | Fill):
            return step.device == "cpu:0"
        return self._is_static_shape(step)

    def _items(self, steps: Sequence[Step], outermost: bool = False) -> tuple[Item, ...]:
        items: list[Item] = []
        native: list[Step] = []
        for step in steps:
            if self._is_static_shape(step) or (outermost and self._is_static_require(step)):
                continue
            if self._is_native(step):
                native.append(step)
                continue
            if native:
                items.append(self._segment(native))
                native = []
            items.append(self._item(step))
        if native:
            items.append(self._segment(native))
        return tuple(items)

    def _segment(self, steps: list[Step]) -> Segment:
        builder = TableBuilder(self._kernel_address, self._threads, self._clock)
        builder.add(steps)
        template = builder.finish()
        names = symbol_names(*template.exprs)
        dynamic = not names <= self._static or any(
            name in self._dynamic_buffers for _, name in template.pointers
        )
        return Segment(template, dynamic, tuple(steps))

    def _item(self, step: Step) -> Item:
        if isinstance(step, If):
            return Branch(step, self._items(step.then), self._items(step.otherwise))
        if isinstance(step, Loop):
            return Repeat(step, self._items(step.body))
        if isinstance(step, Launch | Copy | Fill | Collective):
            raise EngineError(
                f"no device runs a {type(step).__name__.lower()} on {step.device} yet",
                next_step="use a version of hagane that does",
            )
        self._events += 1
        changed = set(defined_symbols(step)) - self._static
        affected = {name for name, names in self._sizes.items() if names & changed}
        if isinstance(step, Alloc):
            affected = set(step.buffers)
        buffers = [b for b in self._program.buffers if b.name in affected and b.kind == "arena"]
        outputs = [port for port in self._program.outputs if port.name in affected]
        return Event(step, self._events, tuple(buffers), tuple(outputs))


def _static_symbols(program: Program) -> set[str]:
    """Symbols that inputs bind, and those whose only definition is a Shape over static ones."""
    dims = [dim.as_sym for port in program.inputs for dim in port.shape]
    static = {symbol.name for symbol in dims if symbol is not None}
    definitions: dict[str, int] = {}
    for _, step in preorder(program.steps):
        for name in defined_symbols(step):
            definitions[name] = definitions.get(name, 0) + 1
    for _, step in preorder(program.steps):
        if isinstance(step, Shape):
            # all of a step's symbols or none, so that the step as a whole is static or an event
            inside: set[str] = set()
            for name, expr in step.symbols:
                if definitions[name] == 1 and symbol_names(expr) <= static | inside:
                    inside.add(name)
            if len(inside) == len(step.symbols):
                static |= inside
    return static
