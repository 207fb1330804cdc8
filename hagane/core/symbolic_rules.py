"""Simplification of integer expressions: what the operators of `Expr` do beyond polynomial arithmetic.

Each rule keeps the value for all symbols that agree with their facts, wherever no divisor is zero.
Divisions are floor divisions, as in Python. Floats and machine overflow play no part.
"""

from __future__ import annotations

from math import gcd

from hagane.core.errors import ModelError
from hagane.core.symbolic import Atom, Call, Expr, Monomial, Sym, const, from_terms

_DEPTH = 12
"""Steps that a proof of non-negativity may take: indices into 8 axes with a minimum each need no more."""


def floordiv(a: Expr, d: Expr) -> Expr:
    """a // d, simplified. Raises: ModelError for a constant // 0."""
    if d == 0:
        if a.is_const:
            raise ModelError(f"division by zero in the dim expression {a} // {d}")
        return _call("floordiv", a, d)  # an index of a tensor with no elements, never evaluated
    if a.is_const and d.is_const:
        return const(a.value // d.value)
    if d == 1:
        return a
    if _within(a, d):
        return const(0)
    quotient, rest = _divide(a, d)
    if rest == 0 or (quotient != 0 and _within(rest, d)):
        return quotient
    exact, rest = _exact_part(rest, d)
    quotient = quotient + exact
    if rest == 0 or (exact != 0 and _within(rest, d)):
        return quotient
    common = _common_factor(rest, d)
    if common is not None:
        return quotient + floordiv(common.outer, common.divisor)
    nested = _nested_floordiv(rest, d)
    return quotient + (_call("floordiv", rest, d) if nested is None else nested)


def mod(a: Expr, d: Expr) -> Expr:
    """a % d, simplified. Raises: ModelError for a constant % 0."""
    if d == 0:
        if a.is_const:
            raise ModelError(f"division by zero in the dim expression {a} % {d}")
        return _call("mod", a, d)  # an index of a tensor with no elements, never evaluated
    if a.is_const and d.is_const:
        return const(a.value % d.value)
    if d == 1:
        return const(0)
    if _within(a, d):
        return a
    _, rest = _divide(a, d)
    _, rest = _exact_part(rest, d)
    rest = _without_inner_mod(rest, d)
    if rest == 0 or _within(rest, d):
        return rest
    common = _common_factor(rest, d)
    if common is not None:
        return common.factor * mod(common.outer, common.divisor) + common.inner
    return _call("mod", rest, d)


def extremum(op: str, values: list[Expr]) -> Expr:
    """The minimum or maximum, without the values that the ranges of the symbols rule out."""
    if not values:
        raise ModelError(f"{op} of nothing")
    kept: list[Expr] = []
    for value in _flattened(op, values):
        if any(_no_better(op, value, other) for other in kept):
            continue
        kept = [other for other in kept if not _no_better(op, other, value)]
        kept.append(value)
    if len(kept) == 1:
        return kept[0]
    return _call(op, *sorted(kept, key=str))


def provably_nonneg(value: Expr, depth: int = _DEPTH) -> bool:
    """True if the ranges and symbolic bounds of the symbols show value >= 0; False means unknown.

    Each step replaces one factor of value by a bound of it on the side that can only make value smaller.
    """
    lo, hi = value.bounds()
    if lo is not None and lo >= 0:
        return True
    if depth == 0 or (hi is not None and hi < 0):
        return False
    for atom in dict.fromkeys(a for monomial, _ in value.terms for a in monomial):
        cofactor, rest = _factored(value, atom)
        low, high = cofactor.bounds()
        if high is not None and high <= 0:
            bounds, enough = _upper_bounds(atom), any
            if isinstance(atom, Call) and atom.op == "max":
                bounds, enough = list(atom.args), all
        elif low is not None and low >= 0:
            bounds, enough = _lower_bounds(atom), any
            if isinstance(atom, Call) and atom.op == "min":
                bounds, enough = list(atom.args), all
        else:
            continue
        if bounds:
            return enough(provably_nonneg(rest + cofactor * bound, depth - 1) for bound in bounds)
    return False


def join_div_mod(terms: dict[Monomial, int]) -> None:
    """Rewrites k*c*(a // c) + k*(a % c) to k*a, in place: an index that was split comes together again."""
    if len(terms) < 2:
        _join_exact(terms)
        return
    for monomial, coefficient in list(terms.items()):
        for position, atom in enumerate(monomial):
            if isinstance(atom, Call) and atom.op == "mod" and terms.get(monomial) == coefficient:
                rest = monomial[:position] + monomial[position + 1 :]
                if _join(terms, monomial, rest, coefficient, atom):
                    break
    _join_exact(terms)


def _join(
    terms: dict[Monomial, int], monomial: Monomial, rest: Monomial, coefficient: int, atom: Call
) -> bool:
    a, c = atom.args
    scale = Expr([(rest, coefficient)])
    partners = (scale * c * floordiv(a, c)).terms
    if not partners or any(terms.get(m) != k for m, k in partners):
        return False
    for m, _ in partners:
        del terms[m]
    del terms[monomial]
    for m, k in (scale * a).terms:
        terms[m] = terms.get(m, 0) + k
        if not terms[m]:
            del terms[m]
    return True


def _join_exact(terms: dict[Monomial, int]) -> None:
    """Rewrites k*c*(a // c) to k*a where the constant c surely divides a."""
    for monomial, coefficient in list(terms.items()):
        for position, atom in enumerate(monomial):
            if not (isinstance(atom, Call) and atom.op == "floordiv" and atom.args[1].is_const):
                continue
            a, c = atom.args[0], atom.args[1].value
            if coefficient % c or a.divisor() % c:
                continue
            del terms[monomial]
            rest = monomial[:position] + monomial[position + 1 :]
            for m, k in (Expr([(rest, coefficient // c)]) * a).terms:
                terms[m] = terms.get(m, 0) + k
                if not terms[m]:
                    del terms[m]
            break


def _call(op: str, *args: Expr) -> Expr:
    return Expr([((Call(op, args),), 1)])


def _divide(a: Expr, d: Expr) -> tuple[Expr, Expr]:
    """Quotient and rest with a == d*quotient + rest, by dividing terms by d's leading term.

    A divisor of several terms is taken out only where that leaves less than there was.
    """
    lead, lead_coefficient = max(d.terms, key=lambda t: (len(t[0]), [atom.sort_key() for atom in t[0]]))
    quotient, rest = const(0), a
    for _ in range(len(a.terms) + 1):
        found = [_quotient_of(term, lead, lead_coefficient, alone=len(d.terms) == 1) for term in rest.terms]
        step = from_terms([t for t in found if t is not None])
        if step == 0:
            break
        quotient, rest = quotient + step, rest - step * d
    if len(d.terms) > 1 and not (len(rest.terms) < len(a.terms) or _within(rest, d)):
        return const(0), a
    return quotient, rest


def _quotient_of(
    term: tuple[Monomial, int], lead: Monomial, lead_coefficient: int, alone: bool
) -> tuple[Monomial, int] | None:
    monomial, coefficient = term
    remaining = list(monomial)
    for atom in lead:
        if atom not in remaining:
            return None
        remaining.remove(atom)
    if coefficient % lead_coefficient == 0:
        return tuple(remaining), coefficient // lead_coefficient
    if alone and not lead and not monomial and coefficient // lead_coefficient:
        return (), coefficient // lead_coefficient  # a constant: floor division keeps the rest in [0, d)
    return None


def _exact_part(a: Expr, d: Expr) -> tuple[Expr, Expr]:
    """The quotient of the terms that are surely multiples of a constant d by the symbols' divisors;
    the rest.
    """
    if not d.is_const:
        return const(0), a
    exact, rest = const(0), []
    for monomial, coefficient in a.terms:
        term = Expr([(monomial, coefficient)])
        if monomial and Expr([(monomial, 1)]).divisor() % d.value == 0:
            exact = exact + coefficient * _call("floordiv", Expr([(monomial, 1)]), d)
        elif monomial and term.divisor() % d.value == 0:
            exact = exact + _call("floordiv", term, d)
        else:
            rest.append((monomial, coefficient))
    return exact, from_terms(rest)


def _nested_floordiv(a: Expr, d: Expr) -> Expr | None:
    """(x // c + k) // d = (x + k*c) // (c*d), and (x % (c*d)) // d = (x // d) % c, for positive c and d."""
    if not provably_nonneg(d):
        return None
    offset = sum(k for monomial, k in a.terms if not monomial)
    single = a - offset
    if len(single.terms) != 1 or single.terms[0][1] != 1 or len(single.terms[0][0]) != 1:
        return None
    atom = single.terms[0][0][0]
    if not isinstance(atom, Call) or atom.op not in ("floordiv", "mod"):
        return None
    x, c = atom.args
    if not provably_nonneg(c):
        return None
    if atom.op == "floordiv":
        return floordiv(x + offset * c, c * d)
    factor, rest = _divide(c, d)
    if offset or rest != 0 or factor == 0:
        return None
    return mod(floordiv(x, d), factor)


def _without_inner_mod(a: Expr, d: Expr) -> Expr:
    """k * (x % m) is k*x modulo d if d divides k*m."""
    result = a
    for monomial, coefficient in a.terms:
        for position, atom in enumerate(monomial):
            if isinstance(atom, Call) and atom.op == "mod":
                scale = Expr([(monomial[:position] + monomial[position + 1 :], coefficient)])
                if _divide(scale * atom.args[1], d)[1] == 0:
                    changed = result - Expr([(monomial, coefficient)]) + scale * atom.args[0]
                    return _without_inner_mod(_divide(changed, d)[1], d)
    return result


class _Common:
    """a == factor*outer + inner and d == factor*divisor, with 0 <= inner < factor."""

    def __init__(self, factor: Expr, outer: Expr, inner: Expr, divisor: Expr) -> None:
        self.factor, self.outer, self.inner, self.divisor = factor, outer, inner, divisor


def _common_factor(a: Expr, d: Expr) -> _Common | None:
    """The largest factor of d and some terms of a that the other terms stay below."""
    if len(d.terms) != 1 or not provably_nonneg(d):
        return None
    d_monomial, d_coefficient = d.terms[0]
    candidates: dict[Expr, None] = {}
    for monomial, coefficient in a.terms:
        if not monomial:
            continue
        shared = list(d_monomial)
        for atom in d_monomial:
            if shared.count(atom) > monomial.count(atom):
                shared.remove(atom)
        candidates[Expr([(tuple(shared), gcd(coefficient, d_coefficient))])] = None
    for factor in sorted(candidates, key=lambda f: (-len(f.terms[0][0]), -f.terms[0][1])):
        if factor == 1:
            continue
        outer, inner = _divide(a, factor)
        if outer == 0 or not (inner == 0 or _within(inner, factor)):
            continue
        divisor, none = _divide(d, factor)
        if none == 0 and provably_nonneg(divisor):
            return _Common(factor, outer, inner, divisor)
    return None


def _within(value: Expr, d: Expr) -> bool:
    """True if 0 <= value < d is provable."""
    lo, hi = value.bounds()
    if (hi is not None and hi < 0) or (lo is not None and d.is_const and lo >= d.value):
        return False
    return provably_nonneg(value) and provably_nonneg(d - 1 - value)


def _flattened(op: str, values: list[Expr]) -> list[Expr]:
    """The values, with those of an inner minimum in a minimum (or maximum in a maximum) in its place."""
    result: list[Expr] = []
    for value in values:
        inner: Atom | None = None
        if len(value.terms) == 1 and value.terms[0][1] == 1 and len(value.terms[0][0]) == 1:
            inner = value.terms[0][0][0]
        if isinstance(inner, Call) and inner.op == op:
            result += inner.args
        else:
            result.append(value)
    return result


def _no_better(op: str, value: Expr, other: Expr) -> bool:
    return provably_nonneg(value - other if op == "min" else other - value)


def _factored(value: Expr, atom: Atom) -> tuple[Expr, Expr]:
    """value as atom*cofactor + rest, where each term that has the atom gives one power of it."""
    cofactor: list[tuple[Monomial, int]] = []
    rest: list[tuple[Monomial, int]] = []
    for monomial, coefficient in value.terms:
        if atom in monomial:
            position = monomial.index(atom)
            cofactor.append((monomial[:position] + monomial[position + 1 :], coefficient))
        else:
            rest.append((monomial, coefficient))
    return from_terms(cofactor), Expr(rest)


def _upper_bounds(atom: Atom) -> list[Expr]:
    """Expressions that the atom doesn't exceed."""
    if isinstance(atom, Sym):
        return [] if atom.bound is None else [atom.bound - 1]
    if atom.op == "min":
        return list(atom.args)
    if atom.op == "max":
        return []
    a, d = atom.args
    if not provably_nonneg(d):
        return []
    if atom.op == "mod":
        return [d - 1, a] if provably_nonneg(a) else [d - 1]
    highest = _highest(a)
    return [] if highest is None else [floordiv(highest, d)]


def _lower_bounds(atom: Atom) -> list[Expr]:
    """Expressions that don't exceed the atom."""
    return list(atom.args) if isinstance(atom, Call) and atom.op == "max" else []


def _highest(value: Expr) -> Expr | None:
    """value with its bounded symbols of positive linear terms at their largest, or None if there are none."""
    for monomial, _ in value.terms:
        for atom in monomial:
            if isinstance(atom, Sym) and atom.bound is not None:
                cofactor, rest = _factored(value, atom)
                if provably_nonneg(cofactor):
                    higher = rest + cofactor * (atom.bound - 1)
                    return _highest(higher) or higher
    return None
