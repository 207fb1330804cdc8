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
from functools import cache
from typing import Union

from hagane.core.errors import InternalError, ModelError

IntLike = Union[int, "Expr"]


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

    def sort_key(self) -> tuple[int, str]:
        return (0, self.name)


@dataclass(frozen=True)
class Call:
    """A non-polynomial atom: op is one of floordiv, mod, min, max."""

    op: str
    args: tuple[Expr, ...]

    def sort_key(self) -> tuple[int, str]:
        return (1, str(self))

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

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Iterable[tuple[Monomial, int]]) -> None:
        self.terms: tuple[tuple[Monomial, int], ...] = tuple(terms)
        self._hash = hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.is_const and self.value == other
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
        return _from_terms([*self.terms, *to_expr(other).terms])

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr((m, -c) for m, c in self.terms)

    def __sub__(self, other: IntLike) -> Expr:
        return self + (-to_expr(other))

    def __rsub__(self, other: IntLike) -> Expr:
        return to_expr(other) - self

    def __mul__(self, other: IntLike) -> Expr:
        rhs = to_expr(other)
        return _from_terms([(_sorted(m1 + m2), c1 * c2) for m1, c1 in self.terms for m2, c2 in rhs.terms])

    __rmul__ = __mul__

    def __floordiv__(self, other: IntLike) -> Expr:
        return _floordiv(self, to_expr(other))

    def __rfloordiv__(self, other: IntLike) -> Expr:
        return _floordiv(to_expr(other), self)

    def __mod__(self, other: IntLike) -> Expr:
        return _mod(self, to_expr(other))

    def __rmod__(self, other: IntLike) -> Expr:
        return _mod(to_expr(other), self)

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
        if not any(s.name in env for s in self.symbols()):
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
    return _extremum("min", [to_expr(v) for v in values])


def emax(*values: IntLike) -> Expr:
    """Maximum of the values, simplified by ranges."""
    return _extremum("max", [to_expr(v) for v in values])


def ceildiv(a: IntLike, b: IntLike) -> Expr:
    """a / b rounded up, for b > 0."""
    return (to_expr(a) + to_expr(b) - 1) // b


def product(values: Iterable[IntLike]) -> Expr:
    """Product of all values; 1 for none."""
    result = const(1)
    for value in values:
        result = result * value
    return result


def provably_nonneg(value: Expr) -> bool:
    """True if the ranges and symbolic bounds of the symbols show value >= 0; False means unknown."""
    lo, _ = value.bounds()
    if lo is not None and lo >= 0:
        return True
    weakened = _replace_bounded(value)
    if weakened is None:
        return False
    lo, _ = weakened.bounds()
    return (lo is not None and lo >= 0) or (weakened != value and provably_nonneg(weakened))


def _replace_bounded(value: Expr) -> Expr | None:
    """value with one symbol of a negative linear term replaced by its largest value (bound - 1), or None."""
    for monomial, coefficient in value.terms:
        if coefficient < 0:
            for atom in monomial:
                linear = sum(a == atom for m, _ in value.terms for a in m) == monomial.count(atom) == 1
                if isinstance(atom, Sym) and atom.bound is not None and linear:
                    return value.substitute({atom.name: atom.bound - 1})
    return None


def _from_terms(terms: list[tuple[Monomial, int]]) -> Expr:
    merged: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        merged[monomial] = merged.get(monomial, 0) + coefficient
    merged = {m: c for m, c in merged.items() if c}
    _join_div_mod(merged)
    return Expr(sorted(merged.items(), key=lambda t: [a.sort_key() for a in t[0]]))


def _join_div_mod(terms: dict[Monomial, int]) -> None:
    """Rewrites k*c*(a // c) + k*(a % c) to k*a in place, for constant c: reshapes there and back cancel."""
    for monomial, coefficient in list(terms.items()):
        for position, atom in enumerate(monomial):
            if not (isinstance(atom, Call) and atom.op == "mod" and atom.args[1].is_const):
                continue
            rest = monomial[:position] + monomial[position + 1 :]
            partner = _sorted((*rest, Call("floordiv", atom.args)))
            scaled = coefficient * atom.args[1].value
            if terms.get(partner) != scaled or terms.get(monomial) != coefficient:
                continue
            del terms[partner], terms[monomial]
            for m, c in atom.args[0].terms:
                key = _sorted(rest + m)
                terms[key] = terms.get(key, 0) + c * coefficient
                if not terms[key]:
                    del terms[key]
            break


def _sorted(monomial: Monomial) -> Monomial:
    if len(monomial) < 2:
        return monomial
    return tuple(sorted(monomial, key=lambda a: a.sort_key()))


def _call(op: str, *args: Expr) -> Expr:
    return Expr([((Call(op, args),), 1)])


