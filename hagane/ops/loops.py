"""Reduction loops of definitions: axes whose names clash with nothing in scope, and accumulator types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hagane.core.dtypes import DType
from hagane.core.errors import InternalError
from hagane.core.symbolic import Expr, IntLike, Sym, const, product, sym, to_expr
from hagane.ir.scalar import Axis, Index, IndexValue, Reduce, Scalar, cast


@dataclass(frozen=True)
class Loops:
    """Nested reduction loops. positions: one per extent; an extent of one has no loop and position 0."""

    axes: tuple[Axis, ...]
    positions: tuple[Expr, ...]

    def reduce(self, op: str, body: Scalar, dtype: DType | None = None) -> Scalar:
        """The body reduced over the loops; the body itself where no loop is left."""
        return Reduce(dtype or body.dtype, op, self.axes, body) if self.axes else body


def loops(scope: Iterable[Expr], extents: Iterable[IntLike], letter: str = "k") -> Loops:
    """One loop per extent. scope: the index expressions that the body uses besides the loops' own positions.

    Definitions are expanded inside each other: a name that is fresh in the index expressions that came from
    outside can't capture an outer loop.
    """
    sizes = [to_expr(e) for e in extents]
    taken = {s.name for e in [*scope, *sizes] for s in e.symbols()}
    axes: list[Axis] = []
    positions: list[Expr] = []
    number = 0
    for size in sizes:
        if size == 1:
            positions.append(const(0))
            continue
        while f"{letter}{number}" in taken:
            number += 1
        position = sym(f"{letter}{number}", 0, None, bound=size)
        number += 1
        symbol = position.as_sym
        if symbol is None:
            raise InternalError("a symbol with an open range was folded")
        axes.append(Axis(symbol, size))
        positions.append(position)
    return Loops(tuple(axes), tuple(positions))


def bound_index(scope: Iterable[Expr], hint: str, bound: Expr | None) -> tuple[str, Expr]:
    """A name for LetIndex that is fresh in the scope, and its symbol, in [0, bound)."""
    taken = {s.name for e in scope for s in e.symbols()}
    number = 0
    while f"{hint}{number}" in taken:
        number += 1
    name = f"{hint}{number}"
    return name, Expr([((Sym(name, 0, None, 1, bound),), 1)])


def loops_over(
    index: Index, shape: tuple[Expr, ...], axes: Iterable[int], letter: str = "k"
) -> tuple[Loops, Index]:
    """Loops over the axes of a tensor, and the index with the loops' positions put in."""
    chosen = sorted(axes)
    outer = [e for i, e in enumerate(index) if i not in chosen]
    nest = loops(outer, [shape[a] for a in chosen], letter)
    inside = list(index)
    for axis, position in zip(chosen, nest.positions, strict=True):
        inside[axis] = position
    return nest, tuple(inside)


def accumulator(dtype: DType) -> DType:
    """The type that sums of `dtype` are kept in: floats narrower than f32 widen to it."""
    return DType.F32 if dtype.is_float and dtype.bits < 32 else dtype


def count(extents: Iterable[Expr], dtype: DType) -> Scalar:
    """The number of elements that loops over the extents visit, as a value of the dtype."""
    return cast(IndexValue(DType.I64, product(extents)), dtype)
