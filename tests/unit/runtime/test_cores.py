"""How many threads to use, from what the system says."""

from __future__ import annotations

import os

import pytest

from hagane.runtime.devices import cores


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Eight CPUs, two for each core, and files that a test adds."""
    topology = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    files = {topology.format(cpu): f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}\n" for cpu in range(8)}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(cores, "_read", lambda path: files.get(path, ""))
    return files


def test_cores_not_hyperthreads(system: dict[str, str]) -> None:
    assert cores.default_threads() == 4
    assert cores.runnable_threads(None) == 8
    assert cores.runnable_threads((0, 1, 1)) == 2


def test_unknown_topology(system: dict[str, str]) -> None:
    system.clear()
    assert cores.default_threads() == 8


@pytest.mark.parametrize(
    ("path", "text", "threads"),
    [
        ("/sys/fs/cgroup/cpu.max", "max 100000\n", 4),
        ("/sys/fs/cgroup/cpu.max", "150000 100000\n", 2),
        ("/sys/fs/cgroup/cpu.max", "5000 100000\n", 1),
        ("/sys/fs/cgroup/cpu.max", "nonsense\n", 4),
        ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n", 4),
        ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n", 2),
    ],
)
def test_quota(system: dict[str, str], path: str, text: str, threads: int) -> None:
    system["/sys/fs/cgroup/cpu/cpu.cfs_period_us"] = "100000\n"
    system[path] = text
    assert cores.default_threads() == threads
    assert cores.runnable_threads(None) == (8 if threads == 4 else threads)
