"""Transposes and changes of layout against NumPy: tails, element sizes, symbolic dims, blocks, halos."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hagane.core.dtypes import from_numpy
from hagane.core.symbolic import to_expr
from hagane.core.targets import CpuTarget, can_run
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Type
from hagane.ir.layout import Layout, blocked_channels
from hagane.kernels.llvm.transpose import TACTIC
from tests.differential.harness import Case, Runner, dims_of
from tests.unit.codegen.native import V3, V4

Array = np.ndarray[Any, Any]


@pytest.fixture(params=[V4, V3], ids=["v4", "v3"])
def target(request: pytest.FixtureRequest) -> CpuTarget:
    found: CpuTarget = request.param
    if not can_run(found):
        pytest.skip(f"this machine doesn't run {found}")
    return found


def check(
    array: Array,
    perm: tuple[int, ...] | None,
    target: CpuTarget,
    *,
    names: tuple[str | None, ...] = (),
    before: Layout | None = None,
    after: Layout | None = None,
) -> None:
    """perm: a transpose, or none for a copy between layouts."""
    builder = Builder(Graph("copy"))
    shape = tuple(to_expr(d) for d in dims_of(array.shape, names or (None,) * array.ndim))
    x = builder.input("x", Type(from_numpy(array.dtype), shape))
    y = builder.op("transpose", x, perm=perm) if perm else builder.op("identity", x)
    builder.graph.outputs = [y]
    case = Case(builder.graph, {"x": array})
    region = case.region()
    region.operands[0].layout, region.outputs[0].layout = before, after
    assert TACTIC.supports(region, target)
    runner = Runner(region, TACTIC.lower(region, target, {}), target, case)
    for threads in (1, 2, 3):
        (got,) = runner.run(threads)
        np.testing.assert_array_equal(got, array.transpose(perm) if perm else array)


def numbers(*shape: int, dtype: Any = np.float32) -> Array:
    return np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(dtype)


@pytest.mark.parametrize("shape", [(16, 16), (32, 48), (7, 5), (1, 33), (40, 17), (19, 64)])
def test_matrices(target: CpuTarget, shape: tuple[int, int]) -> None:
    if 1 not in shape:
        check(numbers(*shape), (1, 0), target)
    check(numbers(*shape), (1, 0), target, names=("m", "n"))


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.int32, np.float64, np.int64, np.bool_])
def test_element_sizes(target: CpuTarget, dtype: Any) -> None:
    array = np.random.default_rng(0).integers(0, 2, (21, 35)) if dtype is np.bool_ else numbers(21, 35)
    check(array.astype(dtype), (1, 0), target)


@pytest.mark.parametrize("perm", [(0, 3, 1, 2), (0, 2, 3, 1), (3, 1, 0, 2), (2, 1, 3, 0)])
def test_images(target: CpuTarget, perm: tuple[int, ...]) -> None:
    check(numbers(2, 5, 18, 20), perm, target)
    check(numbers(2, 5, 18, 20), perm, target, names=("n", None, "h", "w"))


@pytest.mark.parametrize("channels", [32, 20, 3])
@pytest.mark.parametrize("halo", [(), ((0, 0), (0, 0), (1, 2), (2, 1))])
@pytest.mark.parametrize("names", [(), ("n", None, "h", "w")], ids=["static", "dynamic"])
def test_blocked_layouts(target: CpuTarget, channels: int, halo: Any, names: Any) -> None:
    block = target.vector_bytes // 4
    blocked = blocked_channels(4, block, halo)
    array = numbers(2, channels, 9, 21)
    check(array, None, target, names=names, after=blocked)
    check(array, None, target, names=names, before=blocked)


def test_what_is_left_to_the_generic_kernel() -> None:
    builder = Builder(Graph("copy"))
    x = builder.input("x", Type(from_numpy(np.dtype(np.float32)), tuple(to_expr(d) for d in (3, 5, 7))))
    builder.graph.outputs = [builder.op("transpose", x, perm=(1, 0, 2))]
    assert not TACTIC.supports(Case(builder.graph, {"x": numbers(3, 5, 7)}).region(), V4)
