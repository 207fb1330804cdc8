"""The worker threads that run jobs, one pool for the whole process.

Workers are Python threads parked inside native code, which needs the interpreter only to start and to end.
The pool's code is a mapping of its own that is never unmapped, so sessions may come and go. A forked child
has none of the threads: it starts anew at its next run.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from hagane.core.errors import RunError
from hagane.engine.image import Blob
from hagane.plan import abi
from hagane.runtime.devices.cores import runnable_threads
from hagane.runtime.devices.cpu import MappedCode

# the kernel's generic numbering (AArch64, RISC-V) and that of x86-64
_FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98, "riscv64": 98}

# How long to spin before sleeping. Waking a sleeper takes 50 to 100 us on a virtual machine, and longer spins
# only take time from other processes. With more threads than cores, spinning is in vain.
_BARRIER_SPIN_US = 50.0
_IDLE_SPIN_US = 100.0
_LEAST_SPINS = 8
_CALIBRATION_PAUSES = 500

_Run = Callable[[int, int], None]


def driver_functions(code: MappedCode) -> tuple[_Run, Callable[[int, int, int], None]]:
    """hagane_run and hagane_worker as callables that release the interpreter's lock."""
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    run = ctypes.CFUNCTYPE(None, pointer, pointer)(code.address(abi.RUN_SYMBOL))
    worker = ctypes.CFUNCTYPE(None, pointer, number, number)(code.address(abi.WORKER_SYMBOL))
    return run, worker


def pool_memory() -> np.ndarray[Any, Any]:
    """Zeroed words for a pool, on cache lines of their own; its threads never spin before they sleep."""
    raw = np.zeros(abi.POOL_WORDS + 8, np.int64)
    skip = -raw.ctypes.data % 64 // 8
    words = raw[skip : skip + abi.POOL_WORDS]
    words[abi.POOL_FUTEX] = _FUTEX_NUMBERS.get(os.uname().machine, 0)
    words[abi.POOL_LEAST_SPINS] = _LEAST_SPINS
    return words


def _pauses_per_us(run: _Run) -> float:
    """Measures the spin hint, which takes 10 to 140 cycles, by a job of one thread."""
    program = (abi.Op.PAUSE, _CALIBRATION_PAUSES, abi.Op.END)
    job = np.zeros(abi.HEADER_WORDS + len(program), np.int64)
    job[abi.JOB_THREADS] = 1
    job[abi.HEADER_WORDS :] = program
    memory = pool_memory()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run(memory.ctypes.data, job.ctypes.data)
        times.append(time.perf_counter() - start)
    return _CALIBRATION_PAUSES / (min(times) * 1e6)


class Pool:
    """Threads 1, 2, ... beside the caller, who is thread 0. Holders of `lock` may call run(address, job).

    size: threads that a job can have, the caller's included.
    """

    def __init__(self, blob: Blob, affinity: tuple[int, ...] | None) -> None:
        self.lock = threading.Lock()
        self._affinity = affinity
        self._code = MappedCode(blob)
        self.run, self._worker = driver_functions(self._code)
        self._per_us = _pauses_per_us(self.run)
        self._idle_spins = 0
        self._forget()

    def _forget(self) -> None:
        self._threads: list[threading.Thread] = []
        self.size = 1
        self._memory = pool_memory()
        self.address = self._memory.ctypes.data

    def grow(self, threads: int) -> None:
        """Starts workers until a job can have that many threads.

        Raises: RunError if the system refuses another thread.
        """
        with self.lock:
            self._set_spins(threads)
            while self.size < threads:
                thread = threading.Thread(
                    target=self._serve, args=(self.size,), name=f"hagane-{self.size}", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    raise RunError(
                        f"can't start worker thread {self.size} of {threads - 1}: {error}",
                        next_step="load the engine with fewer threads=",
                    ) from error
                self._threads.append(thread)
                self.size += 1

    def _set_spins(self, threads: int) -> None:
        """Spinning pays only if all threads can run at once."""
        room = max(threads, self.size) <= runnable_threads(self._affinity)
        most = int(self._per_us * _BARRIER_SPIN_US) if room else _LEAST_SPINS
        self._idle_spins = int(self._per_us * _IDLE_SPIN_US) if room else 0
        self._memory[[abi.POOL_MOST_SPINS, abi.POOL_SPINS]] = most

    def _serve(self, tid: int) -> None:
        if self._affinity:
            # a CPU may go away after the session checked it; running elsewhere is as good then
            with suppress(OSError):
                os.sched_setaffinity(0, {self._affinity[tid % len(self._affinity)]})
        self._worker(self.address, tid, self._idle_spins)

    def stop(self) -> None:
        """Ends the workers, unless a run that never ends is using them."""
        if not self.lock.acquire(timeout=1.0):
            return
        try:
            if self._threads:
                self.run(self.address, 0)
            for thread in self._threads:
                thread.join(1.0)
            self._forget()
        finally:
            self.lock.release()

    def forget_threads(self) -> None:
        """In a forked child: the threads are gone and the lock may be held by one of them."""
        self.lock = threading.Lock()
        self._forget()


_pools: dict[tuple[int, ...] | None, Pool] = {}
_pools_lock = threading.Lock()


def shared_pool(blob: Blob, threads: int, affinity: tuple[int, ...] | None) -> Pool:
    """The process's pool for an affinity, with at least so many threads; the first blob gives it its code."""
    with _pools_lock:
        pool = _pools.get(affinity)
        if pool is None:
            pool = _pools[affinity] = Pool(blob, affinity)
    if pool.size < threads:
        pool.grow(threads)
    return pool


def _stop_all() -> None:
    for pool in list(_pools.values()):
        pool.stop()


def _after_fork() -> None:
    global _pools_lock
    _pools_lock = threading.Lock()
    for pool in _pools.values():
        pool.forget_threads()


atexit.register(_stop_all)
os.register_at_fork(after_in_child=_after_fork)
