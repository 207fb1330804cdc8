from pathlib import Path

import numpy as np
import pytest

from hagane import api
from hagane.core.errors import RunError
from hagane.debug.profiling import profile_session
from hagane.debug.roofline import CACHED_BYTES, Roofline, measure_roofline


def test_each_region_has_its_time_and_rates(engine: Path):
    with api.load(engine, threads=1) as session:
        (row,) = profile_session(session, {"x": np.ones((64, 4), np.float32)}, repeats=5)
    assert row.region == 0 and row.kind == "contraction" and row.launches >= 1
    assert row.where == "/fc/Gemm (Gemm), /fc/Relu (Relu)"
    assert row.us >= 0
    if row.us:
        assert row.gflops == pytest.approx(64 * 3 * (2 * 4 + 2) / row.us / 1e3)
    assert set(row.as_dict()) >= {"region", "us", "gflops", "gbytes", "roofline", "tactic", "where"}


def test_unfused_regions_are_timed_one_by_one(model: Path):
    with api.load(api.build(model, fuse=False), threads=2) as session:
        rows = profile_session(session, {"x": np.ones((5, 4), np.float32)}, repeats=3)
    assert [row.region for row in rows] == sorted({row.region for row in rows})
    assert {row.where for row in rows} == {"/fc/Gemm (Gemm)", "/fc/Relu (Relu)"}


def test_inputs_that_do_not_fit(engine: Path):
    with api.load(engine) as session, pytest.raises(RunError):
        profile_session(session, {"x": np.ones((5, 9), np.float32)})


def test_the_roofline():
    peak = Roofline(gflops=100.0, gbytes=10.0, cached_gbytes=50.0)
    assert peak.share(flops=100_000, num_bytes=0, us=2.0) == 0.5
    assert peak.share(flops=0, num_bytes=50_000, us=1.0) == 1.0
    assert peak.share(flops=0, num_bytes=2 * CACHED_BYTES, us=2 * CACHED_BYTES / 10e3) == 1.0
    assert peak.share(1, 1, 0.0) == 0.0


def test_this_machine_has_a_roofline():
    peak = measure_roofline(1)
    assert peak.gflops > 0.1 and peak.gbytes > 0.1 and peak.cached_gbytes > 0.1
