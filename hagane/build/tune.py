"""Tuning a build: candidates for each region, measured on this machine, or known from the timing cache."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from hagane.build.choosing import Choices
from hagane.build.compile import Compiler
from hagane.build.options import BuildOptions, report
from hagane.build.regions import plan_alone, region_feed, sample_dims, sessions, unique_regions
from hagane.core.errors import HaganeError, InternalError
from hagane.core.targets import can_run
from hagane.ir.graph import Array, Graph
from hagane.ir.region import Region
from hagane.kernels.catalog import fallback, fitting
from hagane.kernels.tactic import Params, Tactic, describe
from hagane.lower.cost import region_flops
from hagane.lower.region_key import region_key
from hagane.tuner.search import Problem, search
from hagane.tuner.timing_cache import Setting, TimingCache

Choice = tuple[Tactic, Params]
MAX_CANDIDATES = 12
TUNING_SIZES = (64, 96, 192, 384, 48, 24)  # values of symbols that kernels are timed at
MEASURE_SECONDS = 0.03


def tune_graph(
    graph: Graph, choices: Choices, compiler: Compiler, options: BuildOptions, weights: Mapping[str, Array]
) -> str:
    """Sets the choices from the timing cache and, within the time budget, from measurements.

    Returns the choices that were made, one a line, with no timing: equal inputs give equal engines.
    """
    path = None if options.timing_cache is None else Path(options.timing_cache)
    if path is None and options.time_budget == 0:
        return ""
    cache = TimingCache() if path is None else TimingCache.read(path)
    threads = len(os.sched_getaffinity(0))
    setting = Setting(str(choices.target), threads, generator_version())
    measuring = _Measuring(choices, compiler, weights, threads)
    problems = [p for key, r in unique_regions(graph).items() if (p := measuring.problem(key, r)) is not None]
    seconds = options.time_budget if can_run(choices.target) else 0.0
    chosen = search(
        problems, cache, setting, seconds, lambda done, total: report(options, "tune", done, total)
    )
    choices.known.update(chosen)
    if path is not None and options.time_budget > 0:
        cache.write(path)
    return "\n".join(f"{key} {describe(*chosen[key])}" for key in sorted(chosen))


def generator_version() -> str:
    """What code depends on beside the region: our version and LLVM's binding."""
    return f"hagane-{metadata.version('hagane')}/llvmlite-{metadata.version('llvmlite')}"


class _Measuring:
    """Times candidates of single regions."""

    def __init__(
        self, choices: Choices, compiler: Compiler, weights: Mapping[str, Array], threads: int
    ) -> None:
        self.choices, self.compiler, self.weights, self.threads = choices, compiler, weights, threads

    def problem(self, key: str, region: Region) -> Problem[Choice] | None:
        """The region as a search problem; None if there is nothing to choose."""
        target = self.choices.target
        candidates: dict[str, Choice] = {}
        for tactic in fitting(region, target):
            if candidates and tactic is fallback():
                continue
            for params in tactic.space(region, target):
                candidates[describe(tactic, params)] = (tactic, params)
        if len(candidates) < 2:
            return None
        first = dict(list(candidates.items())[:MAX_CANDIDATES])
        dims = sample_dims(region, TUNING_SIZES)
        if not dims:
            return None
        weight = float(region_flops(region).evaluate(dims[0]))
        return Problem(key, weight, first, lambda wanted: self._measure(region, dims[0], wanted))

    def _measure(
        self, region: Region, dims: Mapping[str, int], wanted: Sequence[Choice]
    ) -> list[float | None]:
        library = self.compiler.library()
        plans = [plan_alone(region, library, self._forced(region, choice)) for choice in wanted]
        times: list[float | None] = []
        try:
            for alone, session in zip(
                plans, sessions(plans, library, self.compiler, self.weights, self.threads), strict=True
            ):
                with session:
                    feed = region_feed(alone, dims, "normal", 0)
                    times.append(_time(lambda: session.run(feed)))  # noqa: B023  called before the next turn
        except InternalError:
            return [None] * len(wanted)
        except HaganeError:
            times += [None] * (len(wanted) - len(times))
        return times

    def _forced(self, region: Region, choice: Choice) -> Choices:
        return Choices(self.choices.target, {region_key(region): choice})


def _time(run: Callable[[], object]) -> float:
    """Smallest of several times, in microseconds."""
    run()
    best, end = float("inf"), time.perf_counter() + MEASURE_SECONDS
    while True:
        start = time.perf_counter()
        run()
        now = time.perf_counter()
        best = min(best, now - start)
        if now >= end:
            return best * 1e6
