"""Powers."""

from __future__ import annotations

import math
from collections.abc import Callable

from hagane.codegen.llvm.math.exponential import exp2_narrow, exp_of_clamped
from hagane.codegen.llvm.math.format import DOUBLE, from_bits, is_single, polynomial
from hagane.codegen.llvm.math.logarithm import LOG_RATIO_64, split_exponent
from hagane.codegen.llvm.types import f64
from hagane.codegen.llvm.value import Value, Var

_LOG2E = 1.4426950408889634

# (log(1 + f) - f + f^2 / 2) / f^3 for sqrt(1/2) <= 1 + f <= sqrt(2); relative to log(1 + f) 2^-38.1
_LOG_NARROW = (
    0.33333333400134685, -0.2500000113589554, 0.19999989105619953, -0.16666531457812991,
    0.14286185678121474, -0.12505748469639963, 0.11105369987045485, -0.09888856776999437,
    0.09040690910674694, -0.09290161477346381, 0.09116086436883875, -0.048181332345467086,
)  # fmt: skip


def pow(x: Value, y: Value) -> Value:
    """x to the y with C's special values: negative bases take integer exponents, 1 to anything is 1."""
    f = x.f
    if y.const in _BY_CONSTANT:
        return _BY_CONSTANT[y.const](x)
    a = f.abs(x)
    magnitude = _single(a, y) if is_single(x) else _double(a, y)
    magnitude = f.select(a.eq(1.0) & y.eq(y), 1.0, magnitude)
    whole_y = f.trunc(y).eq(y)
    half = y * 0.5
    odd = whole_y & f.trunc(half).ne(half)
    signed = f.select(odd, f.copysign(magnitude, x), magnitude)
    # a finite negative base with an exponent that isn't whole
    undefined = x.lt(0.0) & a.lt(math.inf) & ~whole_y
    result = f.select(undefined, math.nan, signed)
    return f.select(x.eq(1.0) | y.eq(0.0), 1.0, result)


def _root(x: Value) -> Value:
    """x to the 1/2, which differs from the square root for -0 and -inf."""
    return x.f.select(x.eq(-math.inf), math.inf, x.f.sqrt(x + 0.0))


_BY_CONSTANT: dict[float, Callable[[Value], Value]] = {
    -1.0: lambda x: 1.0 / x,
    -0.5: lambda x: 1.0 / _root(x),
    0.0: lambda x: x.f.const(x.type, 1.0),
    0.5: _root,
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
}


def _single(a: Value, y: Value) -> Value:
    """a^y of f32, a >= 0, by way of f64: the exponent needs 8 bits more than f32 has."""
    f = a.f
    wide, exponent = f.cast(a, f64), f.cast(y, f64)
    k = f.float_bits(wide) + (DOUBLE.one_bits - 0x3FE6A09E667F3BCD) >> 52
    m1 = from_bits(f.float_bits(wide) - (k << 52) + DOUBLE.one_bits) - 1.0
    e = from_bits(k + DOUBLE.magic_bits) - (DOUBLE.magic + DOUBLE.bias)
    log_m = f.fma(m1 * m1, f.fma(m1, polynomial(m1, _LOG_NARROW), -0.5), m1)
    log2 = f.fma(log_m, _LOG2E, e)
    log2 = f.select(wide.eq(0.0), -math.inf, f.select(wide.lt(math.inf), log2, wide))
    # f32 is 0 or inf well before these
    t = f.fmax(f.fmin(exponent * log2, 300.0), -300.0)
    return f.cast(f.select(f.is_nan(t), t, exp2_narrow(t)), "f32")


def _double(a: Value, y: Value) -> Value:
    """a^y of f64, a >= 0, with the logarithm in two parts."""
    f = a.f
    high, low = _log_in_two_parts(a)
    product = y * high
    tail = f.fma(y, high, -product) + y * low
    # where it is 0 or inf the tail may be NaN
    inside = f.abs(product).lt(750.0)
    clamped = f.fmax(f.fmin(product, 711.0), -747.0)
    return exp_of_clamped(clamped, f.select(inside, tail, f.const(tail.type, 0.0)))


def _log_in_two_parts(a: Value) -> tuple[Value, Value]:
    """log a as a sum, to 2^-60 or so."""
    f = a.f
    e, m = split_exponent(a)
    with f.exact():
        m1 = m - 1.0
        below = m1 + 2.0
        below_lost = m1 - (below - 2.0)
        s = m1 / below
        s_low = (f.fma(-s, below, m1) - s * below_lost) / below
        z = s * s
        rest = f.fma(s * z, polynomial(z, LOG_RATIO_64), s_low * 2.0)
        ln2_high, ln2_low = DOUBLE.ln2_short
        big, twice = e * ln2_high, s * 2.0
        total = big + twice
        # what the sum lost
        back = total - big
        lost = (big - (total - back)) + (twice - back)
        rest = f.fma(e, ln2_low, lost + rest)
        high = total + rest
        low = rest - (high - total)
    high = f.select(a.eq(0.0), -math.inf, f.select(a.lt(math.inf), high, a))
    return high, f.select(a.lt(math.inf) & a.gt(0.0), low, f.const(low.type, 0.0))


def int_pow(x: Value, y: Value) -> Value:
    """x to the y in integers, modulo the width; to a negative power it is 0, but for bases 1 and -1."""
    f, type = x.f, x.type
    one, zero = f.const(type, 1), f.const(type, 0)
    negative = y.lt(0)
    sign_only = x.eq(1) | x.eq(-1)
    # of 1 and -1 only the exponent's parity matters
    exponent = f.select(sign_only, y & 1, f.select(negative, zero, y))
    result, square, left = Var(f, type, one), Var(f, type, x), Var(f, type, exponent)
    with f.while_(lambda: f.any(left.value.ne(0))):
        power = square.value
        result.set(f.select((left.value & 1).ne(0), result.value * power, result.value))
        square.set(power * power)
        left.set(left.value >> 1)
    return f.select(negative & ~sign_only, zero, result.value)
