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
from hagane.kernels.llvm import matmul_packed
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
]


@pytest.mark.parametrize("exact", [False, True], ids=["bound", "exact"])
@pytest.mark.parametrize("a, b, names", SHAPES)
def test_packed_products(target: CpuTarget, a: Any, b: Any, names: Names, exact: bool) -> None:
    for epilogue in ("", "bias relu residual"):
        case = product_case(a, b, names, epilogue=epilogue, exact=exact)
        space = matmul_packed.TACTIC.space(case.region(), target)
        for params in space[:2]:
            check(matmul_packed.TACTIC, case, target, params, exact=exact)


@pytest.mark.parametrize("epilogue", ["bias gelu", "column", "mask tanh", "bias residual column mask"])
@pytest.mark.parametrize("names", [(), ("b", "s", None)], ids=["static", "dynamic"])
def test_packed_epilogues(target: CpuTarget, epilogue: str, names: Names) -> None:
    check(matmul_packed.TACTIC, product_case((3, 7, 24), (24, 40), names, epilogue=epilogue), target)


@pytest.mark.parametrize("rows", range(1, 31))
def test_every_number_of_rows(rows: int) -> None:
    if can_run(V4):
        check(
            matmul_packed.TACTIC, product_case((rows, 10), (10, 32), ("n", None), exact=True), V4, exact=True
        )


def test_identical_rows_give_identical_results(target: CpuTarget) -> None:
    for rows in (1, 3, 15, 29):
        case = product_case((rows, 300), (300, 48), ("n", None), epilogue="bias")
        case.feed["x"][:] = case.feed["x"][0]  # type: ignore[index]
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
