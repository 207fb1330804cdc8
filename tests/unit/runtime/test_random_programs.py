"""Random programs against NumPy: barriers, jumps and the arena, on several threads."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hagane.core.symbolic import const, sym
from hagane.plan.model import (
    Buffer,
    Copy,
    Fill,
    If,
    Launch,
    Loop,
    Program,
    Step,
    Symbol,
    children,
    count_steps,
)
from hagane.runtime import Session
from tests.unit.runtime.kernels import buffer, f32, image
from tests.unit.runtime.test_control_flow import count, flag

N = sym("N", 1)
NUM_BUFFERS = 6
UNARY = {"add1": lambda a: a + np.float32(1), "double": lambda a: a * np.float32(2), "negate": lambda a: -a}
BINARY = {"add": np.add, "mul": np.minimum}


class Writer:
    """Writes steps that read only what has been written before."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.names = [f"b{i}" for i in range(NUM_BUFFERS)]
        self.flags = 0

    def steps(self, number: int, defined: set[str], depth: int) -> tuple[Step, ...]:
        found: list[Step] = []
        for _ in range(number):
            found += self.step(defined, depth)
        return tuple(found)

    def step(self, defined: set[str], depth: int) -> list[Step]:
        rng, kind = self.rng, self.rng.randrange(12)
        target, source = rng.choice(self.names), rng.choice(sorted(defined))
        serial = rng.random() < 0.3
        if kind < 5:
            kernel = rng.choice(sorted(UNARY))
            step: Step = Launch(kernel, (source, target), (N,), serial)
        elif kind < 7:
            step = Launch("add", (source, rng.choice(sorted(defined)), target), (N,), serial)
        elif kind == 7:
            if source == target:
                return []
            step = Copy(source, target, N * 4)
        elif kind == 8:
            step = Fill(target, N * 4, 0)
        elif depth == 3:
            return []
        elif kind < 11:
            name = f"flag{self.flags}"
            self.flags += 1
            then, otherwise = set(defined), set(defined)
            branches = self.steps(3, then, depth + 1), self.steps(rng.choice((0, 2)), otherwise, depth + 1)
            defined |= then & otherwise
            return [Launch("first_positive", (source, name), serial=True), If(name, *branches)]
        else:
            body = self.steps(3, set(defined), depth + 1)
            index = f"flag{self.flags}"
            self.flags += 1
            return [Loop(const(rng.randrange(4)), None, index, (*body, Launch("add_index", (index, source))))]
        defined.add(target)
        return [step]


def used(step: Step) -> tuple[str, ...]:
    if isinstance(step, Launch):
        return step.args
    if isinstance(step, Copy):
        return (step.src, step.dst)
    if isinstance(step, Fill):
        return (step.dst,)
    if isinstance(step, If):
        return (step.cond_buffer,)
    return (step.index_buffer,) if isinstance(step, Loop) and step.index_buffer else ()


def lifetimes(
    steps: tuple[Step, ...], start: int, loop: tuple[int, int] | None, found: dict[str, list[int]]
) -> int:
    for step in steps:
        own = (start, start + count_steps((step,)) - 1) if isinstance(step, Loop) else (start, start)
        for name in used(step):
            found.setdefault(name, []).extend(loop or own)
        inner = loop or (own if isinstance(step, Loop) else None)
        start += 1
        for nested in children(step):
            start = lifetimes(nested, start, inner, found)
    return start


def simulate(steps: tuple[Step, ...], memory: dict[str, Any]) -> None:
    for step in steps:
        if isinstance(step, Launch) and step.kernel == "first_positive":
            memory[step.args[1]] = memory[step.args[0]][0] > 0
        elif isinstance(step, Launch) and step.kernel == "add_index":
            memory[step.args[1]] = memory[step.args[1]].copy()
            memory[step.args[1]][0] += np.float32(memory[step.args[0]])
        elif isinstance(step, Launch):
            function: Any = UNARY.get(step.kernel) or BINARY[step.kernel]
            memory[step.args[-1]] = function(*(memory[name] for name in step.args[:-1]))
        elif isinstance(step, Copy):
            memory[step.dst] = memory[step.src].copy()
        elif isinstance(step, Fill):
            memory[step.dst] = np.zeros_like(memory["x"])
        elif isinstance(step, If):
            simulate(step.then if memory[step.cond_buffer] else step.otherwise, memory)
        elif isinstance(step, Loop):
            assert step.trip_count is not None
            for index in range(step.trip_count.value):
                memory[step.index_buffer or ""] = index
                simulate(step.body, memory)


def random_program(seed: int) -> Program:
    """x to y by way of an arena that is as tight as the lifetimes allow."""
    writer = Writer(seed)
    defined = {"b0"}
    steps = (Copy("x", "b0", N * 4), *writer.steps(12, defined, 0))
    steps = (*steps, Launch("add", (writer.rng.choice(sorted(defined)), "b0", "y"), (N,)))
    found: dict[str, list[int]] = {}
    lifetimes(steps, 0, None, found)
    flags = {f"flag{i}": flag(f"flag{i}") for i in range(writer.flags)}
    indices = {s.index_buffer for s in all_steps(steps) if isinstance(s, Loop)}
    buffers: list[Buffer] = [buffer(f32("x", N), "input"), buffer(f32("y", N), "output")]
    for name in sorted(set(found) - {"x", "y"}):
        plain = count(name) if name in indices else flags.get(name) or buffer(f32(name, N))
        buffers.append(replace(plain, first_step=min(found[name]), last_step=max(found[name])))
    return Program("main", (f32("x", N),), (f32("y", N),), (), tuple(buffers), steps)


def all_steps(steps: tuple[Step, ...]) -> list[Step]:
    return [s for step in steps for s in (step, *(i for nested in children(step) for i in all_steps(nested)))]


@pytest.mark.parametrize("seed", range(60))
def test_random_program(seed: int) -> None:
    program = random_program(seed)
    engine = image(program, (Symbol("N", 1),))
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(size).astype(np.float32) for size in (1, 7, 1000, 20_000)]
    for threads in (1, 2, 3):
        with Session(engine, threads=threads) as session:
            for x in inputs:
                memory: dict[str, Any] = {"x": x}
                with np.errstate(all="ignore"):
                    simulate(program.steps, memory)
                got = session.run({"x": x})["y"]
                assert np.array_equal(got, memory["y"], equal_nan=True), (threads, len(x))
