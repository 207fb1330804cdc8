"""A session: an engine made ready to run.

Sessions are thread-safe: a lock serialises the runs of one session, which use one arena; several sessions
run in turn on the process's pool, or side by side if each has threads=1. A session that was made before a
fork works in the child. Outputs are fresh arrays that belong to the caller, unless `out` names arrays to
fill.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import EngineError, HaganeError, RunError
from hagane.core.targets import can_run, native_cpu, parse_target
from hagane.engine.image import EngineImage
from hagane.plan.abi import MAX_THREADS
from hagane.plan.model import Port, Program, Symbol
from hagane.plan.verify import verify_plan
from hagane.runtime.devices.cores import default_threads
from hagane.runtime.frame import run_program
from hagane.runtime.inputs import admit, feed_error
from hagane.runtime.program import Binding, ProgramRunner, Shapes
from hagane.runtime.resources import Resources

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Array = np.ndarray[Any, Any]

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class TensorInfo(NamedTuple):
    """What a port takes or gives; a dim is a number, or an expression over the names of symbols."""

    name: str
    dtype: DType
    shape: tuple[int | str, ...]


class Session:
    """Runs one engine.

    threads: None takes as many as the process has cores. affinity: CPUs that the worker threads are pinned
    to; the calling thread, which works too, is left alone. memory_limit: most bytes for packed weights,
    arena and workspace together.

    Raises: EngineError if the engine doesn't fit this machine, RunError if it needs too much memory.
    """

    def __init__(
        self,
        image: EngineImage,
        threads: int | None = None,
        affinity: Sequence[int] | None = None,
        memory_limit: int | None = None,
    ) -> None:
        target = choose_target(image)
        plan = image.plans[target]
        if not image.verified:
            verify_plan(plan, set(image.code[target].symbols))
        threads = _check_threads(threads)
        self.metadata: Mapping[str, str] = dict(image.metadata)
        self.target = target
        self._symbols = {s.name: s for s in plan.symbols}
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        _check_memory_limit(memory_limit)
        resources = Resources(image, target, threads, _check_affinity(affinity), memory_limit)
        self._resources: Resources | None = resources
        self._runners: dict[str, ProgramRunner] = {}
        self._main = self.runner("main" if "main" in plan.programs else next(iter(plan.programs)))
        self._last: tuple[Shapes, Binding] | None = None
        self._plain_inputs = [(p.name, p.dtype.np, p) for p in self._main.program.inputs]
        _sessions.add(self)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """What run() wants, in order."""
        return tuple(map(_info, self._main.program.inputs))

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """What run() gives, in order."""
        return tuple(map(_info, self._main.program.outputs))

    @property
    def symbols(self) -> Mapping[str, Symbol]:
        """The names in the shapes of inputs and outputs, with their ranges."""
        return self._symbols

    @property
    def threads(self) -> int:
        """Threads that a run uses, the caller's included."""
        return self._open().threads

    @property
    def memory(self) -> Mapping[str, int]:
        """Bytes by owner: weights (mapped from the file), packed, arena, workspace, states, code."""
        return self._open().memory()

    def run(self, feed: Mapping[str, Any], out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Computes the outputs for one array per input, by name; objects with __dlpack__ on the CPU do too.

        out: arrays to fill instead of new ones, by output name.
        Raises: RunError for inputs that don't fit.
        """
        with self._lock:
            main = self._main
            arrays = self.admit_feed(feed)
            key = tuple([array.shape for array in arrays])
            last = self._last
            if last is None or last[0] != key:
                self._open()
                self._last = last = (key, main.bind(key))
            if out is not None:
                self._check_out_names(out)
            if main.is_static:
                return main.run_static(last[1], arrays, out)
            return run_program(main, last[1], arrays, out, self.runner)

    def run_async(
        self, feed: Mapping[str, Any], out: Mapping[str, Array] | None = None
    ) -> Future[dict[str, Array]]:
        """Starts a run on another thread; leave the arrays alone until the future is done."""
        with self._lock:
            self._open()
            if self._executor is None:
                from concurrent.futures import ThreadPoolExecutor

                self._executor = ThreadPoolExecutor(1, "hagane-async")
            return self._executor.submit(self.run, feed, out)

    def admit_feed(self, feed: Mapping[str, Any]) -> list[Array]:
        """The arrays of a feed in the order of the inputs, as run() takes them.

        Raises: RunError if one is missing, unknown, no array or of another dtype.
        """
        arrays = []
        if type(feed) is not dict and not isinstance(feed, Mapping):
            raise feed_error(self._main.program.inputs, feed)
        try:
            for name, dtype, port in self._plain_inputs:
                array = feed[name]
                # carray: contiguous, aligned, writable; the rest takes a closer look
                if type(array) is not np.ndarray or array.dtype is not dtype or not array.flags.carray:
                    array = admit(port, array)
                arrays.append(array)
        except KeyError:
            raise feed_error(self._main.program.inputs, feed) from None
        if len(feed) != len(arrays):
            raise feed_error(self._main.program.inputs, feed)
        return arrays

    @contextmanager
    def exclusive(self) -> Iterator[tuple[Resources, Program]]:
        """Keeps runs out while a tool, such as the profiler, uses what they use."""
        with self._lock:
            yield self._open(), self._main.program

    def reset_states(self) -> None:
        """Forgets what earlier runs left in the engine's states: they are zero again."""
        with self._lock:
            self._open().drop_states()
            self._forget_bindings()

    def trim(self) -> None:
        """Gives back the arena and the workspace; the next run takes what it needs."""
        with self._lock:
            self._open().scratch.trim()
            self._forget_bindings()

    def close(self) -> None:
        """Waits for runs in progress and gives everything back; the session can't run any more."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()
        with self._lock:
            resources, self._resources = self._resources, None
            if resources is not None:
                self._forget_bindings()
                resources.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self) -> Resources:
        if self._resources is None:
            raise RunError("the session is closed", next_step="load the engine again")
        return self._resources

    def runner(self, name: str) -> ProgramRunner:
        """What runs a program of the plan; for holders of the session's lock."""
        found = self._runners.get(name)
        if found is None:
            resources = self._open()
            found = self._runners[name] = ProgramRunner(resources.plan.programs[name], resources)
        return found

    def _forget_bindings(self) -> None:
        self._last = None
        for runner in self._runners.values():
            runner.forget()

    def _check_out_names(self, out: Mapping[str, Array]) -> None:
        names = [port.name for port in self._main.program.outputs]
        if not isinstance(out, Mapping):
            raise RunError(
                f"out= is a {type(out).__name__}, not a dict of arrays by name",
                where={"outputs": ", ".join(names)},
                next_step=f"pass out={{{names[0]!r}: array}}, or leave it out",
            )
        unknown = sorted(str(name) for name in out if name not in names)
        if unknown:
            raise RunError(
                f"out= names {', '.join(unknown)}, which the engine doesn't give",
                where={"outputs": ", ".join(names)},
                next_step="name outputs of the engine",
            )

    def _after_fork(self) -> None:
        """In a child: a thread of the parent may have held the lock, and the executor has lost its thread."""
        self._lock = threading.Lock()
        self._executor = None


def choose_target(image: EngineImage) -> str:
    """The best of the engine's targets that this machine runs.

    Raises: EngineError if there is none.
    """
    usable = []
    for name in image.plans:
        try:
            target = parse_target(name) if name.startswith("cpu:") else None
        except HaganeError:
            target = None
        if target is not None and name in image.code and can_run(target):
            usable.append((target.vector_bytes, len(target.features), name))
    if not usable:
        raise EngineError(
            f"the engine is for {', '.join(image.plans) or 'nothing'}; this machine is {native_cpu()}",
            next_step="build the model for this machine: hagane build --target native",
        )
    return max(usable)[2]


def _check_threads(threads: int | None) -> int:
    count = default_threads() if threads is None else threads
    if not isinstance(count, int) or not 1 <= count <= MAX_THREADS:
        raise RunError(f"threads={threads!r}", next_step=f"use a number from 1 to {MAX_THREADS}")
    return count


def _check_memory_limit(limit: int | None) -> None:
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise RunError(f"memory_limit={limit!r}", next_step="use a number of bytes, such as 1 << 30")


def _check_affinity(affinity: Sequence[int] | None) -> tuple[int, ...] | None:
    if affinity is None:
        return None
    allowed = os.sched_getaffinity(0)
    if not isinstance(affinity, (list, tuple, set, range)) or not affinity or not set(affinity) <= allowed:
        raise RunError(
            f"affinity={affinity!r} names CPUs that this process may not use",
            next_step=f"use some of {sorted(allowed)}",
        )
    return tuple(affinity)


def _info(port: Port) -> TensorInfo:
    dims = tuple(dim.value if dim.is_const else str(dim) for dim in port.shape)
    return TensorInfo(port.name, port.dtype, dims)


def _after_fork() -> None:
    for session in list(_sessions):
        session._after_fork()


os.register_at_fork(after_in_child=_after_fork)
