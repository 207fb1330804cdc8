"""The code of convolution kernels: no register of a tile lies on the stack, and there is not too much."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hagane.codegen.llvm import Module
from hagane.codegen.llvm.compile import CompileOptions, compile_module, count_spills
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
from tests.differential.harness import set_layouts
from tests.unit.codegen.native import V4

EPILOGUE = ("bias", "residual", "relu")
CASES: list[tuple[Tactic, Conv, str]] = [
    (conv_direct.TACTIC, Conv(1, 64, (56, 56), 256, (1, 1), epilogue=EPILOGUE), ""),
    (conv_direct.TACTIC, Conv(1, 128, (28, 28), 128, (3, 3), strides=(2, 2)), ""),
    (conv_direct.TACTIC, Conv(1, 512, (7, 7), 512, (3, 3)), ""),
    (conv_direct.TACTIC, Conv(1, 40, (20, 20), 96, (1, 1), epilogue=EPILOGUE), "NHW"),
    (conv_direct.TACTIC, Conv(1, 48, (20, 20), 64, (3, 3), strides=(2, 2)), "NHW"),
    (conv_winograd.TACTIC, Conv(1, 128, (28, 28), 128, (3, 3), epilogue=EPILOGUE), ""),
    (conv_winograd.TACTIC, Conv(1, 256, (14, 14), 256, (3, 3)), "NHW"),
    (conv_depthwise.TACTIC, Conv(1, 144, (56, 56), 144, (3, 3), group=144), ""),
    (conv_depthwise.TACTIC, Conv(1, 144, (28, 28), 144, (5, 5), group=144), "NHW"),
    (conv_stem.TACTIC, Conv(1, 3, (224, 224), 64, (7, 7), strides=(2, 2)), ""),
    (conv_narrow.TACTIC, Conv(1, 64, (40, 40), 3, (3, 3)), ""),
    (
        conv_transpose.TACTIC,
        Conv(1, 64, (20, 20), 64, (4, 4), strides=(2, 2), begin=(1, 1), extra=(0, 0)),
        "",
    ),
]


def _modules(tactic: Tactic, conv: Conv, dynamic: str) -> Iterator[Module]:
    case = conv.case(dynamic)
    for params in tactic.space(case.region(), V4)[:3]:
        region = case.region()
        set_layouts(region, tactic, V4)
        for launch in tactic.lower(region, V4, params).launches:
            assert launch.unmisched, "the check below is for LLVM without its machine scheduler"
            module = Module(V4)
            launch.emit(module, "kernel")
            yield module


@pytest.mark.parametrize(
    "tactic, conv, dynamic", CASES, ids=lambda v: v.name if hasattr(v, "name") else str(v)
)
def test_registers_hold_the_tile(tactic: Tactic, conv: Conv, dynamic: str) -> None:
    for module in _modules(tactic, conv, dynamic):
        text = module.text()
        assembly = compile_module(text, V4, options=CompileOptions(assembly=True)).decode()
        assert count_spills(assembly)["kernel"] == 0
        # compile time follows the number of lines: 10,000 take 0.4 s
        assert text.count("\n") < 8000
