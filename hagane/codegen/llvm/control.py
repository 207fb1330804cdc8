"""Loops and branches. Each is a context manager; values made inside don't leave it, but through a Var."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from hagane.codegen.llvm.types import i64
from hagane.codegen.llvm.value import Operand, Value
from hagane.codegen.llvm.vectors import Vectors


class Control(Vectors):
    """Control flow."""

    @contextlib.contextmanager
    def loop(self, lo: Operand, hi: Operand, step: Operand = 1, keep: bool = False) -> Iterator[Value]:
        """Counts an i64 from lo while it is below hi; may run zero times. The step is positive.

        One trip becomes straight code unless keep: a loop of its own keeps LLVM from merging its loads.
        """
        first, end, stride = (self.literal(x, i64) for x in (lo, hi, step))
        if stride.const is not None and stride.const <= 0:
            raise ValueError(f"the step of a loop is positive, not {stride.const}")
        if first.const is None or end.const is None:
            with self.if_(first.lt(end)), self._bottom_tested(first, end, stride) as index:
                yield index
        elif first.const >= end.const:
            with self._discarded():
                yield first
        elif not keep and stride.const is not None and first.const + stride.const >= end.const:
            yield first
        else:
            with self._bottom_tested(first, end, stride) as index:
                yield index

    @contextlib.contextmanager
    def loop_nonempty(
        self, lo: Operand, hi: Operand, step: Operand = 1, keep: bool = False
    ) -> Iterator[Value]:
        """As loop, but for bounds known to give one trip at least: saves the test before it."""
        first, end, stride = (self.literal(x, i64) for x in (lo, hi, step))
        if first.const is not None and end.const is not None:
            if first.const >= end.const:
                raise ValueError(f"the loop from {first.const} to {end.const} is empty")
            with self.loop(first, end, stride, keep) as index:
                yield index
        else:
            with self._bottom_tested(first, end, stride) as index:
                yield index

    @contextlib.contextmanager
    def _bottom_tested(self, first: Value, end: Value, stride: Value) -> Iterator[Value]:
        before, body, latch, after = (self.new_name(stem) for stem in ("before", "body", "latch", "after"))
        self.raw(f"br label %{before}")
        self.place(before)
        self.raw(f"br label %{body}")
        self.place(body)
        step_name = "%" + self.new_name()
        index = self.emit(f"phi i64 [ {first.text}, %{before} ], [ {step_name}, %{latch} ]", i64)
        yield index
        self.raw(f"br label %{latch}")
        self.place(latch)
        wrap = "nuw nsw" if first.const is not None and first.const >= 0 else "nsw"
        self.raw(f"{step_name} = add {wrap} i64 {index.text}, {stride.text}")
        again = Value(self._function, step_name, i64).lt(end)
        self.raw(f"br i1 {again.text}, label %{body}, label %{after}, !llvm.loop !0")
        self.place(after)

    @contextlib.contextmanager
    def _discarded(self) -> Iterator[None]:
        """Throws away what is emitted inside: code known never to run."""
        kept = len(self.lines)
        yield
        del self.lines[kept:]

    @contextlib.contextmanager
    def while_(self, condition: Callable[[], Value]) -> Iterator[None]:
        """Repeats the body while the condition, emitted anew before each trip, holds."""
        test, body, after = (self.new_name(stem) for stem in ("test", "body", "after"))
        self.raw(f"br label %{test}")
        self.place(test)
        held = condition()
        self.raw(f"br i1 {held.text}, label %{body}, label %{after}")
        self.place(body)
        yield
        self.raw(f"br label %{test}, !llvm.loop !0")
        self.place(after)

    @contextlib.contextmanager
    def if_(self, condition: Value) -> Iterator[None]:
        """Runs the body if the i1 holds."""
        if condition.const is not None:
            with contextlib.nullcontext() if condition.const else self._discarded():
                yield
            return
        then, after = self.new_name("then"), self.new_name("after")
        self.raw(f"br i1 {condition.text}, label %{then}, label %{after}")
        self.place(then)
        yield
        self.raw(f"br label %{after}")
        self.place(after)

    @contextlib.contextmanager
    def if_else(
        self, condition: Value
    ) -> Iterator[tuple[AbstractContextManager[None], AbstractContextManager[None]]]:
        """Two branches: `with f.if_else(c) as (then, otherwise):`, `with then:`, `with otherwise:`."""
        if condition.const is not None:
            dead, live = self._discarded(), contextlib.nullcontext()
            yield (live, dead) if condition.const else (dead, live)
            return
        labels = [self.new_name(stem) for stem in ("then", "otherwise")]
        after = self.new_name("after")
        self.raw(f"br i1 {condition.text}, label %{labels[0]}, label %{labels[1]}")
        used: list[str] = []
        yield self._branch(labels[0], after, used), self._branch(labels[1], after, used)
        if used != labels:
            raise RuntimeError(
                "if_else wants `with then:` and `with otherwise:`, once each and in this order"
            )
        self.place(after)

    @contextlib.contextmanager
    def _branch(self, label: str, after: str, used: list[str]) -> Iterator[None]:
        used.append(label)
        self.place(label)
        yield
        self.raw(f"br label %{after}")
