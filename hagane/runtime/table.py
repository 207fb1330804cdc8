"""Turns native steps into the table of a job, as a template that binding fills in.

Barriers are placed here. A parallel step leaves one owed, which is paid before the next step, not at the
end, whose own barrier does. Serial steps leave the others behind: a barrier is due before the next parallel
step or jump.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hagane.core.errors import EngineError
from hagane.core.symbolic import Expr, const
from hagane.plan.abi import HEADER_WORDS, JOB_THREADS, MAX_COUNTERS, Op
from hagane.plan.model import Copy, Fill, If, Launch, Loop, Shape, Step

# a copy of 32 KiB takes 1 us on one core, about what splitting it costs in barriers
_PARALLEL_BYTES = 32 << 10


class Choice(NamedTuple):
    """A launch with variants: the word of the kernel's address, and (numbers of guards, address) to try."""

    place: int
    variants: tuple[tuple[tuple[int, ...], int], ...]


class Template(NamedTuple):
    """A job's words, with what is still open.

    exprs: all symbolic values; the first len(expr_places) go to those words, the others are guards and
    sizes to check. pointers: words that take a buffer's address. checks: (number of an expr or a constant,
    buffer) for each access whose size the plan states.
    """

    words: np.ndarray[Any, Any]
    exprs: tuple[Expr, ...]
    expr_places: tuple[int, ...]
    pointers: tuple[tuple[int, str], ...]
    choices: tuple[Choice, ...]
    checks: tuple[tuple[Expr, str], ...]


