"""Integer expressions over named symbols: dims of tensors and indices into them.

An expression is kept as a polynomial (sum of coefficient times product of atoms), so that equal polynomials
are equal objects; an atom is a symbol or a floor division, modulo, minimum or maximum of expressions. Symbols
carry a range, a divisor and optionally a symbolic bound, which the simplifications of // and % rely on. Text
is Python's infix syntax.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Union

from hagane.core.errors import InternalError, ModelError

IntLike = Union[int, "Expr"]

MAX_TERMS = 20_000
"""Largest product of sums that is expanded: real dims have a few terms, a broken file may have any number."""


@dataclass(frozen=True)
class Sym:
    """A named integer with lo <= value (<= hi if not None), divisible by `multiple`, below `bound` if given.

    Two symbols of one name are the same symbol: the facts are not part of its identity.
    """

    name: str
    lo: int = field(default=0, compare=False)
    hi: int | None = field(default=None, compare=False)
    multiple: int = field(default=1, compare=False)
    bound: Expr | None = field(default=None, compare=False)

    def __hash__(self) -> int:
        return hash(self.name)

    def sort_key(self) -> tuple[int, str]:
        return (0, self.name)


@dataclass(frozen=True)
class Call:
    """A non-polynomial atom: op is one of floordiv, mod, min, max."""

    op: str
    args: tuple[Expr, ...]

    def sort_key(self) -> tuple[int, str]:
        return (1, str(self))

    @cached_property
    def _hash(self) -> int:
        return hash((self.op, self.args))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        if self.op in ("min", "max"):
            return f"{self.op}({', '.join(map(str, self.args))})"
        sign = {"floordiv": "//", "mod": "%"}[self.op]
        return f"{_wrap(self.args[0])} {sign} {_wrap(self.args[1])}"


Atom = Sym | Call
Monomial = tuple[Atom, ...]
Bound = tuple[int | None, int | None]


class Expr:
    """An immutable integer expression, built by `sym`, `const`, operators + - * // % and `emin`, `emax`."""

    __slots__ = ("_bounds", "_hash", "_text", "terms")

    def __init__(self, terms: Iterable[tuple[Monomial, int]]) -> None:
        self.terms: tuple[tuple[Monomial, int], ...] = tuple(terms)
        self._hash = hash(self.terms)
        self._text: str | None = None
        self._bounds: Bound | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.terms == ((((), other),) if other else ())
        return isinstance(other, Expr) and self.terms == other.terms

    @property
    def is_const(self) -> bool:
        return not self.terms or (len(self.terms) == 1 and not self.terms[0][0])

    @property
    def value(self) -> int:
        """The integer of a constant expression."""
        if not self.is_const:
            raise InternalError(f"{self} is not a constant")
        return self.terms[0][1] if self.terms else 0

    @property
    def as_sym(self) -> Sym | None:
        """The symbol, if the expression is just one."""
        if len(self.terms) == 1:
            monomial, coefficient = self.terms[0]
            if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Sym):
                return monomial[0]
        return None

    def __add__(self, other: IntLike) -> Expr:
        rhs = to_expr(other)
        if not rhs.terms or not self.terms:
            return rhs if rhs.terms else self
        return from_terms([*self.terms, *rhs.terms])

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr((m, -c) for m, c in self.terms)

    def __sub__(self, other: IntLike) -> Expr:
        return self + (-to_expr(other))

    def __rsub__(self, other: IntLike) -> Expr:
        return to_expr(other) - self

    def __mul__(self, other: IntLike) -> Expr:
        rhs = to_expr(other)
        if len(self.terms) * len(rhs.terms) > MAX_TERMS:
            raise ModelError(f"a dim expression has more than {MAX_TERMS} terms")
        return from_terms(
            [(sorted_monomial(m1 + m2), c1 * c2) for m1, c1 in self.terms for m2, c2 in rhs.terms]
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: IntLike) -> Expr:
        return rules.floordiv(self, to_expr(other))

    def __rfloordiv__(self, other: IntLike) -> Expr:
        return rules.floordiv(to_expr(other), self)

    def __mod__(self, other: IntLike) -> Expr:
        return rules.mod(self, to_expr(other))

    def __rmod__(self, other: IntLike) -> Expr:
        return rules.mod(to_expr(other), self)

    def symbols(self) -> frozenset[Sym]:
        """All symbols in it, also inside calls."""
        found: set[Sym] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                if isinstance(atom, Sym):
                    found.add(atom)
                else:
                    for arg in atom.args:
                        found |= arg.symbols()
        return frozenset(found)

    def substitute(self, env: Mapping[str, IntLike]) -> Expr:
        """Replaces symbols by name; the result is simplified again."""
        if not _mentions(self, env):
            return self
        total = const(0)
        for monomial, coefficient in self.terms:
            product = const(coefficient)
            for atom in monomial:
                product = product * _substitute_atom(atom, env)
            total = total + product
        return total

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The integer value. Raises: KeyError for a missing symbol, ZeroDivisionError."""
        total = 0
        for monomial, coefficient in self.terms:
            for atom in monomial:
                coefficient *= _evaluate_atom(atom, env)
            total += coefficient
        return total

    def bounds(self) -> Bound:
        """Smallest and largest value by interval arithmetic; None where unbounded."""
        if self._bounds is None:
            self._bounds = self._interval()
        return self._bounds

    def _interval(self) -> Bound:
        lo: int | None = 0
        hi: int | None = 0
        for monomial, coefficient in self.terms:
            a: int | None = coefficient
            b: int | None = coefficient
            for atom in monomial:
                a, b = _mul_bounds((a, b), _atom_bounds(atom))
            lo = None if lo is None or a is None else lo + a
            hi = None if hi is None or b is None else hi + b
        return lo, hi

    def divisor(self) -> int:
        """A constant that surely divides the value (0 for the constant zero)."""
        from math import gcd

        result = 0
        for monomial, coefficient in self.terms:
            known = abs(coefficient)
            for atom in monomial:
                known *= atom.multiple if isinstance(atom, Sym) else 1
            result = gcd(result, known)
        return result

    def __str__(self) -> str:
        if self._text is None:
            self._text = self._format()
        return self._text

    def _format(self) -> str:
        if not self.terms:
            return "0"
        parts: list[str] = []
        for monomial, coefficient in sorted(self.terms, key=lambda t: (not t[0], -len(t[0]))):
            text = "*".join(_atom_text(a) for a in monomial)
            magnitude = abs(coefficient)
            if not monomial:
                text = str(magnitude)
            elif magnitude != 1:
                text = f"{magnitude}*{text}"
            sign = "-" if coefficient < 0 else "+"
            parts.append(
                text if not parts and sign == "+" else f"{sign}{text}" if not parts else f" {sign} {text}"
            )
        return "".join(parts)

    __repr__ = __str__


def const(value: int) -> Expr:
    """A constant expression."""
    return Expr([((), int(value))] if value else [])


def sym(name: str, lo: int = 0, hi: int | None = None, multiple: int = 1, bound: Expr | None = None) -> Expr:
    """An expression that is one symbol; a range of a single value gives the constant."""
    if hi is not None and lo == hi:
        return const(lo)
    return Expr([((Sym(name, lo, hi, multiple, bound),), 1)])


def to_expr(value: IntLike) -> Expr:
    """An Expr from an int or an Expr."""
    return value if isinstance(value, Expr) else const(int(value))


def emin(*values: IntLike) -> Expr:
    """Minimum of the values, simplified by ranges."""
    return rules.extremum("min", [to_expr(v) for v in values])


def emax(*values: IntLike) -> Expr:
    """Maximum of the values, simplified by ranges."""
    return rules.extremum("max", [to_expr(v) for v in values])


def ceildiv(a: IntLike, b: IntLike) -> Expr:
    """a / b rounded up, for b > 0."""
    return (to_expr(a) + to_expr(b) - 1) // b


def product(values: Iterable[IntLike]) -> Expr:
    """Product of all values; 1 for none."""
    result = const(1)
    for value in values:
        result = result * value
    return result


def from_terms(terms: Iterable[tuple[Monomial, int]]) -> Expr:
    """The sum of the terms, like ones merged; monomials are sorted already."""
    merged: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total = merged.get(monomial, 0) + coefficient
        if total:
            merged[monomial] = total
        else:
            merged.pop(monomial, None)
    if any(type(atom) is Call for monomial in merged for atom in monomial):
        rules.join_div_mod(merged)
    if len(merged) < 2:
        return Expr(merged.items())
    return Expr(sorted(merged.items(), key=_term_key))


def _term_key(term: tuple[Monomial, int]) -> list[tuple[int, str]]:
    return [atom.sort_key() for atom in term[0]]


def sorted_monomial(monomial: Monomial) -> Monomial:
    """The factors in the order that makes equal monomials equal."""
    if len(monomial) < 2:
        return monomial
    return tuple(sorted(monomial, key=lambda a: a.sort_key()))


def _mentions(value: Expr, names: Mapping[str, IntLike]) -> bool:
    """Whether one of the names is in the expression or in a bound of its symbols."""
    return any(
        s.name in names or (s.bound is not None and _mentions(s.bound, names)) for s in value.symbols()
    )


def _substitute_atom(atom: Atom, env: Mapping[str, IntLike]) -> Expr:
    if isinstance(atom, Sym):
        found = env.get(atom.name)
        if found is not None:
            return to_expr(found)
        if atom.bound is not None and _mentions(atom.bound, env):
            atom = Sym(atom.name, atom.lo, atom.hi, atom.multiple, atom.bound.substitute(env))
        return Expr([((atom,), 1)])
    args = [a.substitute(env) for a in atom.args]
    return rebuild_call(atom.op, args)


def rebuild_call(op: str, args: list[Expr]) -> Expr:
    """The simplified expression for a call's op and arguments."""
    if op == "floordiv":
        return args[0] // args[1]
    if op == "mod":
        return args[0] % args[1]
    return rules.extremum(op, args)


