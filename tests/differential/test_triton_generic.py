"""The generic tactic for GPUs on every op that has a tensor expression, under Triton's interpreter."""

from __future__ import annotations

import pytest

from hagane.ir.registry import OpDef, Sample
from hagane.kernels.triton.generic import TACTIC
from tests.differential.kernel_cases import check_close, op_case, op_cases
from tests.differential.triton_harness import TARGET, reference, run

# the interpreter rounds products before it adds them, which a GPU doesn't
NO_FMA = 2.0


@pytest.mark.parametrize(("op", "sample", "symbolic"), op_cases())
def test_generic_kernel_matches_reference(op: OpDef, sample: Sample, symbolic: bool) -> None:
    case = op_case(op, sample, symbolic)
    region = case.region()
    if not TACTIC.supports(region, TARGET):
        pytest.skip("needs an element type that no GPU kernel computes on")
    results = run(region, TACTIC.lower(region, TARGET, {}), case)
    for got, want in zip(results, reference(case), strict=True):
        check_close(got, want, factor=NO_FMA)
