"""Tuning a build: candidates for each region, measured on this machine, or known from the timing cache."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import numpy as np

from hagane.build.choosing import Choices
from hagane.build.compile import Compiler
from hagane.build.options import BuildOptions, report
from hagane.build.plan import needed_weights, write_plan
from hagane.build.regions import unique_regions
from hagane.core.dims import Dim
from hagane.core.errors import HaganeError
from hagane.core.symbolic import Sym
from hagane.core.targets import can_run
from hagane.engine.image import EngineImage
from hagane.ir.graph import Array, Graph
from hagane.ir.region import Region
from hagane.kernels.catalog import fallback, fitting
from hagane.kernels.tactic import Params, Tactic, describe
from hagane.lower.kernels import KernelLibrary
from hagane.lower.region_key import region_key
from hagane.plan.model import Launch, Plan, preorder
from hagane.runtime.profiler import profile
from hagane.runtime.session import Session
from hagane.tuner.search import Problem, search
from hagane.tuner.timing_cache import Setting, TimingCache

Choice = tuple[Tactic, Params]
MAX_CANDIDATES = 12
# What kernels are tuned for where the user doesn't say: batch 1, pictures of 320 by 320, sequences of 128.
_BATCH, _PIXELS, _LENGTH = 1, 320, 128
# A round is blocks of runs by turns with the anchor, the network of the best guesses: a machine's speed may
# change by a third within minutes, and only times beside the anchor's can be compared with other rounds'.
_BLOCKS, _RUNS, _BLOCK_SECONDS = 4, 6, 0.12

log = logging.getLogger(__name__)


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
    found = (_problem(key, region, choices) for key, region in sorted(unique_regions(graph).items()))
    problems = [problem for problem in found if problem is not None]
    seconds = options.time_budget if can_run(choices.target) else 0.0
    rounds = _Rounds(graph, choices, compiler, weights, typical_feed(graph, options.shapes), threads)

    def tell(done: int, total: int) -> None:
        report(options, "tune", done, total)

    try:
        chosen = search(problems, cache, setting, seconds, rounds.measure, tell)
    finally:
        rounds.close()
    choices.known.update(chosen)
    if path is not None and options.time_budget > 0:
        cache.write(path)
    return "\n".join(f"{key} {describe(*chosen[key])}" for key in sorted(chosen))


def generator_version() -> str:
    """What code depends on beside the region: our version and LLVM's binding."""
    return f"hagane-{metadata.version('hagane')}/llvmlite-{metadata.version('llvmlite')}"


def _problem(key: str, region: Region, choices: Choices) -> Problem[Choice] | None:
    """The region as a search problem; None if there is nothing to choose."""
    target = choices.target
    candidates: dict[str, Choice] = {}
    for tactic in fitting(region, target):
        if candidates and tactic is fallback():
            continue
        for params in tactic.space(region, target):
            candidates[describe(tactic, params)] = (tactic, params)
    first = dict(list(candidates.items())[:MAX_CANDIDATES])
    return Problem(key, first) if len(first) > 1 else None


def typical_feed(graph: Graph, shapes: Mapping[str, tuple[object, ...]]) -> dict[str, Array]:
    """Inputs that kernels are tuned on: normal floats, zeros elsewhere, of the sizes that `shapes` asks for.

    Integers may be indices, and 0 is in range wherever anything is.
    """
    wanted = {dim.name: dim.opt for dims in shapes.values() for dim in dims if isinstance(dim, Dim)}
    sizes: dict[str, int] = {}
    for value in graph.inputs:
        for axis, extent in enumerate(value.shape):
            typical = _BATCH if axis == 0 and len(value.shape) > 1 else _LENGTH
            if axis > 0 and len(value.shape) == 4:
                typical = _PIXELS
            for symbol in extent.symbols():
                sizes.setdefault(symbol.name, wanted.get(symbol.name) or _nearest(symbol, typical))
    rng = np.random.default_rng(0)
    feed: dict[str, Array] = {}
    for value in graph.inputs:
        shape = tuple(extent.evaluate(sizes) for extent in value.shape)
        numbers = rng.standard_normal(shape) if value.dtype.is_float else np.zeros(shape)
        feed[value.name] = numbers.astype(value.dtype.np)
    return feed


