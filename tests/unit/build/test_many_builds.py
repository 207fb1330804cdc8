"""Fifty builds in one process leave no threads, children, file handles or memory behind."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np

import hagane
from tests.unit.build.models import small_model

_WARM_UP, _BUILDS = 10, 50
_MOST_GROWTH_KB = 16 << 10  # the allocator's own fluctuation


def _children() -> int:
    tasks = Path("/proc/self/task").iterdir()
    return sum(len((task / "children").read_text().split()) for task in tasks)


def _resident_kb() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def test_builds_leave_nothing_behind() -> None:
    model = small_model().SerializeToString()
    taken: list[tuple[int, int, int]] = []
    resident: list[int] = []
    for _ in range(_BUILDS):
        engine = hagane.build(model)
        with hagane.load(engine, threads=1) as session:
            (x,) = session.inputs
            shape = [d if isinstance(d, int) else 2 for d in x.shape]
            session.run({x.name: np.zeros(shape, x.dtype.np)})
        del engine, session
        taken.append((threading.active_count(), len(os.listdir("/proc/self/fd")), _children()))
        resident.append(_resident_kb())
    before, after = taken[_WARM_UP], taken[-1]
    assert all(a <= b for a, b in zip(after, before, strict=True)), taken
    assert min(resident[-5:]) - resident[_WARM_UP] <= _MOST_GROWTH_KB, resident
