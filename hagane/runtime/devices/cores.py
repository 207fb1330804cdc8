"""How many threads can run at once: the cores of this process, and what its container allows."""

from __future__ import annotations

import os

_UNLIMITED = 1 << 30
# control groups, version 2 and version 1
_QUOTA_V2 = "/sys/fs/cgroup/cpu.max"
_QUOTA_V1 = ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def default_threads() -> int:
    """One for each core that this process may use; hyperthreads count once, a quota limits them."""
    cores = {_siblings(cpu) for cpu in os.sched_getaffinity(0)}
    return max(1, min(len(cores), _quota()))


def runnable_threads(affinity: tuple[int, ...] | None) -> int:
    """How many threads can make progress at the same time, hyperthreads counted separately."""
    cpus = set(affinity) if affinity else os.sched_getaffinity(0)
    return min(len(cpus), _quota())


def _siblings(cpu: int) -> str:
    return _read(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or str(cpu)


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _quota() -> int:
    """CPUs that the container may use, rounded up."""
    fields = _read(_QUOTA_V2).split() or " ".join(map(_read, _QUOTA_V1)).split()
    try:
        quota, period = map(int, fields)
    except ValueError:  # "max", or no such file
        return _UNLIMITED
    return max(1, -(-quota // period)) if quota > 0 and period > 0 else _UNLIMITED
