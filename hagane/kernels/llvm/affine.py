"""Index expressions taken apart: which loops they follow, and with which stride."""

from __future__ import annotations

from hagane.core.symbolic import Call, Expr, Sym, const


def linear_coefficient(expr: Expr, name: str) -> Expr | None:
    """The factor c in expr = c * name + rest, rest and c free of the symbol;
    None if expr isn't linear in it.
    """
    coefficient = const(0)
    for monomial, factor in expr.terms:
        rest: list[Sym | Call] = []
        times = 0
        for atom in monomial:
            if isinstance(atom, Sym) and atom.name == name:
                times += 1
            elif isinstance(atom, Call) and mentions_atom(atom, name):
                return None
            else:
                rest.append(atom)
        if times > 1:
            return None
        if times:
            coefficient = coefficient + Expr([(tuple(rest), factor)])
    return coefficient


def mentions(expr: Expr, name: str) -> bool:
    """True if the symbol occurs anywhere in the expression."""
    return any(
        (isinstance(atom, Sym) and atom.name == name)
        or (isinstance(atom, Call) and mentions_atom(atom, name))
        for monomial, _ in expr.terms
        for atom in monomial
    )


def mentions_atom(atom: Call, name: str) -> bool:
    """True if the symbol occurs in the arguments of a call."""
    return any(mentions(arg, name) for arg in atom.args)


def mentioned(expr: Expr) -> frozenset[str]:
    """Names of all symbols in the expression."""
    return frozenset(s.name for s in expr.symbols())
