"""The generic tactic on every op that has a tensor expression: all samples, static and symbolic, both vector
widths.
"""

from __future__ import annotations

import pytest

from hagane.core.targets import can_run, parse_target
from hagane.ir import interpreter
from hagane.ir.registry import OpDef, Sample
from hagane.kernels.llvm.generic import TACTIC
from tests.differential.harness import Runner, set_layouts
from tests.differential.kernel_cases import check_close, op_case, op_cases


@pytest.mark.parametrize("target", ["cpu:x86-64-v4", "cpu:x86-64-v3"])
@pytest.mark.parametrize(("op", "sample", "symbolic"), op_cases())
def test_generic_kernel_matches_reference(op: OpDef, sample: Sample, symbolic: bool, target: str) -> None:
    machine = parse_target(target)
    if not can_run(machine):
        pytest.skip(f"this CPU does not run {target}")
    case = op_case(op, sample, symbolic)
    region = case.region()
    if not TACTIC.supports(region, machine):
        pytest.skip("needs an element type that no CPU kernel computes on")
    set_layouts(region, TACTIC, machine)
    runner = Runner(region, TACTIC.lower(region, machine, {}), machine, case)
    want = list(interpreter.run(case.graph, case.feed).values())
    for threads in (1, 3):
        for got, expected in zip(runner.run(threads), want, strict=True):
            check_close(got, expected)
