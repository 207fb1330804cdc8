"""Search over candidates: each is measured inside runs of the whole network, one of every region at a time.

What a kernel takes depends on where the one before it left its data, in which core's cache. So each round
runs the network with one candidate for every region that still has any, and times all regions at once. The
second sweep puts the close ones against each other, with the best everywhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from hagane.tuner.timing_cache import Setting, TimingCache

Candidate = TypeVar("Candidate")
Measure = Callable[[Mapping[str, Candidate]], Mapping[str, float]]
"""measure(candidate by region key) -> microseconds by region key.

A region that the run doesn't reach is left out; a candidate that can't be compiled or run takes inf.
"""
_CLOSE = 1.1  # slower by no more than this factor in the first sweep: measured once more
_MOST_CLOSE = 3


@dataclass(frozen=True)
class Problem(Generic[Candidate]):
    """A region to tune: its key, and candidates by text, the best guess first."""

    key: str
    candidates: dict[str, Candidate]


def search(
    problems: Sequence[Problem[Candidate]],
    cache: TimingCache,
    setting: Setting,
    seconds: float,
    measure: Measure[Candidate],
    tell: Callable[[int, int], None],
) -> dict[str, Candidate]:
    """The fastest known candidate for each region key. Stops after `seconds`; what it has by then is valid.

    Candidates with records in the cache are not measured again: a complete cache gives the same choice.
    """
    searching = _Search(problems, cache, setting, time.monotonic() + seconds, measure, tell)
    pending = {p.key: [n for n in p.candidates if n not in cache.records(setting, p.key)] for p in problems}
    if searching.sweep(pending):
        searching.sweep(searching.close())
    return {p.key: p.candidates[searching.best(p)] for p in problems if searching.is_known(p)}


class _Search(Generic[Candidate]):
    """The state of one search."""

    def __init__(
        self,
        problems: Sequence[Problem[Candidate]],
        cache: TimingCache,
        setting: Setting,
        deadline: float,
        measure: Measure[Candidate],
        tell: Callable[[int, int], None],
    ) -> None:
        self._problems, self._cache, self._setting = problems, cache, setting
        self._deadline, self._measure, self._tell = deadline, measure, tell

    def is_known(self, problem: Problem[Candidate]) -> bool:
        """True if some candidate has a time."""
        return self._cache.best(self._setting, problem.key) in problem.candidates

    def best(self, problem: Problem[Candidate]) -> str:
        """The fastest candidate so far, or the best guess."""
        known = self._cache.best(self._setting, problem.key)
        return known if known in problem.candidates else next(iter(problem.candidates))

    def sweep(self, pending: Mapping[str, Sequence[str]]) -> bool:
        """Measures the candidates named for each key, in as many rounds as the longest list has names.

        False if there was nothing to measure, or no time for all.
        """
        left = {key: list(names) for key, names in pending.items()}
        rounds = max(map(len, left.values()), default=0)
        for number in range(rounds):
            if time.monotonic() >= self._deadline:
                return False
            self._tell(number, rounds)
            names = {p.key: left[p.key].pop(0) if left.get(p.key) else self.best(p) for p in self._problems}
            times = self._measure({p.key: p.candidates[names[p.key]] for p in self._problems})
            for key, name in names.items():
                if key in times:
                    self._cache.add(self._setting, key, name, times[key])
                else:
                    left[key] = []
            if not any(left.values()):
                break
        return rounds > 0

    def close(self) -> dict[str, list[str]]:
        """For each region the candidates nearly as fast as the best, where there are any."""
        found = {}
        for problem in self._problems:
            records = self._cache.records(self._setting, problem.key)
            known = sorted((records[n], n) for n in problem.candidates if n in records)
            close = [name for us, name in known if us <= known[0][0] * _CLOSE]
            if len(close) > 1:
                found[problem.key] = close[:_MOST_CLOSE]
        return found