def _evaluate_atom(atom: Atom, env: Mapping[str, int]) -> int:
    if isinstance(atom, Sym):
        return env[atom.name]
    args = [a.evaluate(env) for a in atom.args]
    if atom.op == "floordiv":
        return args[0] // args[1]
    if atom.op == "mod":
        return args[0] % args[1]
    return min(args) if atom.op == "min" else max(args)


def _atom_bounds(atom: Atom) -> Bound:
    if isinstance(atom, Sym):
        hi = atom.hi
        if hi is None and atom.bound is not None:
            limit = atom.bound.bounds()[1]
            hi = None if limit is None else limit - 1
        return atom.lo, hi
    ranges = [a.bounds() for a in atom.args]
    if atom.op in ("floordiv", "mod"):
        (lo, hi), (dlo, dhi) = ranges
        if dlo is None or dlo < 0:  # a divisor of zero has no value, so dlo == 0 is as good as 1
            return None, None
        if atom.op == "mod":
            top = None if dhi is None else max(0, dhi - 1)
            if lo is not None and lo >= 0 and hi is not None:
                top = hi if top is None else min(top, hi)
            return 0, top
        # the quotient is nearest zero for the largest divisor
        dlo = max(1, dlo)
        low = None if lo is None else lo // dlo if lo < 0 else lo // dhi if dhi else 0
        high = None if hi is None else hi // dlo if hi >= 0 else -1 if not dhi else hi // dhi
        return low, high
    los, his = [r[0] for r in ranges], [r[1] for r in ranges]
    known_los, known_his = [v for v in los if v is not None], [v for v in his if v is not None]
    if atom.op == "min":
        return (min(known_los) if len(known_los) == len(los) else None), min(known_his, default=None)
    return max(known_los, default=None), (max(known_his) if len(known_his) == len(his) else None)


