"""Logarithms."""

from __future__ import annotations

import math

from hagane.codegen.llvm.math.exponential import exp_of_clamped
from hagane.codegen.llvm.math.format import format_of, from_bits, is_single, polynomial, with_sign
from hagane.codegen.llvm.value import Value

# (log(1 + f) - f + f^2 / 2) / f^3 for sqrt(1/2) <= 1 + f <= sqrt(2); relative to log(1 + f) 2^-30.3
_LOG_32 = (
    0.3333331346511841, -0.25000011920928955, 0.20002079010009766, -0.16667857766151428,
    0.14220038056373596, -0.12407984584569931, 0.11887823045253754, -0.11663010716438293,
    0.06731901317834854,
)  # fmt: skip
# with s = f / (2 + f): (log(1 + f) / s - 2) / s^2, of s^2; relative to log(1 + f) 2^-66.6
LOG_RATIO_64 = (
    0.6666666666666666, 0.4000000000000494, 0.28571428569401125, 0.22222222608899772,
    0.18181778174859434, 0.15386997647184752, 0.13251933094781146, 0.132368591814381,
)  # fmt: skip
_SQRT_HALF_BITS = {23: 0x3F3504F3, 52: 0x3FE6A09E667F3BCD}


def log(x: Value) -> Value:
    """The natural logarithm."""
    e, m = split_exponent(x)
    return _finish(x, _log_of_parts(e, m - 1.0))


def log1p(x: Value) -> Value:
    """log(1 + x), accurate near zero too."""
    f, fmt = x.f, format_of(x)
    with f.exact():
        u = x + 1.0
        # what rounding took from 1 + x
        back = u - 1.0
        lost = (1.0 - (u - back)) + (x - back)
    k, m = _split(u)
    e = _exponent_as_float(k, fmt.bias)
    # times 2^-e, kept a normal number: where it isn't, lost doesn't matter
    unit = from_bits((2 * fmt.bias - f.imin(k, 2 * fmt.bias - 1)) << fmt.mantissa_bits)
    return with_sign(_finish(u, _log_of_parts(e, f.fma(lost, unit, m - 1.0))), x)


def softplus(x: Value) -> Value:
    """log(1 + e^x), stable on both sides."""
    f = x.f
    z = exp_of_clamped(f.fmax(-f.abs(x), -104.0 if is_single(x) else -746.0))
    return log1p(z) + f.fmax(x, 0.0)


def split_exponent(x: Value) -> tuple[Value, Value]:
    """e as a float and m, with x = 2^e m and sqrt(1/2) <= m < sqrt(2), for positive x, denormal ones too."""
    f, fmt = x.f, format_of(x)
    tiny = x.lt(fmt.smallest_normal)
    k, m = _split(f.select(tiny, x * 2.0 ** (fmt.mantissa_bits + 2), x))
    e = _exponent_as_float(k, fmt.bias)
    return f.select(tiny, e - float(fmt.mantissa_bits + 2), e), m


def _split(x: Value) -> tuple[Value, Value]:
    """e + bias as an integer, and m."""
    f, fmt = x.f, format_of(x)
    bits = f.float_bits(x)
    k = (bits + (fmt.one_bits - _SQRT_HALF_BITS[fmt.mantissa_bits])) >> fmt.mantissa_bits
    return k, from_bits(bits - (k << fmt.mantissa_bits) + fmt.one_bits)


def _exponent_as_float(k: Value, bias: int) -> Value:
    """k - bias as a float. By adding magic: AVX2 can't convert i64."""
    fmt = format_of(from_bits(k))
    return from_bits(k + fmt.magic_bits) - (fmt.magic + bias)


def _log_of_parts(e: Value, m1: Value) -> Value:
    """e ln2 + log(1 + m1)."""
    f, fmt = e.f, format_of(e)
    high, low = fmt.ln2_short
    if is_single(e):
        square = m1 * m1
        curve = square * f.fma(m1, polynomial(m1, _LOG_32), -0.5)
        return f.fma(e, high, m1 + f.fma(e, low, curve))
    s = m1 / (m1 + 2.0)
    z = s * s
    half_square = m1 * m1 * 0.5
    # log(1 + m1) is m1 - half_square + s (half_square + z R(z)), whose large part m1 is exact
    curve = s * f.fma(z, polynomial(z, LOG_RATIO_64), half_square) - half_square
    return f.fma(e, high, m1 + f.fma(e, low, curve))


def _finish(x: Value, result: Value) -> Value:
    """Puts in the special values: inf and NaN stay, log(0) is -inf, log of a negative number is NaN."""
    f = x.f
    result = f.select(x.lt(math.inf), result, x)
    result = f.select(x.eq(0.0), -math.inf, result)
    return f.select(x.lt(0.0), math.nan, result)
