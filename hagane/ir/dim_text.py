"""Reads dims back exactly as they were printed.

The simplifier isn't confluent: an expression that several steps built may simplify further when its text is
computed anew. A printed graph should read back equal, so printed dims are rebuilt term by term; text that
people wrote is computed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from hagane.core.errors import ModelError
from hagane.core.symbolic import Atom, Call, Expr, Monomial, parse_expr, sorted_monomial

MAX_CHARS = 4000
MAX_TERMS = 256  # once multiplied out: what is printed is far smaller, and larger ones would take minutes

_ALPHABET = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+(?![A-Za-z_])|[-+*/%(), ])+")
_CALLS = {ast.FloorDiv: "floordiv", ast.Mod: "mod"}


def read_dim(text: str, symbols: Mapping[str, Expr]) -> Expr:
    """The expression; symbols are known by name. Raises: ModelError if it is none."""
    if len(text) > MAX_CHARS or _ALPHABET.fullmatch(text) is None:
        raise ModelError(f"{text[:80]!r} is no dim expression")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        found = _exact(tree, symbols)
        if found is None or str(found) != text:
            if _most_terms(tree) > MAX_TERMS:
                raise ModelError(f"the dim expression {text[:80]!r} is too large")
            found = parse_expr(text, symbols)
    except (SyntaxError, ValueError, ArithmeticError, TypeError, RecursionError, MemoryError):
        raise ModelError(f"{text[:80]!r} is no dim expression") from None
    if _divides_by_zero(found):
        raise ModelError(f"{text[:80]!r} divides by zero")
    return found


def _exact(tree: ast.expr, symbols: Mapping[str, Expr]) -> Expr | None:
    """The expression of just these terms, None where the text is not in printed form."""
    terms: dict[Monomial, int] = {}
    if not _add(tree, 1, terms, symbols):
        return None
    return Expr(sorted(terms.items(), key=lambda t: [a.sort_key() for a in t[0]]))


def _add(tree: ast.expr, sign: int, terms: dict[Monomial, int], symbols: Mapping[str, Expr]) -> bool:
    match tree:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            other = -sign if isinstance(op, ast.Sub) else sign
            return _add(left, sign, terms, symbols) and _add(right, other, terms, symbols)
    product = _product(tree, symbols)
    if product is None or product[0] in terms:
        return False
    if product[1]:
        terms[product[0]] = sign * product[1]
    return True


def _product(tree: ast.expr, symbols: Mapping[str, Expr]) -> tuple[Monomial, int] | None:
    match tree:
        case ast.Constant(value=int() as value):
            return (), value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _product(operand, symbols)
            return None if inner is None else (inner[0], -inner[1])
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            a, b = _product(left, symbols), _product(right, symbols)
            return None if a is None or b is None else (sorted_monomial(a[0] + b[0]), a[1] * b[1])
    atom = _atom(tree, symbols)
    return None if atom is None else ((atom,), 1)


def _atom(tree: ast.expr, symbols: Mapping[str, Expr]) -> Atom | None:
    match tree:
        case ast.Name(id=name):
            return symbols[name].as_sym if name in symbols else None
        case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod() as op, right=right):
            return _call(_CALLS[type(op)], [left, right], symbols)
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=args):
            return _call(name, args, symbols)
    return None


def _call(op: str, args: list[ast.expr], symbols: Mapping[str, Expr]) -> Atom | None:
    read = [_exact(a, symbols) for a in args]
    known = tuple(a for a in read if a is not None)
    return Call(op, known) if len(known) == len(read) >= 2 else None


def _most_terms(tree: ast.expr) -> int:
    """An upper bound of how many terms an expression has when multiplied out."""
    match tree:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _most_terms(left) * _most_terms(right)
        case ast.BinOp(left=left, right=right):
            return _most_terms(left) + _most_terms(right)
        case ast.UnaryOp(operand=operand):
            return _most_terms(operand)
        case ast.Call(args=args):
            return sum(map(_most_terms, args))
    return 1


def _divides_by_zero(value: Expr) -> bool:
    for monomial, _ in value.terms:
        for atom in monomial:
            if isinstance(atom, Call):
                zero = atom.op in ("floordiv", "mod") and atom.args[1] == 0
                if zero or any(map(_divides_by_zero, atom.args)):
                    return True
    return False
