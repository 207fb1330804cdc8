"""Matrix products against the interpreter: shapes around the tile sizes, constant and symbolic, with
epilogues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hagane.core.dtypes import DType
from hagane.core.symbolic import to_expr
from hagane.core.targets import CpuTarget, can_run
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Type, Value
from hagane.kernels.llvm import matmul_dynamic, matmul_packed
from tests.differential.harness import Case, check, dims_of, integers, uniform
from tests.unit.codegen.native import V3, V4

Array = np.ndarray[Any, Any]
Names = tuple[str | None, ...]


@pytest.fixture(params=[V4, V3], ids=["v4", "v3"])
def target(request: pytest.FixtureRequest) -> CpuTarget:
    found: CpuTarget = request.param
    if not can_run(found):
        pytest.skip(f"this machine doesn't run {found}")
    return found


def numbers(exact: bool, seed: int, *shape: int) -> Array:
    return integers(seed, -3, 3, *shape) if exact else uniform(seed, *shape)


def product_case(
    a: tuple[int, ...], b: tuple[int, ...], names: Names = (), *, epilogue: str = "", exact: bool = False
) -> Case:
    """x @ constant with some of: bias, relu, gelu, residual, column (a factor for each row), mask."""
    graph = Graph("product")
    builder = Builder(graph)
    feed = {"x": numbers(exact, 1, *a)}
    x = builder.input("x", tensor(*dims_of(a, names or (None,) * len(a))))
    y = builder.op("matmul", x, builder.const(numbers(exact, 2, *b), name="w"))
    shape = np.matmul(feed["x"], np.zeros(b)).shape

    def operand(name: str, type: Type, *extents: int) -> Value:
        feed[name] = numbers(exact, 3, *extents)
        return builder.input(name, type)

    for step in epilogue.split():
        if step == "bias":
            y = builder.op("add", builder.const(numbers(exact, 4, shape[-1]), name="bias"), y)
        elif step == "residual":
            y = builder.op("add", y, operand("r", y.type, *shape))
        elif step == "column":
            y = builder.op(
                "mul", y, operand("c", Type(DType.F32, (*y.shape[:-1], to_expr(1))), *shape[:-1], 1)
            )
        elif step == "mask":
            last = Type(DType.F32, (y.shape[0], *[to_expr(1)] * (y.rank - 2), y.shape[-1]))
            y = builder.op("add", y, operand("mask", last, shape[0], *[1] * (len(shape) - 2), shape[-1]))
        else:
            y = builder.op(step, y, **({"approx": "none"} if step == "gelu" else {}))
    graph.outputs = [y]
    return Case(graph, feed)


def tensor(*shape: Any) -> Type:
    return Type(DType.F32, tuple(to_expr(d) for d in shape))


SHAPES: list[tuple[tuple[int, ...], tuple[int, ...], Names]] = [
    ((7, 33), (33, 45), ()),
    ((7, 33), (33, 45), ("n", None)),
    ((29, 64), (64, 96), ()),
    ((2, 5, 64), (64, 17), ("b", "s", None)),
    ((1, 130), (130, 10), ("n", None)),
    ((33, 40), (40, 100), ("n", None)),
    ((2, 3, 5, 16), (3, 16, 40), ("b", None, "q", None)),
    ((64,), (64, 40), ()),
    ((2, 9), (1, 9, 2), ()),
    ((15, 4), (4, 50), ("n", None)),
    ((5, 700), (700, 33), ()),
    ((17, 768), (768, 33), ("n", None)),
]


@pytest.mark.parametrize("exact", [False, True], ids=["bound", "exact"])
@pytest.mark.parametrize("a, b, names", SHAPES)
def test_packed_products(target: CpuTarget, a: Any, b: Any, names: Names, exact: bool) -> None:
    case = product_case(a, b, names, epilogue="bias relu residual" if not exact else "", exact=exact)
    space = matmul_packed.TACTIC.space(case.region(), target)
    for params in space[: 1 if exact else 2]:
        check(matmul_packed.TACTIC, case, target, params, exact=exact)


@pytest.mark.parametrize("epilogue", ["bias gelu", "column", "mask tanh", "bias residual column mask"])
@pytest.mark.parametrize("names", [(), ("b", "s", None)], ids=["static", "dynamic"])
def test_packed_epilogues(target: CpuTarget, epilogue: str, names: Names) -> None:
    check(matmul_packed.TACTIC, product_case((3, 7, 24), (24, 40), names, epilogue=epilogue), target)


@pytest.mark.parametrize("rows", [*range(1, 9), 13, 14, 15, 16, 27, 29, 30, 43])
def test_every_number_of_rows(rows: int) -> None:
    if can_run(V4):
        check(
            matmul_packed.TACTIC, product_case((rows, 10), (10, 32), ("n", None), exact=True), V4, exact=True
        )


def test_identical_rows_give_identical_results(target: CpuTarget) -> None:
    for rows in (1, 3, 15, 29):
        case = product_case((rows, 300), (300, 48), ("n", None), epilogue="bias")
        case.feed["x"][:] = case.feed["x"][0]
        (result,) = check(matmul_packed.TACTIC, case, target).run(2)
        assert (result == result[0]).all()


def test_what_is_left_to_other_tactics() -> None:
    tactic = matmul_packed.TACTIC
    assert not tactic.supports(product_case((4, 8), (8, 1)).region(), V4)  # a dot product of rows
    assert not tactic.supports(product_case((4, 8), (8,)).region(), V4)
    double = product_case((4, 8), (8, 16))
    for value in [*double.graph.inputs, *double.graph.constants(), *double.graph.outputs]:
        value.type = Type(DType.F64, value.shape)
    assert not tactic.supports(double.region(), V4)


Perm = tuple[int, ...] | None


def dynamic_case(
    a: tuple[int, ...],
    b: tuple[int, ...],
    names: tuple[Names, Names] = ((), ()),
    perms: tuple[Perm, Perm] = (None, None),
    *,
    epilogue: str = "",
    exact: bool = False,
) -> Case:
    """x @ y, each seen through a transpose if a perm is given; `scale` and `mask` as in attention scores."""
    graph = Graph("product")
    builder = Builder(graph)
    feed = {"x": numbers(exact, 1, *a), "y": numbers(exact, 2, *b)}
    operands = []
    for name, own, perm in zip("xy", names, perms, strict=True):
        shape = feed[name].shape
        value = builder.input(name, tensor(*dims_of(shape, own or (None,) * len(shape))))
        operands.append(value if perm is None else builder.op("transpose", value, perm=perm))
    z = builder.op("matmul", *operands)
    if "scale" in epilogue:
        z = builder.op("mul", z, builder.scalar_like(z, 0.125))
    if "mask" in epilogue:
        extents = [graph_dim(d, feed, names) for d in z.shape]
        feed["mask"] = numbers(exact, 3, extents[0], *[1] * (z.rank - 2), extents[-1])
        last = Type(DType.F32, (z.shape[0], *[to_expr(1)] * (z.rank - 2), z.shape[-1]))
        z = builder.op("add", z, builder.input("mask", last))
    graph.outputs = [z]
    return Case(graph, feed)


def graph_dim(dim: Any, feed: dict[str, Array], names: tuple[Names, Names]) -> int:
    known: dict[str, int] = {}
    for key, own in zip("xy", names, strict=True):
        known |= {n: e for n, e in zip(own, feed[key].shape, strict=False) if n}
    return int(dim.evaluate(known))


HEADS = (0, 2, 1, 3)
KEYS = (0, 2, 3, 1)
DYNAMIC: list[tuple[Any, ...]] = [
    ((7, 33), (33, 45), ((), ()), (None, None)),
    ((29, 20), (20, 45), (("m", "k"), ("k", "n")), (None, None)),
    ((2, 3, 17, 16), (2, 3, 16, 31), (("b", None, "q", None), ("b", None, None, "k")), (None, None)),
    ((2, 3, 5, 16), (3, 16, 40), ((), ()), (None, None)),
    ((3, 1, 5, 16), (1, 2, 16, 9), ((), ()), (None, None)),
    ((9, 11), (23, 11), ((), ()), (None, (1, 0))),
    ((2, 9, 11), (2, 23, 11), ((None, "m", "k"), (None, "n", "k")), (None, (0, 2, 1))),
    ((19, 9), (19, 50), ((), ()), ((1, 0), None)),
    ((5, 27, 32), (5, 27, 32), (("b", None, None), ("b", None, None)), (None, (0, 2, 1))),
    ((2, 18, 3, 20), (2, 21, 3, 20), (("b", "s", None, None), ("b", "t", None, None)), (HEADS, KEYS)),
    ((2, 3, 18, 21), (2, 21, 3, 20), (("b", None, "s", "t"), ("b", "t", None, None)), (None, HEADS)),
    ((2, 18, 20), (20, 40), (("b", "s", None), ()), (None, None)),
    ((6, 5, 4), (5, 4, 7), ((), ()), ((1, 0, 2), (0, 1, 2))),
    ((6, 5, 4), (7, 4, 5), ((), ()), ((1, 0, 2), (2, 1, 0))),
    ((8,), (2, 8, 33), ((), ()), (None, None)),
    ((9, 601), (601, 40), (("m", "k"), ("k", None)), (None, None)),
]


@pytest.mark.parametrize("exact", [False, True], ids=["bound", "exact"])
@pytest.mark.parametrize("a, b, names, perms", DYNAMIC)
def test_dynamic_products(target: CpuTarget, a: Any, b: Any, names: Any, perms: Any, exact: bool) -> None:
    case = dynamic_case(a, b, names, perms, epilogue="scale mask" if len(a) == 4 else "scale", exact=exact)
    space = matmul_dynamic.TACTIC.space(case.region(), target)
    for params in space[:1] if exact else space:
        check(matmul_dynamic.TACTIC, case, target, params, exact=exact)


def test_products_of_nothing(target: CpuTarget) -> None:
    for m, k, n in ((0, 4, 40), (5, 0, 40), (5, 4, 0)):
        case = dynamic_case((m, k), (k, n), (("m", "k"), ("k", "n")))
        check(matmul_dynamic.TACTIC, case, target)
