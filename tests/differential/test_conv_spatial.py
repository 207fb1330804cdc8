"""Convolution with few filters on plain tensors against the interpreter."""

from __future__ import annotations

import pytest

from hagane.core.targets import CpuTarget, can_run
from hagane.ir import interpreter
from hagane.ir.layout import blocked_channels
from hagane.kernels.llvm import conv_spatial
from hagane.kernels.llvm.conv_problem import conv_problem
from hagane.kernels.llvm.conv_spatial_space import strip_of
from tests.differential.conv_cases import Conv
from tests.differential.harness import Runner, check, error_bounds, set_layouts
from tests.unit.codegen.native import V3, V4

TARGETS = [
    pytest.param(
        t, marks=pytest.mark.skipif(not can_run(t), reason=f"the machine doesn't run {t}"), id=t.arch
    )
    for t in (V4, V3)
]
ALL = ("bias", "scale", "gate", "residual", "map", "offset")
CASES = [
    Conv(2, 3, (9, 40), 5, (3, 3), epilogue=ALL),
    Conv(1, 7, (21, 33), 4, (3, 39), begin=(1, 19)),
    Conv(1, 1, (1000,), 1, (64,), strides=(2,), begin=(0,), epilogue=()),
    Conv(1, 1, (300,), 2, (75,)),
    Conv(2, 2, (150,), 3, (7,), strides=(3,), begin=(4,), end=(9,), dilations=(2,)),
    Conv(1, 19, (17, 62), 5, (5, 2), strides=(2, 2), begin=(3, 1), end=(0, 2), epilogue=ALL),
    Conv(1, 4, (6, 31), 2, (2, 3), strides=(1, 4), begin=(-1, -2), end=(2, -1)),
    Conv(1, 2, (6, 700), 1, (3, 3), dilations=(2, 5)),
    Conv(2, 6, (5, 17), 3, (2, 1), group=3, epilogue=("bias", "residual")),
    Conv(1, 3, (2, 16), 2, (3, 3), begin=(4, 5), end=(4, 4)),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dynamic", ["", "NHW"])
@pytest.mark.parametrize("conv", CASES, ids=str)
def test_plain(conv: Conv, dynamic: str, target: CpuTarget) -> None:
    check(conv_spatial.TACTIC, conv.case(dynamic), target)
    check(conv_spatial.TACTIC, conv.case(dynamic, exact=True), target, exact=True, threads=(2,))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dynamic", ["", "NHW"])
@pytest.mark.parametrize("conv", CASES[:5], ids=str)
def test_blocked_input(conv: Conv, dynamic: str, target: CpuTarget) -> None:
    """The input may lie in blocks of channels, with a halo."""
    tactic, case = conv_spatial.TACTIC, conv.case(dynamic)
    region = case.region()
    set_layouts(region, tactic, target)
    problem = conv_problem(region, target)
    assert problem is not None
    halo = ((0, 0), (0, 0), *((k + 1, k) for k in range(problem.rank - 2)))
    problem.x.layout = blocked_channels(problem.rank, problem.lanes, halo)
    lowering = tactic.lower(region, target, tactic.space(region, target)[0])
    (result,) = Runner(region, lowering, target, case).run(2)
    (want,) = interpreter.run(case.graph, case.feed).values()
    (bound,) = error_bounds(case)
    assert (abs(result - want.astype("f8")) <= bound).all()


def test_strips() -> None:
    """A strip's workspace is bounded, and 172 rows make enough strips to share."""
    problem = conv_problem(Conv(1, 8, (172, 264), 8, (3, 39), begin=(1, 19)).case().region(), V4)
    assert problem is not None
    strip = strip_of(problem)
    assert strip.scratch_bytes < 512 << 10
    assert strip.vectors == 17
    assert 172 // strip.rows >= 8
