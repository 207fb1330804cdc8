from pathlib import Path

import pytest

from hagane import api
from hagane.core.dtypes import DType
from hagane.core.errors import EngineError
from hagane.core.symbolic import sym
from hagane.debug.engine_diff import diff_engines
from hagane.debug.inspection import Inspection
from hagane.debug.memory_report import memory_report
from hagane.plan.model import Buffer, Copy, Plan, Port, Program, Shape, Symbol

B, N = sym("B", 1, 64), sym("N", 0, None)


def program() -> tuple[Plan, Program]:
    port = Port("x", DType.F32, (B, N))
    steps = (Shape((("M", N * 2),)), Copy("x", "a", B * N * 4), Copy("a", "b", B * N * 4))
    buffers = (
        Buffer("x", "input", DType.F32, B * N * 4, 1, 1),
        Buffer("a", "arena", DType.F32, B * N * 4, 1, 2),
        Buffer("b", "arena", DType.F32, sym("M") * 4, 2, 2),
    )
    main = Program("main", (port,), (), (), buffers, steps)
    symbols = (Symbol("B", 1, 64), Symbol("M"), Symbol("N", 16, None, 16))
    return Plan("cpu:x86-64-v3", symbols, (), {"main": main}, (), B * 8), main


def test_memory_at_given_dims():
    report = memory_report(*program(), {"B": 2, "N": 32})
    assert report.dims == {"B": 2, "M": 64, "N": 32}
    assert [(b.name, b.size_bytes, b.offset) for b in report.buffers] == [
        ("x", 256, -1),
        ("a", 256, 0),
        ("b", 256, 256),
    ]
    assert (report.arena_bytes, report.peak_bytes) == (512, 512)
    assert report.workspace_bytes_per_thread == 16
    assert str(report).splitlines()[0] == "memory of main at B=2, M=64, N=32"


def test_dims_that_are_not_given_are_typical_within_their_range():
    assert memory_report(*program(), {}, batch=3).dims == {"B": 3, "M": 32, "N": 16}


def test_unknown_dims():
    with pytest.raises(EngineError, match="no dim K") as error:
        memory_report(*program(), {"K": 2})
    assert error.value.next_step == "its dims are B, M, N"


def test_the_summary_names_what_was_fused(engine: Path):
    text = Inspection.of(engine).summary()
    assert "1 regions" in text and "/fc/Gemm (Gemm), /fc/Relu (Relu)" in text


def test_kernels_of_one_region(engine: Path):
    found = Inspection.of(engine)
    assert found.kernel_sources(0) == found.kernel_sources()
    with pytest.raises(EngineError, match="no region 1"):
        found.kernel_sources(1)


def test_engines_that_differ_in_numbering_only_are_equal(engine: Path, model: Path):
    again = api.build(model)
    assert diff_engines(Inspection.of(engine).image, again.image) == ""


def test_engines_of_other_shapes_differ(engine: Path, model: Path):
    other = api.build(model, shapes={"x": (2, 4)})
    diff = diff_engines(Inspection.of(engine).image, other.image)
    assert "-graph @main(%x: f32[batch, 4])" in diff
    assert "+graph @main(%x: f32[2, 4])" in diff
    assert "+  input x: f32[2, 4]" in diff


def test_targets_that_only_one_side_has(engine: Path, model: Path):
    other = api.build(model, target="cpu:x86-64-v3")
    diff = diff_engines(other.image, Inspection.of(engine).image)
    assert diff.startswith("plan for cpu:x86-64-v3\n--- a\n+++ b\n")
