from __future__ import annotations

import numpy as np
import pytest

from hagane.codegen.llvm.dsl import Function, vector
from hagane.core.targets import CpuTarget
from tests.unit.codegen.native import DTYPES, run

MASKED = [("f32", 16), ("f32", 8), ("f32", 1), ("i8", 64), ("f64", 4), ("i16", 24), ("i1", 8)]
BLOCKS = [("f32", 4), ("f32", 8), ("f32", 16), ("i8", 16), ("f64", 8), ("i64", 2)]


@pytest.mark.parametrize(("kind", "lanes"), MASKED)
def test_masks(target: CpuTarget, kind: str, lanes: int) -> None:
    dtype = DTYPES[kind]
    x = np.arange(1, lanes + 1).astype(dtype)
    out, loaded = np.zeros(lanes, dtype), np.zeros(lanes, dtype)

    def emit(f: Function) -> None:
        type = vector(lanes, kind)
        mask = f.mask_below(f.arg("d"), lanes)
        f.store(f.masked_load(type, f.arg("a"), mask, fill=1), f.arg("c"))
        f.masked_store(f.load(type, f.arg("a")), f.arg("b"), mask)

    for count in [-5, -(2**40), 0, 1, 2, lanes - 1, lanes, lanes + 1, 2**40]:
        out[:], loaded[:] = 0, 0
        run(target, emit, x, out, loaded, count)
        below = np.arange(lanes) < count
        np.testing.assert_array_equal(loaded, np.where(below, x, dtype(1)))
        np.testing.assert_array_equal(out, np.where(below, x, dtype(0)))


def test_constant_mask(target: CpuTarget) -> None:
    x, out = np.arange(3, dtype=np.float32), np.ones(8, np.float32)

    def emit(f: Function) -> None:
        f.store(f.masked_load("8xf32", f.arg("a"), f.mask_below(3, 8)), f.arg("b"))

    run(target, emit, x, out)
    np.testing.assert_array_equal(out, [0, 1, 2, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("kind", ["f32", "i8", "f16", "i64", "i1"])
def test_gather_and_scatter(target: CpuTarget, kind: str, lanes: int) -> None:
    dtype = np.dtype(DTYPES[kind])
    table = (np.arange(64) % 2 if kind == "i1" else np.arange(64)).astype(dtype)
    index = np.array([5, 3, 60, 0, 7, 7, 1, 2], np.int32)[:lanes]
    out, spread = np.zeros(lanes, dtype), np.zeros(64, dtype)

    def emit(f: Function) -> None:
        offsets = f.load(vector(lanes, "i32"), f.arg("b")) * dtype.itemsize
        f.store(f.gather(kind, f.arg("a"), offsets, f.mask_below(6, lanes)), f.arg("c"))
        value = f.gather(kind, f.arg("a"), f.cast(offsets, "i64"))
        f.scatter(value, f.arg("d"), offsets, f.mask_below(lanes, lanes))
        f.scatter(value, f.arg("d"), offsets)

    run(target, emit, table, index, out, spread)
    np.testing.assert_array_equal(out, np.where(np.arange(lanes) < 6, table[index], dtype.type(0)))
    want = np.zeros(64, dtype)
    want[index] = table[index]
    np.testing.assert_array_equal(spread, want)


def test_scatter_to_one_place(target: CpuTarget) -> None:
    x, out = np.arange(8, dtype=np.float32) + 1, np.zeros(4, np.float32)

    def emit(f: Function) -> None:
        value = f.load(vector(8, "f32"), f.arg("a"))
        f.scatter(value, f.arg("b"), f.const("i64", 4), f.mask_below(1, 8))
        f.scatter(value, f.arg("b"), f.const("i64", 8))

    run(target, emit, x, out)
    np.testing.assert_array_equal(out, [0, 1, 8, 0])


@pytest.mark.parametrize(("kind", "n"), BLOCKS)
def test_transpose(target: CpuTarget, kind: str, n: int) -> None:
    x = np.arange(n * n).reshape(n, n).astype(DTYPES[kind])
    out = np.zeros_like(x)

    def emit(f: Function) -> None:
        rows = [f.load(vector(n, kind), f.arg("a"), r * n * x.itemsize) for r in range(n)]
        for r, row in enumerate(f.transpose(rows)):
            f.store(row, f.arg("b"), r * n * x.itemsize)

    run(target, emit, x, out)
    np.testing.assert_array_equal(out, x.T)


@pytest.mark.parametrize("lanes", [1, 4, 6, 16])
@pytest.mark.parametrize("kind", ["f32", "f64", "i32", "i8"])
def test_reductions(target: CpuTarget, kind: str, lanes: int) -> None:
    x = np.random.default_rng(0).integers(-5, 6, lanes).astype(DTYPES[kind])
    out = np.zeros(4, x.dtype)

    def emit(f: Function) -> None:
        v = f.load(vector(lanes, kind), f.arg("b"))
        for i, reduced in enumerate((f.reduce_sum(v), f.reduce_prod(v), f.reduce_max(v), f.reduce_min(v))):
            f.store(reduced, f.arg("a"), i * x.itemsize)

    run(target, emit, out, x)
    assert out.tolist() == [x.sum(dtype=x.dtype), x.prod(dtype=x.dtype), x.max(), x.min()]


def test_reductions_keep_nan(target: CpuTarget) -> None:
    out = np.zeros(2, np.float32)
    for place in range(8):
        x = np.arange(8, dtype=np.float32)
        x[place] = np.nan

        def emit(f: Function) -> None:
            v = f.load("8xf32", f.arg("b"))
            f.store(f.reduce_max(v), f.arg("a"))
            f.store(f.reduce_min(v), f.arg("a"), 4)

        run(target, emit, out, x)
        assert np.isnan(out).all()


def test_any_all(target: CpuTarget) -> None:
    x, out = np.array([0, 1, 0, 1], np.bool_), np.zeros(2, np.bool_)

    def emit(f: Function) -> None:
        mask = f.load("4xi1", f.arg("a"))
        f.store(f.any(mask), f.arg("b"))
        f.store(f.all(mask), f.arg("b"), 1)

    run(target, emit, x, out)
    assert out.tolist() == [True, False]


def test_lane_access(target: CpuTarget) -> None:
    x, out = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)

    def emit(f: Function) -> None:
        v = f.load("8xi32", f.arg("a"))
        pair = f.concat(f.extract(v, 7), f.extract(v, f.arg("c")))
        wide = f.concat(pair, f.slice(v, 2, 2))
        both = f.shuffle(f.insert(v, 0, 100), f.concat(wide, wide), [0, 8, 9, 10, 11, -1, 1, 2])
        f.store(both, f.arg("b"))

    run(target, emit, x, out, 5)
    assert out[[0, 1, 2, 3, 4, 6, 7]].tolist() == [100, 7, 5, 2, 3, 1, 2]
