"""Regions that are cut into boxes without guards give the interpreter's values, whatever the extents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from hagane.core.dtypes import DType
from hagane.core.targets import can_run
from hagane.ir import interpreter
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Value, tensor
from hagane.ir.layout import blocked_channels
from hagane.kernels.llvm import generic
from hagane.kernels.llvm.boxes import build_nests
from tests.differential.harness import Case, Runner, dims_of, uniform
from tests.unit.codegen.native import V3, V4

TARGETS = [
    pytest.param(
        t, marks=pytest.mark.skipif(not can_run(t), reason=f"the machine doesn't run {t}"), id=t.arch
    )
    for t in (V4, V3)
]
Write = Callable[[Builder, list[Value]], Value]


def run(
    write: Write, shapes: Sequence[tuple[int, ...]], dynamic: str, target: Any, plain: tuple[int, ...] = ()
) -> int:
    """Compares; operands and result are blocked but for those of the numbers in `plain` (-1: the result).

    Returns the number of boxes.
    """
    builder = Builder(Graph())
    values, feed = [], {}
    for number, shape in enumerate(shapes):
        names = tuple(n if n in dynamic else None for n in ("N", "-", "H", "W"))
        values.append(builder.input(f"x{number}", tensor(DType.F32, *dims_of(shape, names))))
        feed[f"x{number}"] = uniform(number, *shape)
    builder.graph.outputs = [write(builder, values)]
    case = Case(builder.graph, feed)
    region = case.region()
    for number, value in enumerate([*region.operands, *region.outputs]):
        if number not in plain and not (value is region.outputs[0] and -1 in plain):
            halo = ((0, 0), (0, 0), (1, 0), (0, 2)) if number % 2 else ()
            value.layout = blocked_channels(4, target.vector_bytes // 4, halo)
    (want,) = interpreter.run(case.graph, feed).values()
    runner = Runner(region, generic.TACTIC.lower(region, target, {}), target, case)
    for threads in (1, 3):
        np.testing.assert_array_equal(runner.run(threads)[0], want)
    return len(build_nests(region, 0))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dynamic", ["", "NHW"])
@pytest.mark.parametrize("channels", [(16, 32), (1, 32), (24, 24), (5, 3, 17), (64, 4), (2, 2, 2, 2, 2)])
def test_concatenated_channels(channels: tuple[int, ...], dynamic: str, target: Any) -> None:
    shapes = [(2, c, 3, 5) for c in channels]
    for plain in ((), (0,), (-1,)):
        run(lambda b, xs: b.op("concat", *xs, axis=1), shapes, dynamic, target, plain)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dynamic", ["", "HW"])
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (2, 3), (8, 33)])
def test_padded_windows(size: tuple[int, int], dynamic: str, target: Any) -> None:
    """Extents at which there is no inside, and even borders overlap."""
    attrs = {"dilations": (1, 1), "pads_begin": (1, 1), "pads_end": (1, 1)}
    for kernel, strides in (((3, 3), (2, 2)), ((3, 3), (1, 1)), ((2, 3), (1, 2))):
        pool: dict[str, Any] = {"kernel": kernel, "strides": strides, **attrs}
        run(partial(_max_pool, pool), [(1, 17, *size)], dynamic, target)
        run(partial(_max_pool, pool), [(1, 3, *size)], dynamic, target, (0, -1))


def _max_pool(attrs: dict[str, Any], builder: Builder, values: list[Value]) -> Value:
    return builder.op("max_pool", values[0], **attrs)


@pytest.mark.parametrize("dynamic", ["", "HW"])
@pytest.mark.parametrize("size", [(1, 2), (5, 7), (9, 40)])
def test_stacked_shifts(size: tuple[int, int], dynamic: str) -> None:
    """Padded copies side by side: boxes inside boxes."""

    def shifts(b: Builder, xs: list[Value]) -> Value:
        (x,) = xs
        parts = []
        for left, right in ((0, 3), (1, 2), (3, 0)):
            after = (0, 0, 0, right)
            parts.append(b.op("pad", x, None, before=(0, 0, 0, left), after=after, mode="constant"))
        return b.op("concat", *parts, axis=2)

    boxes = run(shifts, [(2, 3, *size)], dynamic, V4, (0, -1))
    assert boxes > 3
    assert boxes <= 32


def test_frames_past_the_end() -> None:
    """A padded signal cut into rows: one condition over two loops."""

    def frames(b: Builder, xs: list[Value]) -> Value:
        padded = b.op("pad", xs[0], None, before=(0, 0, 0, 0), after=(0, 0, 0, 23), mode="constant")
        return b.op("reshape", padded, shape=(1, 1, 10, 10))

    assert run(frames, [(1, 1, 1, 77)], "", V4, (0, -1)) == 4