def _nearest(symbol: Sym, wanted: int) -> int:
    """The allowed size nearest to the wanted one."""
    size = max(wanted, symbol.lo) if symbol.hi is None else min(max(wanted, symbol.lo), symbol.hi)
    return max(size // symbol.multiple, 1) * symbol.multiple


class _Rounds:
    """Runs of the network with given choices, timed region by region."""

    def __init__(
        self,
        graph: Graph,
        choices: Choices,
        compiler: Compiler,
        weights: Mapping[str, Array],
        feed: Mapping[str, Array],
        threads: int,
    ) -> None:
        self._graph, self._choices, self._compiler = graph, choices, compiler
        self._weights, self._feed, self._threads = weights, feed, threads
        self._anchor: Session | None = None
        self._anchor_us = 0.0

    def close(self) -> None:
        """Gives back what the anchor holds."""
        if self._anchor is not None:
            self._anchor.close()

    def measure(self, wanted: Mapping[str, Choice]) -> dict[str, float]:
        """Microseconds by region key, all its launches together; inf where the kernel can't be compiled."""
        plan, keys, failed = self._plan(wanted)
        times = dict.fromkeys(failed, float("inf"))
        if failed:
            usable = {key: choice for key, choice in wanted.items() if key not in failed}
            plan, keys, _ = self._plan(usable)
        try:
            us = self._time(plan)
        except HaganeError as error:
            log.warning("tuning ends: the network doesn't run on typical inputs (%s)", error.what)
            return {}
        for region, time in us.items():
            if keys[region] not in failed:
                times[keys[region]] = times.get(keys[region], 0.0) + time
        return times

    def _plan(self, wanted: Mapping[str, Choice]) -> tuple[Plan, list[str], set[str]]:
        """A plan, the key of each of its regions, and the keys whose kernels can't be compiled."""
        keys: list[str] = []
        choices = Choices(self._choices.target, self._choices.known | dict(wanted))

        def choose(region: Region) -> Choice:
            keys.append(region_key(region))
            return choices(region)

        self._library = self._compiler.library()
        plan = write_plan(self._graph, self._library, choose)
        failing = self._compiler.failing(list(self._library.kernels.values()))
        launches = [s for p in plan.programs.values() for _, s in preorder(p.steps) if isinstance(s, Launch)]
        return plan, keys, {keys[step.region] for step in launches if step.kernel in failing}

    def _time(self, plan: Plan) -> dict[int, float]:
        """Microseconds by region, as they would be if the machine were as fast as at the first round."""
        if self._anchor is None:
            library = self._compiler.library()
            self._anchor = self._session(write_plan(self._graph, library, self._choices), library)
            self._anchor_us = _sum(self._blocks(self._anchor)[0])
        with self._session(plan, self._library) as session:
            candidate, anchor = self._blocks(session, self._anchor)
        scale = self._anchor_us / _sum(anchor)
        return {region: us * scale for region, us in candidate.items()}

    def _blocks(self, *sessions: Session) -> list[dict[int, float]]:
        """The least microseconds by region of each session, all run by turns."""
        least: list[dict[int, float]] = [{} for _ in sessions]
        for _ in range(_BLOCKS):
            for session, known in zip(sessions, least, strict=True):
                us: dict[int, float] = {}
                for launch in profile(session, self._feed, _RUNS, _BLOCK_SECONDS):
                    us[launch.region] = us.get(launch.region, 0.0) + launch.us
                for region, time in us.items():
                    known[region] = min(time, known.get(region, time))
        return least

    def _session(self, plan: Plan, library: KernelLibrary) -> Session:
        name = str(library.target)
        image = EngineImage(
            plans={name: plan},
            code={name: self._compiler.blob(list(library.kernels.values()))},
            weights=needed_weights(plan, self._weights),
            pack="on-load",
        )
        return Session(image, threads=self._threads)


def _sum(us: Mapping[int, float]) -> float:
    return max(sum(us.values()), 1e-9)
