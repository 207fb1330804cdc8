"""Integer expressions: every simplification keeps the value, checked against plain integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hagane.core.errors import ModelError
from hagane.core.symbolic import (
    Expr,
    IntLike,
    ceildiv,
    const,
    emax,
    emin,
    evaluate_all,
    parse_expr,
    provably_nonneg,
    sym,
    to_expr,
)

B = sym("B", 1, 64)
S = sym("S")
T = sym("T", 1)
M = sym("M", 0, None, multiple=16)
V = sym("V", -7, 9)
FACTS = {
    "B": B,
    "S": S,
    "T": T,
    "M": M,
    "V": V,
    "i": sym("i", bound=S),
    "j": sym("j", 0, 63, bound=const(64)),
    "k": sym("k", bound=const(12)),
    "l": sym("l", bound=S + T),
    "m": sym("m", bound=M),
    "n": sym("n", bound=4 * T),
}


@st.composite
def environments(draw: st.DrawFn) -> dict[str, int]:
    """Values that agree with the symbols' facts."""
    env = {
        "B": draw(st.integers(1, 64)),
        "S": draw(st.integers(1, 20)),
        "T": draw(st.integers(1, 9)),
        "M": 16 * draw(st.integers(1, 4)),
        "V": draw(st.integers(-7, 9)),
    }
    limits = {"i": env["S"], "j": 64, "k": 12, "l": env["S"] + env["T"], "m": env["M"], "n": 4 * env["T"]}
    for name, limit in limits.items():
        env[name] = draw(st.integers(0, limit - 1))
    return env


@dataclass(frozen=True)
class Tree:
    """An expression as written, before any simplification."""

    op: str
    args: tuple[Tree | int | str, ...]

    def build(self) -> Expr:
        return to_expr(_OPERATIONS[self.op][0](*(_build(a) for a in self.args)))

    def value(self, env: dict[str, int]) -> int:
        return _OPERATIONS[self.op][1](*(_value(a, env) for a in self.args))


def _build(tree: Tree | int | str) -> IntLike:
    if isinstance(tree, Tree):
        return tree.build()
    return FACTS[tree] if isinstance(tree, str) else const(tree)


def _value(tree: Tree | int | str, env: dict[str, int]) -> int:
    if isinstance(tree, Tree):
        return tree.value(env)
    return env[tree] if isinstance(tree, str) else tree


