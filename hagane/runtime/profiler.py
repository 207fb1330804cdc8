"""Times each launch of a program inside whole runs, where caches and threads are as they are in use.

The job has a CLOCK instruction before and after each launch. Thread 0 reads the first while the others wait
for it at a barrier, and the second after a barrier that all come to; it adds the ticks that passed to the
launch's cell. So a time includes one barrier. Of several runs the smallest time counts, launch by launch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hagane.plan.abi import HEADER_WORDS, JOB_THREADS, Op
from hagane.plan.model import Launch, Program, preorder
from hagane.runtime.frame import run_program
from hagane.runtime.program import ProgramRunner
from hagane.runtime.resources import Resources
from hagane.runtime.session import Session

_CALIBRATION_US = 2000.0


class LaunchTime(NamedTuple):
    """A launch's time in one run of the program: us for all its turns together."""

    region: int
    us: float
    kernel: str
    turns: int


def profile(
    session: Session, feed: Mapping[str, Any], repeats: int = 20, seconds: float = float("inf")
) -> list[LaunchTime]:
    """Times of the launches of one run, in the plan's order; those never reached are left out.

    Runs `repeats` times, less if that takes more than `seconds`, and once before, which doesn't count.
    Programs that are called are not taken apart. Raises: RunError for inputs that don't fit.
    """
    with session.exclusive() as (resources, program):
        arrays = session.admit_feed(feed)
        cells = _Cells(program)
        runner = ProgramRunner(program, resources, cells.address)
        deadline = time.monotonic() + seconds
        try:
            binding = runner.bind(tuple(array.shape for array in arrays))
            for number in range(repeats + 1):
                cells.clear()
                run_program(runner, binding, arrays, None, session.runner)
                if number:
                    cells.keep()
                if number and time.monotonic() >= deadline:
                    break
        finally:
            runner.forget()
        return cells.times(_us_per_tick(resources))


class _Cells:
    """Two words for each launch: ticks and turns."""

    def __init__(self, program: Program) -> None:
        self._launches = [step for _, step in preorder(program.steps) if isinstance(step, Launch)]
        self._numbers = {id(launch): number for number, launch in enumerate(self._launches)}
        self._words = np.zeros((len(self._launches), 2), np.int64)
        self._least = np.full(len(self._launches), np.iinfo(np.int64).max)

    def address(self, launch: Launch) -> int:
        return int(self._words.ctypes.data) + self._numbers[id(launch)] * self._words.strides[0]

    def clear(self) -> None:
        self._words[:] = 0

    def keep(self) -> None:
        """Takes over what one run took."""
        np.minimum(self._least, self._words[:, 0], out=self._least)

    def times(self, us_per_tick: float) -> list[LaunchTime]:
        return [
            LaunchTime(launch.region, int(ticks) * us_per_tick, launch.kernel, int(turns))
            for launch, ticks, turns in zip(self._launches, self._least, self._words[:, 1], strict=True)
            if turns
        ]


def _us_per_tick(resources: Resources) -> float:
    """The length of a tick, from a job that spins for about two milliseconds."""
    cell = np.zeros(2, np.int64)
    best, count, elapsed = float("inf"), 1000, 0.0
    while elapsed < _CALIBRATION_US:
        cell[:] = 0
        program = [Op.CLOCK, 0, Op.PAUSE, count, Op.CLOCK, int(cell.ctypes.data), Op.END]
        job = np.zeros(HEADER_WORDS + len(program), np.int64)
        job[JOB_THREADS] = 1
        job[HEADER_WORDS:] = program
        start = time.perf_counter_ns()
        resources.execute(int(job.ctypes.data))
        elapsed = (time.perf_counter_ns() - start) / 1e3
        best = elapsed / int(cell[0])
        count *= 2
    return best
