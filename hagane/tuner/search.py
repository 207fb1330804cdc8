"""Search over candidates: measure all of one region after the other, the heaviest first, until time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from hagane.tuner.timing_cache import Setting, TimingCache

Candidate = TypeVar("Candidate")
Measure = Callable[[Sequence[Candidate]], list[float | None]]
"""measure(candidates) -> microseconds of each, None for one that can't be compiled or run."""


@dataclass(frozen=True)
class Problem(Generic[Candidate]):
    """A region to tune: its key, weight (operations), and candidates by text, the best guess first."""

    key: str
    weight: float
    candidates: dict[str, Candidate]
    measure: Measure[Candidate]


def search(
    problems: Sequence[Problem[Candidate]],
    cache: TimingCache,
    setting: Setting,
    seconds: float,
    tell: Callable[[int, int], None],
) -> dict[str, Candidate]:
    """The fastest known candidate for each region key. Stops after `seconds`; what it has by then is valid.

    Regions with records in the cache are not measured again, so the same cache gives the same choice.
    """
    deadline = time.monotonic() + seconds
    ordered = sorted(problems, key=lambda p: (-p.weight, p.key))
    for number, problem in enumerate(ordered):
        tell(number, len(ordered))
        if cache.best(setting, problem.key) is not None or len(problem.candidates) < 2:
            continue
        if time.monotonic() >= deadline:
            continue
        names = list(problem.candidates)
        for name, us in zip(names, problem.measure([problem.candidates[n] for n in names]), strict=True):
            if us is not None:
                cache.add(setting, problem.key, name, us)
    chosen: dict[str, Candidate] = {}
    for problem in ordered:
        best = cache.best(setting, problem.key)
        if best is not None and best in problem.candidates:
            chosen[problem.key] = problem.candidates[best]
    return chosen