class TableBuilder:
    """Collects steps; finish() gives the template."""

    def __init__(
        self,
        kernel_address: Callable[[str], int],
        threads: int,
        clock: Callable[[Launch], int] | None = None,
    ) -> None:
        """clock: the address of each launch's cell, if launches are to be timed."""
        self._kernel_address = kernel_address
        self._clock = clock
        self._threads = threads
        self._code: list[int] = []
        self._data: list[int] = []
        self._code_exprs: list[tuple[int, Expr]] = []
        self._data_exprs: list[tuple[int, Expr]] = []
        self._code_pointers: list[tuple[int, str]] = []
        self._data_pointers: list[tuple[int, str]] = []
        self._data_offsets: list[int] = []  # code words that hold an offset into the data
        self._variants: list[tuple[int, Launch]] = []
        self._checks: list[tuple[Expr, str]] = []
        self._depth = 0
        self._is_parallel = False
        self._owed = False  # a parallel step hasn't been waited for
        self._ahead = False  # thread 0 has done serial steps that the others must wait for

    def add(self, steps: Sequence[Step]) -> None:
        """Appends steps and all that is nested in them."""
        for step in steps:
            if isinstance(step, Launch):
                self._launch(step)
            elif isinstance(step, Copy):
                self._copy(step)
            elif isinstance(step, Fill):
                self._fill(step)
            elif isinstance(step, If):
                self._if(step)
            elif isinstance(step, Loop):
                self._loop(step)
            elif not isinstance(step, Shape):
                raise EngineError(f"a {type(step).__name__} step can't run inside a native segment")

    def finish(self) -> Template:
        """The template of all that was added."""
        self._emit(Op.END)
        base = HEADER_WORDS + len(self._code)
        words = np.array([0] * HEADER_WORDS + self._code + self._data, np.int64)
        # without parallel work the others needn't even wake up
        words[JOB_THREADS] = self._threads if self._is_parallel else 1
        for place in self._data_offsets:
            words[HEADER_WORDS + place] += base
        exprs = [(HEADER_WORDS + place, expr) for place, expr in self._code_exprs]
        exprs += [(base + place, expr) for place, expr in self._data_exprs]
        pointers = [(HEADER_WORDS + place, name) for place, name in self._code_pointers]
        pointers += [(base + place, name) for place, name in self._data_pointers]
        guards, choices = self._choices(len(exprs))
        return Template(
            words,
            tuple([expr for _, expr in exprs] + guards),
            tuple(place for place, _ in exprs),
            tuple(pointers),
            choices,
            tuple(self._checks),
        )

    def _choices(self, first: int) -> tuple[list[Expr], tuple[Choice, ...]]:
        guards: list[Expr] = []
        choices = []
        for place, launch in self._variants:
            variants = []
            for variant in launch.variants:
                numbers = tuple(range(first + len(guards), first + len(guards) + len(variant.guards)))
                guards += variant.guards
                variants.append((numbers, self._kernel_address(variant.kernel)))
            choices.append(Choice(HEADER_WORDS + place, tuple(variants)))
        return guards, tuple(choices)

    def _emit(self, op: Op, *operands: int | Expr | str) -> int:
        """Appends an instruction; an Expr is evaluated, a str becomes a buffer's address, later."""
        start = len(self._code)
        self._code.append(op.value)
        for operand in operands:
            if isinstance(operand, str):
                self._code_pointers.append((len(self._code), operand))
                operand = 0
            elif isinstance(operand, Expr):
                if not operand.is_const:
                    self._code_exprs.append((len(self._code), operand))
                operand = operand.value if operand.is_const else 0
            self._code.append(operand)
        return start

    def _launch(self, step: Launch) -> None:
        self._begin(parallel=not step.serial)
        if self._clock is not None:
            self._settle()
            self._emit(Op.CLOCK, 0)
            self._meet()  # the others wait here, so that none has begun before thread 0 reads the clock
        args = len(self._data)
        self._data_pointers += [(args + i, name) for i, name in enumerate(step.args)]
        self._data += [0] * len(step.args)
        dims = len(self._data)
        for place, dim in enumerate(step.dims, start=dims):
            if not dim.is_const:
                self._data_exprs.append((place, dim))
            self._data.append(dim.value if dim.is_const else 0)
        op = Op.SERIAL if step.serial else Op.LAUNCH
        start = self._emit(op, self._kernel_address(step.kernel), args, dims)
        self._data_offsets += [start + 2, start + 3]
        if step.variants:
            self._variants.append((start + 1, step))
        self._end(parallel=not step.serial)
        if self._clock is not None:
            self._settle()
            self._emit(Op.CLOCK, self._clock(step))

    def _copy(self, step: Copy) -> None:
        parallel = self._is_large(step.size_bytes)
        self._checks += [(step.size_bytes, step.src), (step.size_bytes, step.dst)]
        self._begin(parallel)
        self._emit(Op.PARALLEL_COPY if parallel else Op.COPY, step.dst, step.src, step.size_bytes)
        self._end(parallel)

    def _fill(self, step: Fill) -> None:
        parallel = self._is_large(step.size_bytes)
        self._checks.append((step.size_bytes, step.dst))
        self._begin(parallel)
        self._emit(Op.PARALLEL_FILL if parallel else Op.FILL, step.dst, step.value, step.size_bytes)
        self._end(parallel)

    @staticmethod
    def _is_large(size_bytes: Expr) -> bool:
        return not size_bytes.is_const or size_bytes.value >= _PARALLEL_BYTES

    def _begin(self, parallel: bool) -> None:
        if self._owed or (parallel and self._ahead):
            self._meet()

    def _end(self, parallel: bool) -> None:
        if parallel:
            self._owed = self._is_parallel = True
        else:
            self._ahead = True

    def _meet(self) -> None:
        self._emit(Op.BARRIER)
        self._owed = self._ahead = False

    def _settle(self) -> None:
        """Before a jump or its target: all threads have seen all that was done."""
        if self._owed or self._ahead:
            self._meet()

    def _branch(self, cond_buffer: str) -> int:
        """Jumps if the byte is zero; gives the place of the target. Thread 0 reads, then all meet."""
        self._checks.append((const(1), cond_buffer))
        if self._owed:
            self._meet()
        start = self._emit(Op.BRANCH_IF_ZERO, cond_buffer, 0)
        self._owed = self._ahead = False
        return start + 2

    def _here(self) -> int:
        return HEADER_WORDS + len(self._code)

    def _if(self, step: If) -> None:
        to_else = self._branch(step.cond_buffer)
        self.add(step.then)
        self._settle()
        to_end = self._emit(Op.JUMP, 0) + 1 if step.otherwise else None
        self._code[to_else] = self._here()
        self.add(step.otherwise)
        self._settle()
        if to_end is not None:
            self._code[to_end] = self._here()

    def _loop(self, step: Loop) -> None:
        slot = self._depth
        self._depth += 1
        if slot >= MAX_COUNTERS:
            raise EngineError(f"loops are nested more than {MAX_COUNTERS} deep")
        self._emit(Op.COUNTER_SET, slot, 0)
        self._settle()
        head = self._here()
        exits = []
        if step.trip_count is not None:
            exits.append(self._emit(Op.COUNTER_TEST, slot, step.trip_count, 0) + 3)
        if step.cond_buffer is not None:
            exits.append(self._branch(step.cond_buffer))
        if step.index_buffer is not None:
            self._checks.append((const(8), step.index_buffer))
            self._emit(Op.COUNTER_STORE, slot, step.index_buffer)
            self._ahead = True
        self.add(step.body)
        self._emit(Op.COUNTER_ADD, slot)
        # the branch at the head is a barrier of its own, unless the count ends the loop before it
        meets_at_head = step.cond_buffer is not None and step.trip_count is None
        if self._owed or (self._ahead and not meets_at_head):
            self._meet()
        self._emit(Op.JUMP, head)
        for place in exits:
            self._code[place] = self._here()
        self._depth -= 1
        self._owed = self._ahead = False