def _split_by(a: Expr, d: Expr) -> tuple[Expr, Expr]:
    """a as d*quotient + rest, taking into the quotient every term that d divides as a polynomial term."""
    if len(d.terms) != 1:
        return (const(1), const(0)) if a == d else (const(0), a)
    d_monomial, d_coefficient = d.terms[0]
    quotient: list[tuple[Monomial, int]] = []
    rest: list[tuple[Monomial, int]] = []
    for monomial, coefficient in a.terms:
        remaining = list(monomial)
        divides = coefficient % d_coefficient == 0
        for atom in d_monomial:
            if atom in remaining:
                remaining.remove(atom)
            else:
                divides = False
        if divides:
            quotient.append((tuple(remaining), coefficient // d_coefficient))
        elif not d_monomial and not monomial:
            # a constant: floor division keeps the rest in [0, d)
            q, r = divmod(coefficient, d_coefficient)
            quotient.append(((), q))
            rest.append(((), r))
        else:
            rest.append((monomial, coefficient))
    return _from_terms(quotient), _from_terms(rest)


def _floordiv(a: Expr, d: Expr) -> Expr:
    if d.is_const and d.value == 1:
        return a
    if a.is_const and d.is_const:
        if d.value == 0:
            raise ModelError(f"division by zero in the dim expression {a} // {d}")
        return const(a.value // d.value)
    quotient, rest = _split_by(a, d)
    if rest == 0 or _within(rest, d):
        return quotient
    nested = _nested_floordiv(rest, d)
    if nested is not None:
        return quotient + nested
    return quotient + _call("floordiv", rest, d)


def _nested_floordiv(a: Expr, d: Expr) -> Expr | None:
    """(x // c) // d = x // (c*d) for positive constants."""
    if len(a.terms) == 1 and d.is_const:
        monomial, coefficient = a.terms[0]
        if coefficient == 1 and len(monomial) == 1:
            atom = monomial[0]
            if isinstance(atom, Call) and atom.op == "floordiv" and atom.args[1].is_const:
                return atom.args[0] // (atom.args[1].value * d.value)
    return None


def _mod(a: Expr, d: Expr) -> Expr:
    if a.is_const and d.is_const:
        return const(a.value % d.value)
    if d == 1:
        return const(0)
    _, rest = _split_by(a, d)
    if rest == 0 or _within(rest, d):
        return rest
    if d.is_const and rest.divisor() % d.value == 0:
        return const(0)
    return _call("mod", rest, d)


def _within(value: Expr, d: Expr) -> bool:
    """True if 0 <= value < d is provable."""
    lo, hi = value.bounds()
    if lo is None or lo < 0:
        return False
    if d.is_const and hi is not None:
        return hi < d.value
    return provably_nonneg(d - 1 - value)


def _extremum(op: str, values: list[Expr]) -> Expr:
    kept: list[Expr] = []
    for value in values:
        if any(_no_better(op, value, other) for other in kept):
            continue
        kept = [other for other in kept if not _no_better(op, other, value)]
        kept.append(value)
    if len(kept) == 1:
        return kept[0]
    return _call(op, *sorted(kept, key=str))


def _no_better(op: str, value: Expr, other: Expr) -> bool:
    difference = value - other if op == "min" else other - value
    return provably_nonneg(difference)


def _substitute_atom(atom: Atom, env: Mapping[str, IntLike]) -> Expr:
    if isinstance(atom, Sym):
        found = env.get(atom.name)
        return Expr([((atom,), 1)]) if found is None else to_expr(found)
    args = [a.substitute(env) for a in atom.args]
    return rebuild_call(atom.op, args)


def rebuild_call(op: str, args: list[Expr]) -> Expr:
    """The simplified expression for a call's op and arguments."""
    if op == "floordiv":
        return args[0] // args[1]
    if op == "mod":
        return args[0] % args[1]
    return _extremum(op, args)


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
    (alo, ahi), (dlo, dhi) = ranges[0], ranges[1]
    if atom.op == "mod":
        if dlo is None or dlo <= 0:
            return None, None
        top = None if dhi is None else dhi - 1
        if alo is not None and alo >= 0 and ahi is not None:
            top = ahi if top is None else min(top, ahi)
        return 0, top
    if atom.op == "floordiv":
        if dlo is None or dlo <= 0:
            return None, None
        if dhi != dlo:  # a symbolic divisor: only the sign of a non-negative numerator is known
            return (
                0 if alo is not None and alo >= 0 else None
            ), ahi if ahi is not None and ahi >= 0 else None
        return (None if alo is None else alo // dlo), (None if ahi is None else ahi // dlo)
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
        return _extremum(node.func.id, [_from_ast(a, symbols) for a in node.args])
    raise ValueError("unexpected syntax")


@cache
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
