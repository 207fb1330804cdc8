from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

from hagane.codegen.llvm.compile import CompileOptions, compile_module, count_spills
from hagane.codegen.llvm.dsl import Module, Var, f32, vector
from hagane.codegen.llvm.pool import CompilePool
from hagane.core.errors import InternalError
from hagane.core.targets import CpuTarget
from tests.unit.codegen.native import NEON, V3, V4


def _tile(target: CpuTarget, rows: int, name: str = "k") -> str:
    """A register tile of `rows` accumulators."""
    module = Module(target)
    f = module.function(name, [("a", "ptr"), ("b", "ptr"), ("n", "i64")])
    type = vector(module.lanes(f32), f32)
    sums = [Var(f, type, 0.0) for _ in range(rows)]
    with f.loop(0, f.arg("n")) as i:
        b = f.load(type, f.arg("b"), i * type.nbytes)
        for r, total in enumerate(sums):
            a = f.load_broadcast(f32, type.lanes, f.arg("a"), (i * rows + r) * 4)
            total.set(f.fma(a, b, total.value))
    for r, total in enumerate(sums):
        f.store(total.value, f.arg("b"), r * type.nbytes)
    return module.text()


# llc would give up on it: an unknown intrinsic passes the verifier of neither LLVM nor ours
ABORTS = """
target triple = "x86_64-unknown-linux-gnu"
declare <4 x i32> @llvm.x86.avx512.vpdpbusd.128(<4 x i32>, <16 x i8>, <16 x i8>)
define <4 x i32> @k(<4 x i32> %a, <16 x i8> %b) {
  %r = call <4 x i32> @llvm.x86.avx512.vpdpbusd.128(<4 x i32> %a, <16 x i8> %b, <16 x i8> %b)
  ret <4 x i32> %r
}
"""


def test_spills_are_counted() -> None:
    counts = {}
    for rows in (8, 40):
        text = _tile(V4, rows, f"k{rows}")
        asm = compile_module(text, V4, options=CompileOptions(assembly=True)).decode()
        counts.update(count_spills(asm))
    assert counts["k8"] == 0
    assert counts["k40"] > 10


def test_scratch_memory_is_no_spill() -> None:
    module = Module(V4)
    f = module.function("k", [("a", "ptr"), ("i", "i64")])
    place = f.stack(256)
    f.store(f.load("16xf32", f.arg("a")), place, 64)
    f.store(f.load("16xf32", place, f.arg("i")), f.arg("a"))
    asm = compile_module(module.text(), V4, options=CompileOptions(assembly=True)).decode()
    assert count_spills(asm) == {"k": 0}


def test_broken_text_names_a_file_that_holds_it() -> None:
    text = "define void @k() { nonsense }"
    with pytest.raises(InternalError, match="expected instruction opcode") as caught:
        compile_module(text, V3)
    path = Path(caught.value.where["LLVM IR"])
    assert path.read_text() == text
    path.unlink()


def test_the_scheduler_setting_of_a_process_is_fixed() -> None:
    compile_module(_tile(V3, 2), V3)
    with pytest.raises(InternalError, match="CompilePool"):
        compile_module(_tile(V3, 2), V3, options=CompileOptions(misched=True))


def test_pool_gives_what_compiling_here_gives() -> None:
    with CompilePool(2) as pool:
        futures = [pool.submit(_tile(target, 4), target) for target in (V3, V4, NEON)] * 2
        for future, target in zip(futures, (V3, V4, NEON) * 2, strict=True):
            assert future.result() == compile_module(_tile(target, 4), target)
        asm = pool.submit(_tile(V4, 14), V4, CompileOptions(assembly=True, misched=True)).result()
        assert count_spills(asm.decode()) == {"k": 0}


def test_pool_survives_an_abort_of_llvm() -> None:
    with CompilePool(1) as pool:
        for _ in range(2):
            with pytest.raises(InternalError, match="Cannot select") as caught:
                pool.submit(ABORTS, V3).result()
            Path(caught.value.where["LLVM IR"]).unlink()
        with pytest.raises(InternalError, match="expected") as caught:
            pool.submit("nonsense", V3).result()
        Path(caught.value.where["LLVM IR"]).unlink()
        assert pool.submit(_tile(V3, 2), V3).result().startswith(b"\x7fELF")


def test_pool_stops_what_takes_too_long() -> None:
    with CompilePool(1, timeout_s=0.01) as pool:
        future = pool.submit(_tile(V4, 200), V4)
        with pytest.raises(InternalError, match=r"longer than 0\.01 s") as caught:
            future.result()
        Path(caught.value.where["LLVM IR"]).unlink()


def _children() -> set[int]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="counts processes through /proc")
def test_pool_leaves_no_process_and_cancels_what_waits() -> None:
    before = _children()
    with CompilePool(2) as pool:
        futures = [pool.submit(_tile(V4, 30, f"k{i}"), V4) for i in range(20)]
        futures[0].result()
        assert _children() > before
        started = time.monotonic()
    assert time.monotonic() - started < 5
    assert _children() == before
    assert all(future.done() for future in futures)
    # neither cancelling nor stopping is a failure of ours to report
    assert not any(isinstance(f.exception(), InternalError) for f in futures if not f.cancelled())
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit("", V4)


def test_forgotten_pool_ends_its_children() -> None:
    before = _children()
    pool = CompilePool(1)
    pool.submit(_tile(V4, 2), V4).result()
    del pool
    assert _children() == before