_OPERATIONS: dict[str, tuple[Callable[..., IntLike], Callable[..., int]]] = {
    "+": (lambda a, b: a + b, lambda a, b: a + b),
    "-": (lambda a, b: a - b, lambda a, b: a - b),
    "*": (lambda a, b: a * b, lambda a, b: a * b),
    "//": (lambda a, b: a // b, lambda a, b: a // b),
    "%": (lambda a, b: a % b, lambda a, b: a % b),
    "neg": (lambda a: -a, lambda a: -a),
    "min": (emin, min),
    "max": (emax, max),
}

_LEAVES = st.one_of(
    st.sampled_from(sorted(FACTS)), st.integers(-6, 70), st.sampled_from([2, 4, 8, 12, 16, 64])
)


def _extend(inner: st.SearchStrategy[Tree | int | str]) -> st.SearchStrategy[Tree | int | str]:
    binary = st.builds(
        lambda op, a, b: Tree(op, (a, b)),
        st.sampled_from(["+", "-", "*", "//", "//", "%", "%"]),
        inner,
        inner,
    )
    divided = st.builds(
        lambda op, a, d: Tree(op, (a, d)),
        st.sampled_from(["//", "%"]),
        inner,
        st.sampled_from([2, 3, 4, 8, 12, 16, 64, "S", "T", "M"]),
    )
    extremum = st.builds(
        lambda op, args: Tree(op, tuple(args)),
        st.sampled_from(["min", "max"]),
        st.lists(inner, min_size=2, max_size=3),
    )
    # what reshapes make: outer * extent + inner
    mixed = st.builds(
        lambda a, d, b: Tree("+", (Tree("*", (a, d)), b)),
        inner,
        st.sampled_from([4, 8, 12, 64, "S", "T", "M"]),
        inner,
    )
    return st.one_of(
        binary, divided, divided, mixed, mixed, extremum, st.builds(lambda a: Tree("neg", (a,)), inner)
    )


TREES = st.recursive(_LEAVES, _extend, max_leaves=9).filter(lambda t: isinstance(t, Tree))


def _both(tree: Tree, env: dict[str, int]) -> tuple[Expr, int]:
    try:
        value = tree.value(env)
    except ZeroDivisionError:
        assume(False)
    try:
        return tree.build(), value
    except ModelError:  # a constant zero divisor that this environment's branch didn't evaluate
        assume(False)
        raise


@settings(max_examples=1500, deadline=None)
@given(TREES, st.lists(environments(), min_size=1, max_size=4))
def test_simplification_keeps_the_value(tree: Tree, environments_: list[dict[str, int]]) -> None:
    for env in environments_:
        expr, value = _both(tree, env)
        assert expr.evaluate(env) == value
        lo, hi = expr.bounds()
        assert lo is None or lo <= value
        assert hi is None or value <= hi
        divisor = expr.divisor()
        assert value == 0 if divisor == 0 else value % divisor == 0
        if provably_nonneg(expr):
            assert value >= 0
        if provably_nonneg(-expr):
            assert value <= 0


@settings(max_examples=500, deadline=None)
@given(TREES, environments(), st.sets(st.sampled_from(sorted(FACTS))))
def test_substitution_keeps_the_value(tree: Tree, env: dict[str, int], names: set[str]) -> None:
    expr, value = _both(tree, env)
    partial = expr.substitute({name: env[name] for name in names})
    assert not {s.name for s in partial.symbols()} & names
    assert partial.evaluate(env) == value
    renamed = expr.substitute({name: sym(f"{name}_", -100) + 1 for name in names})
    assert renamed.evaluate(env | {f"{name}_": env[name] - 1 for name in names}) == value


@settings(max_examples=500, deadline=None)
@given(TREES, environments())
def test_text_reads_back(tree: Tree, env: dict[str, int]) -> None:
    expr, value = _both(tree, env)
    text = str(expr)
    again = parse_expr(text, FACTS)
    assert again.evaluate(env) == value
    assert eval(text, {"min": min, "max": max}, dict(env)) == value
    assert evaluate_all([expr, again], env) == [value, value]


@settings(max_examples=300, deadline=None)
@given(TREES, TREES, environments())
def test_operators_agree_with_algebra(a: Tree, b: Tree, env: dict[str, int]) -> None:
    x, y = _both(a, env)[0], _both(b, env)[0]
    assert x + y == y + x
    assert x * y == y * x
    assert x - x == 0
    assert ((x + y) - y).evaluate(env) == x.evaluate(env)  # equal, though a joined // may not split again
    assert hash(x + y) == hash(y + x)


I, J, K, L, N = (FACTS[name] for name in "ijkln")  # noqa: E741


@pytest.mark.parametrize(
    ("expr", "simple"),
    [
        # indices of merged and split axes, constant and symbolic
        ((I * 64 + J) // 64, I),
        ((I * 64 + J) % 64, J),
        ((K * S + I) // S, K),
        ((K * S + I) % S, I),
        ((K * S * 64 + I * 64 + J) // (64 * S), K),
        ((K * S * 64 + I * 64 + J) % (64 * S), I * 64 + J),
        ((K * (S + T) + L) // (S + T), K),
        ((K * (S + T) + L) % (S + T), L),
        ((K * (S + T) * 64 + L * 64 + J) // (64 * S + 64 * T), K),
        ((K * (S + T) * 64 + L * 64 + J) % (64 * S + 64 * T), L * 64 + J),
        ((I * 128 + J) // 16, I * 8 + J // 16),
        # parts of an index come together again
        ((J // 16) * 16 + J % 16, J),
        ((J // 16) * 16 + ((J // 4) % 4) * 4 + J % 4, J),
        ((L // T) * T + L % T, L),
        ((L // (S + T)) * (S + T) + L % (S + T), L),
        # common factors and nesting
        ((4 * I + K % 4) // 8, I // 2),
        ((4 * I + K % 4) % 8, 4 * (I % 2) + K % 4),
        ((I * T + L % T) // (4 * T), I // 4),
        ((L // 4) // 3, L // 12),
        ((L % 12) // 4, (L // 4) % 3),
        ((L % 12) % 4, L % 4),
        ((L % 12 + 24 * I) % 6, L % 6),
        (N // 4 // T, const(0)),
        ((N // 4) % T, N // 4),
        (((L % T) * 4 + I % 4) // (4 * T), const(0)),
        # divisibility
        (M % 16, const(0)),
        ((M + K) % 16, K),
        ((M + K) // 16 * 16, M),
        # minimum and maximum
        (emin(I, S - 1), I),
        (emax(I, 0), I),
        (emin(L, S + T), L),
        (emin(emin(I, T), K), emin(I, T, K)),
        (emin(L % T, T - 1), L % T),
        (emin(L, T - 1) // T, const(0)),
        (emax(0, emin(V, T - 1)) % T, emax(0, emin(V, T - 1))),
        (emin(emax(L, T), S + 2 * T), emax(L, T)),
        (emax(emin(K, I), 0), emin(K, I)),
    ],
)
def test_simple_forms(expr: Expr, simple: Expr) -> None:
    assert expr == simple, f"{expr} is not {simple}"


def test_facts_that_are_not_known_are_not_used() -> None:
    assert not provably_nonneg(S - 1)
    assert not provably_nonneg(V)
    assert not provably_nonneg(5 * (K // 2) - K)
    assert not provably_nonneg(const(9) - V * J)
    assert (V % S).symbols() == V.symbols() | S.symbols()


def test_a_substituted_bound_is_used() -> None:
    i = sym("i", bound=S)
    assert i.substitute({"S": 12}) % 12 == i
    renamed = i.substitute({"S": T})
    assert str(renamed % S) != "i"


def test_rejects_what_is_no_expression() -> None:
    for text in (
        "",
        "a b",
        "a / b",
        "f(a)",
        "min()",
        "1 // 0",
        "3 % 0",
        "a if b else c",
        "1.5",
        "a" * 20_000,
        "a**b",
    ):
        with pytest.raises(ModelError):
            parse_expr(text)


def test_ceildiv_rounds_up() -> None:
    for a in range(20):
        assert ceildiv(a, 7) == -(-a // 7)
