"""Hyperbolic functions but tanh, and their inverses."""

from __future__ import annotations

import math

from hagane.codegen.llvm.math.exponential import exp_of_clamped
from hagane.codegen.llvm.math.format import is_single, polynomial, with_sign
from hagane.codegen.llvm.math.logarithm import log1p
from hagane.codegen.llvm.value import Value

# (sinh(x) / x - 1) / x^2 of x^2, for |x| <= 1; relative to sinh 2^-31.6, 2^-61.7
_SINH_32 = (0.1666666716337204, 0.008333311416208744, 0.00019842620531562716, 2.784079470075085e-06)
_SINH_64 = (
    0.16666666666666669, 0.008333333333332919, 0.00019841269841584555, 2.7557319110454365e-06,
    2.505213030886413e-08, 1.605671865879888e-10, 7.774668148211617e-13,
)  # fmt: skip


def sinh(x: Value) -> Value:
    """The hyperbolic sine."""
    f = x.f
    a = f.abs(x)
    z = a * a
    small = f.fma(a * z, polynomial(z, _SINH_32 if is_single(x) else _SINH_64), a)
    half = _half_exp(a)
    return with_sign(f.select(a.lt(1.0), small, half - 0.25 / half), x)


def cosh(x: Value) -> Value:
    """The hyperbolic cosine."""
    half = _half_exp(x.f.abs(x))
    return half + 0.25 / half


def asinh(x: Value) -> Value:
    """The inverse hyperbolic sine."""
    f = x.f
    a = f.abs(x)
    large = a.gt(_large(x))
    square = f.select(large, f.const(x.type, 0.0), a * a)
    u = a + square / (f.sqrt(square + 1.0) + 1.0)
    return with_sign(_log1p_or_doubled(u, large), x)


def acosh(x: Value) -> Value:
    """The inverse hyperbolic cosine; NaN below 1."""
    f = x.f
    large = x.gt(_large(x))
    t = x - 1.0
    root = f.sqrt(f.select(large, f.const(x.type, 0.0), t * (t + 2.0)))
    return f.select(x.lt(1.0), math.nan, _log1p_or_doubled(t + root, large))


def atanh(x: Value) -> Value:
    """The inverse hyperbolic tangent; infinite at -1 and 1, NaN beyond."""
    f = x.f
    a = f.abs(x)
    return with_sign(log1p(a * 2.0 / (1.0 - a)) * 0.5, x)


def _half_exp(a: Value) -> Value:
    """e^a / 2 for a >= 0, finite wherever it can be."""
    return exp_of_clamped(a.f.fmin(a, 90.0 if is_single(a) else 711.0), offset=-1)


def _large(x: Value) -> float:
    """Beyond this 1 doesn't count beside x; its square is finite."""
    return 2.0**30 if is_single(x) else 2.0**60


def _log1p_or_doubled(u: Value, large: Value) -> Value:
    """log(1 + u), and where large log(2 u)."""
    f = u.f
    more = f.select(large, f.const(u.type, math.log(2.0)), f.const(u.type, 0.0))
    return log1p(u) + more
