"""Every convolution kernel against the interpreter: odd shapes, all paddings, unknown dims, epilogues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hagane.core.targets import CpuTarget, can_run
from hagane.kernels.llvm import (
    conv_depthwise,
    conv_direct,
    conv_narrow,
    conv_stem,
    conv_transpose,
    conv_winograd,
)
from hagane.kernels.tactic import Tactic
from tests.differential.conv_cases import Conv
from tests.differential.harness import check
from tests.unit.codegen.native import V3, V4


def _run(target: CpuTarget, *values: str) -> Any:
    skip = pytest.mark.skipif(not can_run(target), reason=f"the machine doesn't run {target}")
    return pytest.param(target, *values, marks=skip, id="-".join((target.arch, *values)))


TARGETS = [_run(V4), _run(V3)]
# what is known of the dims and how wide vectors are don't interact
RUNS = [_run(V4, ""), _run(V4, "NHW"), _run(V3, "")]
ALL = ("bias", "scale", "gate", "residual", "map", "offset")
DIRECT = [
    Conv(2, 5, (9, 11), 7, (3, 3)),
    Conv(2, 40, (9, 21), 80, (3, 3), strides=(2, 2)),
    Conv(1, 32, (7, 7), 48, (1, 1)),
    Conv(2, 24, (7, 9), 40, (1, 1), epilogue=ALL),
    Conv(1, 18, (6, 5), 32, (1, 1), strides=(2, 1), epilogue=()),
    Conv(1, 33, (7, 7), 64, (3, 3), epilogue=ALL),
    Conv(1, 20, (12, 17), 33, (3, 5), begin=(1, 4), end=(0, 2), dilations=(2, 3), epilogue=ALL),
    Conv(1, 16, (9, 8), 17, (3, 3), begin=(-1, 2), end=(3, -2)),
    Conv(1, 64, (8, 9), 32, (3, 3), group=2),
    Conv(1, 32, (6, 9), 32, (3, 3), group=8),
    Conv(1, 15, (6, 7), 21, (3, 3), group=3, epilogue=ALL),
    Conv(1, 17, (31,), 20, (5,), strides=(2,), epilogue=("bias", "residual")),
    Conv(1, 16, (4, 4), 16, (3, 3), begin=(5, 5)),
    Conv(1, 16, (1, 1), 48, (1, 1)),
]

DEPTHWISE = [
    Conv(2, 6, (9, 8), 6, (3, 3), strides=(2, 1), group=6),
    Conv(1, 40, (8, 19), 40, (3, 3), group=40, epilogue=ALL),
    Conv(1, 17, (7, 7), 17, (5, 5), group=17, strides=(2, 2)),
    Conv(2, 16, (6, 33), 16, (3, 5), begin=(0, 7), end=(2, 1), dilations=(1, 3), group=16),
    Conv(1, 32, (5, 9), 32, (3, 3), begin=(-1, -2), end=(2, 0), group=32, epilogue=()),
    Conv(1, 16, (2, 1), 16, (3, 3), begin=(4, 4), group=16),
    Conv(2, 20, (29,), 20, (4,), begin=(1,), end=(3,), group=20),
]
STEM = [
    Conv(2, 3, (13, 37), 32, (3, 3), strides=(2, 2)),
    Conv(1, 3, (23, 21), 40, (7, 7), strides=(2, 2), epilogue=ALL),
    Conv(1, 1, (9, 50), 8, (3, 9), begin=(3, 0), end=(1, 11), dilations=(2, 3), epilogue=()),
    Conv(2, 4, (5, 18), 48, (3, 3), begin=(-1, -2), end=(0, -3)),
    Conv(2, 2, (65,), 20, (10,), strides=(4,), begin=(3,), end=(8,)),
    Conv(1, 3, (2, 1), 16, (3, 3), begin=(4, 5), end=(4, 4)),
]
TRANSPOSED = [
    Conv(2, 20, (5, 7), 33, (2, 2), strides=(2, 2), begin=(0, 0), extra=(0, 0), epilogue=ALL),
    Conv(1, 16, (6, 17), 40, (4, 4), strides=(2, 2), begin=(1, 1), extra=(0, 0)),
    Conv(1, 24, (6, 7), 16, (3, 3), strides=(2, 2), begin=(1, 1), extra=(1, 1), epilogue=ALL),
    Conv(1, 5, (6, 7), 16, (3, 3), begin=(1, 1), extra=(0, 0)),
    Conv(1, 32, (3, 5), 16, (4, 5), strides=(3, 2), begin=(0, 3), end=(2, 0), extra=(0, 1), epilogue=()),
    Conv(2, 17, (9,), 20, (5,), strides=(3,), begin=(0,), end=(2,), extra=(0,)),
    Conv(1, 16, (2, 2), 16, (2, 3), strides=(4, 4), begin=(0, 0), extra=(1, 1)),
]
NARROW = [
    Conv(2, 24, (5, 37), 1, (3, 3), epilogue=ALL),
    Conv(1, 40, (7, 19), 3, (1, 1)),
    Conv(1, 16, (9, 8), 4, (3, 5), strides=(2, 2), begin=(1, 7), end=(2, 0), dilations=(2, 1)),
    Conv(1, 9, (33,), 2, (4,), begin=(-2,), end=(3,), epilogue=()),
    Conv(2, 24, (5, 17), 1, (2, 2), strides=(2, 2), begin=(0, 0), extra=(0, 0), epilogue=ALL),
    Conv(1, 16, (4, 9), 3, (3, 5), strides=(2, 3), begin=(1, 2), extra=(1, 1), epilogue=("bias", "residual")),
]
WINOGRAD = [
    Conv(2, 20, (13, 11), 33, (3, 3), epilogue=ALL),
    Conv(1, 32, (12, 16), 32, (3, 3), begin=(0, 0)),
    Conv(1, 16, (10, 27), 80, (3, 3), begin=(2, 0), end=(0, 3), epilogue=()),
]


def _check(tactic: Tactic, conv: Conv, target: CpuTarget, dynamic: str, exact_weights: int = 1) -> None:
    check(tactic, conv.case(dynamic), target)
    exact = conv.case(dynamic, exact=True, weight_multiple=exact_weights)
    check(tactic, exact, target, exact=True, extra_halo=1, threads=(2,))


@pytest.mark.parametrize("target, dynamic", RUNS)
@pytest.mark.parametrize("conv", DIRECT, ids=str)
def test_direct(conv: Conv, dynamic: str, target: CpuTarget) -> None:
    _check(conv_direct.TACTIC, conv, target, dynamic)


@pytest.mark.parametrize("target, dynamic", RUNS)
@pytest.mark.parametrize("conv", DEPTHWISE, ids=str)
def test_depthwise(conv: Conv, dynamic: str, target: CpuTarget) -> None:
    _check(conv_depthwise.TACTIC, conv, target, dynamic)


@pytest.mark.parametrize("target, dynamic", RUNS)
@pytest.mark.parametrize("conv", STEM, ids=str)
def test_stem(conv: Conv, dynamic: str, target: CpuTarget) -> None:
    _check(conv_stem.TACTIC, conv, target, dynamic)


@pytest.mark.parametrize("target, dynamic", RUNS)
@pytest.mark.parametrize("conv", WINOGRAD, ids=str)
def test_winograd(conv: Conv, dynamic: str, target: CpuTarget) -> None:
    tactic = conv_winograd.TACTIC
    check(tactic, conv.case(dynamic), target, c=2 * conv_winograd.ERROR_FACTOR, error_tile=4)
    # 576 is the square of the transform's denominators
    exact = replace(conv, epilogue=("bias", "relu")).case(dynamic, exact=True, weight_multiple=576)
    exact.feed["x"] = np.sign(exact.feed["x"])
    check(tactic, exact, target, exact=True, extra_halo=1, threads=(2,))


@pytest.mark.parametrize("target, dynamic", RUNS)
@pytest.mark.parametrize("conv", TRANSPOSED, ids=str)
def test_transposed(conv: Conv, dynamic: str, target: CpuTarget) -> None:
    _check(conv_transpose.TACTIC, conv, target, dynamic)


@pytest.mark.parametrize("target, dynamic", RUNS)
@pytest.mark.parametrize("conv", NARROW, ids=str)
def test_narrow(conv: Conv, dynamic: str, target: CpuTarget) -> None:
    _check(conv_narrow.TACTIC, conv, target, dynamic)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("conv", [DIRECT[1], DIRECT[3], DIRECT[5]], ids=str)
def test_direct_with_any_parameters(conv: Conv, target: CpuTarget) -> None:
    case = conv.case()
    for params in conv_direct.TACTIC.space(case.region(), target):
        check(conv_direct.TACTIC, case, target, params, threads=(2,))
