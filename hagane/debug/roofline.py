"""What this machine can reach, so that a time can be called good or bad.

Measured with what the runtime has anyway, NumPy: a large matrix product for arithmetic, copying for memory, a
large array and one that the cache holds. That is what a good program reaches, not what a data sheet promises.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

MATRIX_SIDE = 512  # NumPy multiplies such matrices with all cores,
SMALL_SIDE = 64  # and such ones with one, which is steadier where other work disturbs
COPY_BYTES = 64 << 20  # larger than the caches of most CPUs
CACHED_BYTES = 1 << 20  # less than the second-level cache of the CPUs that kernels are tuned on


@dataclass(frozen=True)
class Roofline:
    """Peak rates in 10^9 a second: operations in f32, bytes read or written in memory, and in the cache."""

    gflops: float
    gbytes: float
    cached_gbytes: float

    def share(self, flops: int, num_bytes: int, us: float) -> float:
        """The least time for the work over the time it took."""
        gbytes = self.cached_gbytes if num_bytes <= CACHED_BYTES else self.gbytes
        least_us = max(flops / self.gflops, num_bytes / gbytes) / 1e3
        return least_us / us if us else 0.0


def measure_roofline(threads: int) -> Roofline:
    """Takes about 0.1 s. What all cores, or one, reach is scaled to the number of threads."""
    cores = len(os.sched_getaffinity(0))
    share = min(1.0, threads / cores)
    return Roofline(
        max(_product_gflops(MATRIX_SIDE, 20) * share, _product_gflops(SMALL_SIDE, 500) * share * cores),
        _copy_gbytes(COPY_BYTES, 4),
        _copy_gbytes(CACHED_BYTES // 4, 100) * threads,
    )


def _product_gflops(side: int, repeats: int) -> float:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((side, side)).astype(np.float32) for _ in range(2))
    product = np.empty_like(a)
    return 2 * side**3 / _least_ns(lambda: np.matmul(a, b, out=product), repeats)


def _copy_gbytes(size: int, repeats: int) -> float:
    source = np.ones(size, np.uint8)
    target = np.empty_like(source)
    return 2 * size / _least_ns(lambda: np.copyto(target, source), repeats)


def _least_ns(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - start)
    return float(max(1, min(times)))
