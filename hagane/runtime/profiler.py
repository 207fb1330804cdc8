"""Times each launch of a program, on real data.

The program runs in order, every launch as a job of its own. At its first turn a launch is repeated with its
buffers restored before each time, so that all later steps see the right data; the smallest time counts,
less what an empty job takes. Its data is in the cache then, which in a whole run it may not be.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hagane.plan.abi import HEADER_WORDS, JOB_THREADS, Op
from hagane.plan.model import Launch
from hagane.runtime.frame import Frame
from hagane.runtime.program import ProgramRunner
from hagane.runtime.resources import Resources, memory_view
from hagane.runtime.schedule import Segment
from hagane.runtime.session import Session

_BYTE = np.dtype(np.uint8)


class LaunchTime(NamedTuple):
    """A launch's time in one run of the program: us for all its turns together."""

    region: int
    us: float
    kernel: str
    turns: int


def profile(session: Session, feed: Mapping[str, Any], repeats: int = 20) -> list[LaunchTime]:
    """Times of the launches of one run, in the order of their first turn; those never reached are left out.

    Raises: RunError for inputs that don't fit. Programs that are called are not taken apart.
    """
    with session.exclusive() as (resources, program):
        arrays = session.admit_feed(feed)
        runner = ProgramRunner(program, resources, split=True)
        try:
            binding = runner.bind(tuple(array.shape for array in arrays))
            frame = _TimingFrame(runner, binding, arrays, None, session.runner)
            frame.prepare(repeats, _empty_job_us(resources, repeats))
            frame.results()
            return frame.times()
        finally:
            runner.forget()


def _empty_job_us(resources: Resources, repeats: int) -> float:
    job = np.zeros(HEADER_WORDS + 1, np.int64)
    job[JOB_THREADS] = resources.threads
    job[HEADER_WORDS] = Op.END
    return _best_us(resources, int(job.ctypes.data), repeats + 5)


def _best_us(resources: Resources, job: int, repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter_ns()
        resources.execute(job)
        best = min(best, (time.perf_counter_ns() - start) / 1e3)
    return best


class _TimingFrame(Frame):
    """A run that times launches on the way."""

    def prepare(self, repeats: int, overhead_us: float) -> None:
        self._repeats = repeats
        self._overhead_us = overhead_us
        self._best: dict[int, float] = {}
        self._turns: dict[int, int] = {}
        self._launches: dict[int, Launch] = {}

    def times(self) -> list[LaunchTime]:
        return [
            LaunchTime(launch.region, self._best[key] * self._turns[key], launch.kernel, self._turns[key])
            for key, launch in self._launches.items()
        ]

    def _run_segment(self, segment: Segment) -> None:
        (step,) = segment.steps
        key = id(segment)
        if isinstance(step, Launch) and key not in self._launches:
            self._launches[key] = step
            saved = {name: self._bytes(name).copy() for name in self._writable(step)}
            super()._run_segment(segment)
            after = {name: self._bytes(name).copy() for name in saved}
            best = float("inf")
            for _ in range(self._repeats):
                self._restore(saved)
                best = min(best, _best_us(self._runner.resources, self._binding.segments[key].address, 1))
            self._restore(after)
            self._best[key] = max(0.0, best - self._overhead_us)
        else:
            super()._run_segment(segment)
        self._turns[key] = self._turns.get(key, 0) + 1

    def _writable(self, step: Launch) -> list[str]:
        """Arguments that the launch may write."""
        buffers = self._runner.buffers
        return [
            name for name in dict.fromkeys(step.args) if name in buffers and buffers[name].kind in _WRITABLE
        ]

    def _bytes(self, name: str) -> np.ndarray[Any, Any]:
        return memory_view(self._address(name), _BYTE, (self._size(name),))

    def _restore(self, saved: Mapping[str, np.ndarray[Any, Any]]) -> None:
        for name, content in saved.items():
            self._bytes(name)[...] = content


_WRITABLE = ("arena", "output", "state")
