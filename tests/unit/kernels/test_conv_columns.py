"""Tiles of columns cover every column once, in the sizes that they were given."""

from __future__ import annotations

import numpy as np
import pytest

from hagane.codegen.llvm import Module, Value
from hagane.core.targets import can_run
from hagane.kernels.llvm.conv_columns import cut_columns
from hagane.kernels.llvm.conv_problem import near_equal
from tests.unit.codegen.native import V3, load_modules

pytestmark = pytest.mark.skipif(not can_run(V3), reason="needs x86-64-v3")


def _sizes(extents: list[int], largest: int, divisor: int, long: bool, known: bool) -> None:
    """Runs code that adds 1 to each column it is given, tile by tile, for some extents."""
    module = Module(V3)
    f = module.function("cut", [("extent", "i64"), ("marks", "ptr"), ("tiles", "ptr")])

    def cut(extent: Value) -> None:
        columns = cut_columns(f, extent, largest, divisor, long)
        f.store(columns.count, f.arg("tiles"))

        def body(size: int, start: Value) -> None:
            for column in range(size):
                place = f.ptr(f.arg("marks"), (start + column) * 8)
                f.store(f.load("i64", place) + 1, place)

        # in two ranges, as two threads would do it
        middle = columns.count // 2
        columns.visit(f.const("i64", 0), middle, body)
        columns.visit(middle, columns.count, body)

    cut(f.const("i64", extents[0]) if known else f.arg("extent"))
    loaded = load_modules(module, exports=["cut"])
    for extent in extents:
        marks, tiles = np.zeros(extent + 64, np.int64), np.zeros(1, np.int64)
        loaded("cut", extent, marks, tiles)
        assert (marks[:extent] == 1).all() and not marks[extent:].any(), (extent, largest, marks)
        assert tiles[0] >= -(-extent // largest)


@pytest.mark.parametrize("largest", [1, 2, 3, 6, 9, 14])
@pytest.mark.parametrize("long", [False, True])
def test_unknown_extents(largest: int, long: bool) -> None:
    for divisor in (1, 2, 4, 16):
        _sizes([n for n in range(0, 70) if n % divisor == 0], largest, divisor, long, known=False)


@pytest.mark.parametrize("extent", [1, 7, 13, 14, 15, 56])
def test_known_extents(extent: int) -> None:
    _sizes([extent], 14, extent, False, known=True)


def test_near_equal_parts() -> None:
    assert near_equal(49, 14) == [(13, 1), (12, 3)]
    assert near_equal(56, 14) == [(14, 4)]
    assert near_equal(5, 9) == [(5, 1)]