def _mul_bounds(a: Bound, b: Bound) -> Bound:
    if None not in a and None not in b:
        corners = [x * y for x in a for y in b]  # type: ignore[operator]
        return min(corners), max(corners)
    (alo, ahi), (blo, bhi) = a, b
    if alo is not None and alo >= 0 and blo is not None and blo >= 0:
        return alo * blo, (ahi * bhi if ahi is not None and bhi is not None else None)
    if ahi is not None and ahi <= 0 and blo is not None and blo >= 0:
        return (alo * bhi if alo is not None and bhi is not None else None), ahi * blo
    return None, None


def _wrap(value: Expr) -> str:
    text = str(value)
    simple = value.as_sym is not None or (value.is_const and value.value >= 0)
    return text if simple else f"({text})"


def _atom_text(atom: Atom) -> str:
    if isinstance(atom, Sym):
        return atom.name
    return str(atom) if atom.op in ("min", "max") else f"({atom})"


def parse_expr(text: str, symbols: Mapping[str, Expr] | None = None) -> Expr:
    """Reads the text form; symbols gives facts for known names, others are plain non-negative symbols.

    Raises: ModelError on text that is not such an expression.
    """
    if len(text) > 10_000:
        raise ModelError("dim expression is longer than 10000 characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _from_ast(tree.body, symbols or {})
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ModelError(f"{text[:80]!r} is not a dim expression") from error


_OPERATORS: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def _from_ast(node: ast.expr, symbols: Mapping[str, Expr]) -> Expr:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return const(node.value)
    if isinstance(node, ast.Name):
        return symbols[node.id] if node.id in symbols else sym(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_from_ast(node.operand, symbols)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_from_ast(node.left, symbols), _from_ast(node.right, symbols))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        return rules.extremum(node.func.id, [_from_ast(a, symbols) for a in node.args])
    raise ValueError("unexpected syntax")


@lru_cache(maxsize=1024)  # a process that opens many engines must not keep all their expressions
def _compiled(exprs: tuple[Expr, ...]) -> Callable[[Mapping[str, int]], list[int]]:
    names = sorted({s.name for e in exprs for s in e.symbols()})
    local = {name: f"s{i}" for i, name in enumerate(names)}
    renamed = [str(e.substitute({n: sym(v, lo=-(2**62)) for n, v in local.items()})) for e in exprs]
    loads = "".join(f" {v} = env[{n!r}]\n" for n, v in local.items())
    scope: dict[str, Callable[[Mapping[str, int]], list[int]]] = {}
    exec(f"def f(env):\n{loads} return [{', '.join(renamed)}]\n", {"min": min, "max": max}, scope)
    return scope["f"]


def evaluate_all(exprs: Iterable[Expr], env: Mapping[str, int]) -> list[int]:
    """Values of many expressions at once, through a compiled function that is kept for the next call."""
    return _compiled(tuple(exprs))(env)


# Last, since the rules need Expr as its operators need the rules.
from hagane.core import symbolic_rules as rules  # noqa: E402
from hagane.core.symbolic_rules import provably_nonneg  # noqa: E402

__all__ = [
    "Atom",
    "Bound",
    "Call",
    "Expr",
    "IntLike",
    "Monomial",
    "Sym",
    "ceildiv",
    "const",
    "emax",
    "emin",
    "evaluate_all",
    "from_terms",
    "parse_expr",
    "product",
    "provably_nonneg",
    "rebuild_call",
    "sorted_monomial",
    "sym",
    "to_expr",
]
