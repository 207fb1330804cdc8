"""Guards of tensor expressions: what their conditions say about index expressions, and which are decided.

A comparison is kept as the difference that is negative where it holds.
"""

from __future__ import annotations

from hagane.core.dtypes import DType
from hagane.core.symbolic import Call, Expr, Sym, const, provably_nonneg
from hagane.ir.scalar import Fn, Guard, IndexValue, LetIndex, Lit, Reduce, Scalar


def conditions(cond: Scalar) -> list[Scalar]:
    """The parts of a conjunction."""
    if isinstance(cond, Fn) and cond.name == "and":
        return [part for arg in cond.args for part in conditions(arg)]
    return [cond]


def difference(cond: Scalar) -> Expr | None:
    """What is negative where a comparison of index expressions holds; None for another condition."""
    if not isinstance(cond, Fn) or cond.name not in ("lt", "ge"):
        return None
    a, b = cond.args
    if not (isinstance(a, IndexValue) and isinstance(b, IndexValue)):
        return None
    return a.expr - b.expr if cond.name == "lt" else b.expr - a.expr - 1


def decided(cond: Scalar) -> bool | None:
    """Whether a condition always or never holds; None if neither is known."""
    if isinstance(cond, Lit):
        return bool(cond.value)
    value = difference(cond)
    if value is None:
        return None
    if nonnegative(-value - 1):
        return True
    return False if nonnegative(value) else None


def nonnegative(value: Expr) -> bool:
    """provably_nonneg, and beyond that with a quotient's own inequality: d * (a // d) <= a."""
    if provably_nonneg(value):
        return True
    lowered = _without_quotients(_lowered(value))
    return lowered != value and provably_nonneg(lowered)


def _lowered(value: Expr) -> Expr:
    """The expression with bounded symbols of negative terms at their largest."""
    for monomial, factor in value.terms:
        if (
            factor < 0
            and len(monomial) == 1
            and isinstance(monomial[0], Sym)
            and monomial[0].bound is not None
        ):
            symbol = monomial[0]
            assert symbol.bound is not None
            return _lowered(value - Expr([(monomial, factor)]) + (symbol.bound - 1) * factor)
    return value


def _without_quotients(value: Expr) -> Expr:
    """The expression with -k * d * (a // d) replaced by -k * a, which isn't larger."""
    total = const(0)
    for monomial, factor in value.terms:
        term = Expr([(monomial, factor)])
        atom = monomial[0] if len(monomial) == 1 else None
        if factor < 0 and isinstance(atom, Call) and atom.op == "floordiv":
            a, d = atom.args
            if d.is_const and d.value > 0 and factor % d.value == 0:
                term = a * (factor // d.value)
        total = total + term
    return total


def simplify(scalar: Scalar) -> Scalar:
    """The expression without the guards that are decided by the ranges of its symbols."""
    return _Simplifier().visit(scalar)


class _Simplifier:
    """Rebuilds what changes; shared nodes stay shared."""

    def __init__(self) -> None:
        self._memo: dict[int, Scalar] = {}
        self._kept: list[Scalar] = []

    def visit(self, scalar: Scalar) -> Scalar:
        found = self._memo.get(id(scalar))
        if found is None:
            found = self._rebuilt(scalar)
            self._memo[id(scalar)] = found
            self._kept.append(scalar)
        return found

    def _rebuilt(self, scalar: Scalar) -> Scalar:
        match scalar:
            case Guard(dtype=dtype, cond=cond, value=value, other=other):
                return self._guard(dtype, cond, value, other, scalar)
            case Fn(dtype=dtype, name=name, args=args):
                new = tuple(self.visit(a) for a in args)
                return scalar if _same(new, args) else Fn(dtype, name, new)
            case LetIndex(dtype=dtype, name=name, value=value, body=body):
                parts = (self.visit(value), self.visit(body))
                return scalar if _same(parts, (value, body)) else LetIndex(dtype, name, *parts)
            case Reduce(dtype=dtype, op=op, axes=axes, body=body):
                inner = self.visit(body)
                return scalar if inner is body else Reduce(dtype, op, axes, inner)
        return scalar

    def _guard(self, dtype: DType, cond: Scalar, value: Scalar, other: Scalar, scalar: Scalar) -> Scalar:
        open_parts = []
        for part in conditions(cond):
            known = decided(part)
            if known is False:
                return self.visit(other)
            if known is None:
                open_parts.append(self.visit(part))
        if not open_parts:
            return self.visit(value)
        joined = open_parts[0]
        for part in open_parts[1:]:
            joined = Fn(DType.BOOL, "and", (joined, part))
        parts = (self.visit(value), self.visit(other))
        if (
            len(open_parts) == len(conditions(cond))
            and _same(parts, (value, other))
            and _same(tuple(open_parts), tuple(conditions(cond)))
        ):
            return scalar
        return Guard(dtype, joined, *parts)


def _same(new: tuple[Scalar, ...], old: tuple[Scalar, ...]) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))
