"""The profiler times each launch and leaves the data as a plain run does."""

from __future__ import annotations

import numpy as np
import pytest

from hagane.core.symbolic import const, sym
from hagane.plan.model import Bind, Copy, If, Launch, Loop, Program, RegionInfo, Symbol
from hagane.runtime import Session
from hagane.runtime.profiler import profile
from tests.unit.runtime.kernels import buffer, f32, image
from tests.unit.runtime.test_control_flow import count, flag

N, M = sym("N", 1), sym("M")


def counting() -> Program:
    """A while loop whose condition the body computes, and an output whose size depends on data."""
    x, h, y = f32("x", N), f32("h", N), f32("y", M)
    body = (
        Launch("negate", ("h", "t"), (N,), region=1),
        Launch("add1", ("t", "t"), (N,), region=2),
        Launch("negate", ("t", "h"), (N,), region=1),
        Launch("first_positive", ("h", "c"), serial=True, region=3),
    )
    steps = (
        Copy("x", "h", N * 4),
        Launch("first_positive", ("h", "c"), serial=True, region=0),
        Loop(None, "c", None, body),
        If("c", (Launch("double", ("h", "h"), (N,), region=4),)),
        Launch("count_positive", ("h", "n"), (N,), serial=True, region=4),
        Bind("M", "n"),
        Launch("take_positive", ("h", "y"), (N,), serial=True, region=4),
    )
    buffers = (
        buffer(x, "input"),
        buffer(y, "output"),
        buffer(h, "arena", 0, 11),
        buffer(f32("t", N), "arena", 2, 6),
        flag("c", 1, 8),
        count("n", 9, 10),
    )
    return Program("main", (x,), (y,), (), buffers, steps)


@pytest.mark.parametrize("threads", [1, 2])
def test_profile(threads: int) -> None:
    from dataclasses import replace

    engine = image(counting(), (Symbol("N", 1), Symbol("M")))
    (plan,) = engine.plans.values()
    regions = tuple(RegionInfo(f"r{i}", "pointwise", "generic") for i in range(5))
    engine.plans = {plan.target: replace(plan, regions=regions)}
    x = np.array([3, 9, 1, 20], np.float32)
    with Session(engine, threads=threads) as session:
        before = session.memory["arena"]
        times = profile(session, {"x": x}, repeats=5)
        assert [(t.region, t.kernel, t.turns) for t in times] == [
            (0, "first_positive", 1),
            (1, "negate", 3),
            (2, "add1", 3),
            (1, "negate", 3),
            (3, "first_positive", 3),
            (4, "count_positive", 1),
            (4, "take_positive", 1),
        ]
        assert all(0 <= t.us < 1e5 for t in times)
        assert session.memory["arena"] == before
        assert session.run({"x": x})["y"].tolist() == [6, 17]


def test_longer_work_takes_longer() -> None:
    x, y = f32("x", N), f32("y", N)
    steps = (Launch("add1", ("x", "y"), (const(10),)), Launch("add1", ("x", "y"), (N,)))
    program = Program("main", (x,), (y,), (), (buffer(x, "input"), buffer(y, "output")), steps)
    with Session(image(program, (Symbol("N", 1),)), threads=1) as session:
        short, long = profile(session, {"x": np.zeros(1 << 20, np.float32)})
    assert long.us > 10 * short.us and long.us > 50


def test_no_thread_begins_before_the_clock() -> None:
    """The smallest of many times is still that of the work, not of what thread 0 saw of it."""
    x, y = f32("x", N), f32("y", N)
    steps = tuple(Launch("add1", ("x", "y"), (N,)) for _ in range(20))
    program = Program("main", (x,), (y,), (), (buffer(x, "input"), buffer(y, "output")), steps)
    feed = {"x": np.zeros(4000, np.float32)}
    with Session(image(program, (Symbol("N", 1),)), threads=1) as session:
        alone = min(t.us for t in profile(session, feed, repeats=200))
    with Session(image(program, (Symbol("N", 1),)), threads=2) as session:
        shared = min(t.us for t in profile(session, feed, repeats=200))
    assert shared > alone / 4
