from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hagane.codegen.llvm.compile import compile_module
from hagane.codegen.llvm.dsl import Function, Module, Var, f32, i8, i32, i64, vector
from hagane.core.targets import CpuTarget, can_run
from tests.unit.codegen.native import NEON, load_modules, run


def test_control_flow(target: CpuTarget) -> None:
    """Collatz steps, with loops of unknown and of no trips beside it."""
    out = np.zeros(4, np.int64)

    def emit(f: Function) -> None:
        a, b = f.arg("a"), f.arg("b")
        n, steps, total = Var(f, i64, b), Var(f, i64, 0), Var(f, i64, 0)
        with f.while_(lambda: n.value.ne(1)):
            with f.if_else((n.value & 1).eq(0)) as (then, otherwise):
                with then:
                    n.set(n.value // 2)
                with otherwise:
                    n.set(n.value * 3 + 1)
            steps.set(steps.value + 1)
        f.store(steps.value, a)
        for lo, hi, step in [(0, 0, 1), (5, 3, 1), (0, 10, 3), (2, 3, 1), (b, 30, 1), (30, b, 1)]:
            with f.loop(lo, hi, step) as i:
                total.set(total.value + i)
        with f.loop_nonempty(0, b) as i:
            total.set(total.value + i)
        with f.loop(1, 2, keep=True) as i:
            total.set(total.value + i)
        f.store(total.value, a, 8)
        with f.if_(b.gt(100)):
            f.ret()
        f.store(f.const("i64", 5), a, 16)

    run(target, emit, out, 27)
    assert out.tolist() == [111, (0 + 3 + 6 + 9) + 2 + (27 + 28 + 29) + sum(range(27)) + 1, 5, 0]


def test_dead_code_is_not_emitted() -> None:
    f = Module(NEON).function("k", [("n", "i64")])
    n, null = f.arg("n"), f.const("ptr", 0)
    with f.if_(f.const("i1", 0)):
        f.store(n, null)
    with f.loop(3, 3):
        f.store(n, null)
    with f.loop(3, 4) as i:
        assert i.const == 3
    with f.if_else(f.const("i1", 1)) as (then, otherwise):
        with then:
            pass
        with otherwise:
            f.store(n, null)
    assert f.lines == []


def test_if_else_wants_both_branches() -> None:
    f = Module(NEON).function("k", [("n", "i64")])
    with (
        pytest.raises(RuntimeError, match="once each"),
        f.if_else(f.arg("n").eq(0)) as (then, _),
        then,
    ):
        pass


def test_calls_and_constants(target: CpuTarget) -> None:
    module = Module(target)
    table = module.constant("table", np.arange(10, dtype=np.int64).tobytes())
    square = module.function("square", [("x", "i64")], "i64", internal=True, inline="always")
    square.ret(square.arg("x") * square.arg("x"))
    plain = module.function("plain", [("x", "i64")], i64, internal=True)
    plain.ret(plain.arg("x") + 1)
    f = module.function("k", [("a", "ptr", "noalias")], "i64")
    place = f.stack(64)
    f.fill(place, 0, 64)
    f.store(f.call(square, 7), place, 8)
    f.copy(f.arg("a"), place, 64)
    f.ret(f.call_pointer(f.address_of(plain), "i64", f.load("i64", f.address_of(table), 32)))
    out = np.ones(8, np.int64)
    assert load_modules(module, exports=["k"])("k", out) == 5
    assert out.tolist() == [0, 49, 0, 0, 0, 0, 0, 0]


def test_atomics(target: CpuTarget) -> None:
    out = np.zeros(4, np.int64)

    def emit(f: Function) -> None:
        a, five = f.arg("a"), f.const("i64", 5)
        before = f.atomic_update("add", a, five)
        found, stored = f.compare_exchange(a, five, f.const("i64", 9))
        f.store(before + found + f.cast(stored, "i64"), a, 8)
        f.atomic_store(f.atomic_load("i64", a) + 1, a, 16)
        f.fence()
        f.pause()
        f.prefetch(a, 64)

    run(target, emit, out)
    assert out.tolist() == [9, 6, 10, 0]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("lanes", [4, 8, 16, 32])
def test_dot_products(target: CpuTarget, native: bool, lanes: int) -> None:
    features = {"x86-64-v4": ("vnni", "bf16"), "x86-64-v3": ("avxvnni",)}[target.arch] if native else ()
    target = CpuTarget(target.arch, frozenset(features))
    if not can_run(target):
        pytest.skip(f"this machine doesn't run {target}")
    rng = np.random.default_rng(0)
    a = rng.integers(0, 256, 4 * lanes).astype(np.uint8)
    b = rng.integers(-128, 128, 4 * lanes).astype(np.int8)
    acc = rng.integers(-9, 9, lanes).astype(np.int32)
    x, y = rng.integers(-8, 8, (2, 2 * lanes)).astype(ml_dtypes.bfloat16)
    out, total = acc.copy(), np.ones(lanes, np.float32)

    def emit(f: Function) -> None:
        left, right = (f.load(vector(4 * lanes, i8), f.arg(name)) for name in "bc")
        f.store(f.dot_u8s8(f.load(vector(lanes, i32), f.arg("a")), left, right), f.arg("a"))
        left, right = (f.load(vector(2 * lanes, "bf16"), f.arg(name)) for name in "ef")
        f.store(f.dot_bf16(f.load(vector(lanes, f32), f.arg("d")), left, right), f.arg("d"))

    run(target, emit, out, a, b, total, x, y)
    np.testing.assert_array_equal(out, acc + (a.astype(np.int32) * b).reshape(lanes, 4).sum(1))
    products = x.astype(np.float32) * y.astype(np.float32)
    np.testing.assert_array_equal(total, 1 + products.reshape(lanes, 2).sum(1))


def test_same_calls_same_text(target: CpuTarget) -> None:
    def text() -> str:
        module = Module(target)
        f = module.function("k", [("a", "ptr", "noalias")])
        f.store(f.fma(f.load("8xf32", f.arg("a")), 2.0, 1.0), f.arg("a"))
        return module.text()

    assert text() == text()
    assert compile_module(text(), target) == compile_module(text(), target)
