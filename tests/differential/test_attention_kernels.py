"""Attention against the interpreter: several blocks of keys, masks, grouped heads, layouts seen through
transposes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hagane.core.dtypes import DType, from_numpy
from hagane.core.symbolic import to_expr
from hagane.core.targets import CpuTarget, can_run
from hagane.ir import interpreter
from hagane.ir.builder import Builder, single_op_graph
from hagane.ir.graph import Graph, Type
from hagane.ir.registry import op_def
from hagane.kernels.llvm.attention import TACTIC
from hagane.kernels.tactic import Params
from tests.differential.harness import Case, dims_of, prepare, uniform
from tests.unit.codegen.native import V3, V4

Array = np.ndarray[Any, Any]
Names = tuple[str | None, ...]
UNIT = 2.0**-24
ATTRS: dict[str, Any] = {"scale": 0.3, "causal": False, "softcap": None}


@pytest.fixture(params=[V4, V3], ids=["v4", "v3"])
def target(request: pytest.FixtureRequest) -> CpuTarget:
    found: CpuTarget = request.param
    if not can_run(found):
        pytest.skip(f"this machine doesn't run {found}")
    return found


def attention_case(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    *,
    names: tuple[Names, Names, Names] = ((), (), ()),
    perms: tuple[Any, Any, Any] = (None, None, None),
    merge: bool = False,
    **attrs: Any,
) -> Case:
    """attention over inputs seen through transposes; merge: heads are joined again behind it."""
    builder = Builder(Graph("attention"))
    feed: dict[str, Array] = {}
    operands: list[Any] = []
    for name, array, own, perm in zip("qkv", (q, k, v), names, perms, strict=True):
        feed[name] = array
        shape = tuple(to_expr(d) for d in dims_of(array.shape, own or (None,) * 4))
        value = builder.input(name, Type(DType.F32, shape))
        operands.append(value if perm is None else builder.op("transpose", value, perm=perm))
    if mask is not None:
        feed["mask"] = mask
        dims = {1: to_expr(1), q.shape[2]: operands[0].shape[2], k.shape[2]: operands[1].shape[2]}
        shape = tuple(dims.get(d, to_expr(d)) for d in mask.shape)
        operands.append(builder.input("mask", Type(from_numpy(mask.dtype), shape)))
    else:
        operands.append(None)
    y = builder.op("attention", *operands, **(ATTRS | attrs))
    if merge:
        b, h, s, d = y.shape
        y = builder.op("reshape", builder.op("transpose", y, perm=(0, 2, 1, 3)), shape=(b, s, h * d))
    builder.graph.outputs = [y]
    return Case(builder.graph, feed)


def check(case: Case, target: CpuTarget, params: Params | None = None, slack: float = 4.0) -> None:
    """Each weight's relative error is about the score's absolute one; the values are summed with it."""
    (want,) = interpreter.run(case.graph, case.feed).values()
    q, k, v = (a.astype(np.float64) for a in list(case.feed.values())[:3])
    scale = 0.3 * np.abs(q).max() * np.abs(k).max() * q.shape[-1]
    bound = slack * UNIT * np.abs(v).max() * (scale * np.sqrt(q.shape[-1]) + np.sqrt(k.size) + 4)
    runner = prepare(TACTIC, case, target, params)
    results = [runner.run(n)[0] for n in (1, 2, 3)]
    same = (np.isnan(results[0]) & np.isnan(want)) | (np.abs(results[0] - want) <= bound)
    assert same.all(), f"{np.nanmax(np.abs(results[0] - want))} is above {bound}"
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()


def qkv(heads: int, groups: int, queries: int, keys: int, d: int = 16, dv: int = 24) -> tuple[Array, ...]:
    return uniform(1, 2, heads, queries, d), uniform(2, 2, groups, keys, d), uniform(3, 2, groups, keys, dv)


def test_samples(target: CpuTarget) -> None:
    for sample in op_def("attention").samples():
        graph = single_op_graph("attention", sample.inputs, sample.attrs)
        case = Case(graph, {f"x{i}": a for i, a in enumerate(sample.inputs) if a is not None})
        region = case.region()
        if sample.inputs[0] is not None and sample.inputs[0].dtype == np.float32:
            check(case, target, TACTIC.space(region, target)[0], slack=16.0)
        else:
            assert not TACTIC.supports(region, target)


@pytest.mark.parametrize("keys", [7, 64, 131, 600])
@pytest.mark.parametrize("copy", [False, True])
def test_blocks_of_keys(target: CpuTarget, keys: int, copy: bool) -> None:
    params = {"keys": 64, "copy_values": copy}
    check(attention_case(*qkv(2, 2, 13, keys)), target, params)
    symbols: Any = (("b", None, "s", None), ("b", None, "t", None), ("b", None, "t", None))
    check(attention_case(*qkv(2, 1, 13, keys), names=symbols), target, params)


@pytest.mark.parametrize(("d", "dv"), [(1, 1), (16, 1), (1, 24)])
def test_heads_of_one_element(target: CpuTarget, d: int, dv: int) -> None:
    params = {"keys": 64, "copy_values": True}
    check(attention_case(*qkv(2, 2, 13, 70, d, dv)), target, params)
    check(attention_case(*qkv(1, 1, 13, 70, d, dv), names=((None, None, "s", None), (), ())), target, params)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["row", "full", "keep"])
def test_masks(target: CpuTarget, kind: str, causal: bool) -> None:
    q, k, v = qkv(2, 2, 70, 150)
    shape = {"row": (2, 1, 1, 150), "full": (70, 150), "keep": (2, 1, 70, 150)}[kind]
    mask = uniform(4, *shape) * 9
    mask = mask > 8 if kind == "keep" else mask
    params = {"keys": 64, "copy_values": False}
    symbols: Any = ((None, None, "s", None), (None, None, "t", None), (None, None, "t", None))
    check(attention_case(q, k, v, mask, causal=causal), target, params)
    check(attention_case(q, k, v, mask, causal=causal, names=symbols), target, params)


def test_causal_offset_and_soft_cap(target: CpuTarget) -> None:
    params = {"keys": 64, "copy_values": True}
    check(attention_case(*qkv(4, 2, 30, 150), causal=True, offset=100, softcap=0.7), target, params)
    check(attention_case(*qkv(1, 1, 90, 90), causal=True, offset=-20), target, params)


def test_heads_inside_of_rows(target: CpuTarget) -> None:
    """q, k and v as linear layers give them, [B, S, H, D], and the result joined as the next one wants it."""
    q, k, v = uniform(1, 2, 21, 3, 20), uniform(2, 2, 33, 3, 20), uniform(3, 2, 33, 3, 20)
    heads, symbols = (0, 2, 1, 3), ("b", "s", None, None)
    keys: Any = ("b", "t", None, None)
    for names in (((), (), ()), (symbols, keys, keys)):
        case = attention_case(q, k, v, names=names, perms=(heads,) * 3, merge=True)
        for params in TACTIC.space(case.region(), target):
            check(case, target, params)


def test_pixels_innermost(target: CpuTarget) -> None:
    """q, k and v of a convolution, [B, H, D, pixels]."""
    q, k, v = uniform(1, 1, 2, 8, 50), uniform(2, 1, 2, 8, 50), uniform(3, 1, 2, 8, 50)
    check(attention_case(q, k, v, perms=((0, 1, 3, 2),) * 3), target)


def test_hidden_rows_and_not_a_number(target: CpuTarget) -> None:
    q, k, v = qkv(1, 1, 9, 40)
    keep = np.ones((9, 40), bool)
    keep[3] = False
    q[0, 0, 5, 2] = np.nan
    k[1, 0, 39, 0] = np.inf
    case = attention_case(q, k, v, keep)
    (want,) = interpreter.run(case.graph, case.feed).values()
    runner = prepare(TACTIC, case, target)
    (got,) = runner.run(2)
    assert (np.isnan(got) == np.isnan(want)).all()
    assert (got[:, :, 3] == 0).all()
