"""Fixtures for running generated code."""

from __future__ import annotations

import pytest

from hagane.core.targets import CpuTarget, can_run
from tests.unit.codegen.native import V3, V4


@pytest.fixture(params=[V4, V3], ids=["v4", "v3"])
def target(request: pytest.FixtureRequest) -> CpuTarget:
    """Each x86 level that this machine runs."""
    found: CpuTarget = request.param
    if not can_run(found):
        pytest.skip(f"this machine doesn't run {found}")
    return found
