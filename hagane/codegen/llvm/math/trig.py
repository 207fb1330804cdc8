"""Sine, cosine, tangent: any f32; f64 to 1e9, beyond which the result is only kept within its bounds."""

from __future__ import annotations

import struct
from fractions import Fraction

from hagane.codegen.llvm.math.format import format_of, from_bits, is_single, polynomial
from hagane.codegen.llvm.types import f64, i32
from hagane.codegen.llvm.value import Value, Var

# (sin(r) / r - 1) / r^2 and (cos(r) - 1 + r^2 / 2) / r^4 of r^2, for |r| <= pi / 4; relative to sin and cos
_SIN_32 = (
    -0.1666666716337204,
    0.008333378471434116,
    -0.00019852565310429782,
    2.8264159936952638e-06,
)  # 2^-32.5
_COS_32 = (0.04166664555668831, -0.0013887297827750444, 2.443008816044312e-05)  # 2^-32.8
_SIN_64 = (  # 2^-63.2
    -0.16666666666666666, 0.008333333333333049, -0.00019841269840976242, 2.755731908342621e-06,
    -2.5052073853679444e-08, 1.6054733663661647e-10, -7.412390679394326e-13,
)  # fmt: skip
_COS_64 = (  # 2^-63.7
    0.04166666666666658, -0.0013888888888871043, 2.4801587287606393e-05, -2.755731382115889e-07,
    2.087565223660843e-09, -1.1356019278789664e-11,
)  # fmt: skip
# pi / 2 in parts, each the rounded rest
_HALF_PI_32 = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_HALF_PI_64 = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_TWO_OVER_PI = 0.6366197723675814

# Up to here three parts of pi / 2 give r to full relative accuracy, as their products with n are exact
# enough.
_LARGE_32 = 1.0e5
_FIRST_EXPONENT = 140  # of the table below: 2^13 is less than _LARGE_32


def sin(x: Value) -> Value:
    """The sine."""
    q, r = _reduce(x)
    sine, cosine = _sine(r), _cosine(r)
    return _flip(x.f.select((q & 1).ne(0), cosine, sine), (q & 2) ^ _sign_as_two(x))


def cos(x: Value) -> Value:
    """The cosine."""
    q, r = _reduce(x)
    sine, cosine = _sine(r), _cosine(r)
    return _flip(x.f.select((q & 1).ne(0), sine, cosine), (q + 1) & 2)


def tan(x: Value) -> Value:
    """The tangent."""
    f = x.f
    q, r = _reduce(x)
    sine, cosine = _sine(r), _cosine(r)
    odd = (q & 1).ne(0)
    return _flip(f.select(odd, cosine, sine) / f.select(odd, sine, cosine), ((q & 1) << 1) ^ _sign_as_two(x))


def _sine(r: Value) -> Value:
    z = r * r
    return r.f.fma(r * z, polynomial(z, _SIN_32 if is_single(r) else _SIN_64), r)


def _cosine(r: Value) -> Value:
    f, z = r.f, r * r
    rest = polynomial(z, _COS_32 if is_single(r) else _COS_64)
    return f.fma(z * z, rest, f.fma(z, -0.5, 1.0))


def _sign_as_two(x: Value) -> Value:
    """2 where x is negative, else 0."""
    return (x.f.float_bits(x) >> (x.type.bits - 2)) & 2


def _flip(y: Value, two: Value) -> Value:
    """-y where the integer is 2, y where it is 0."""
    return from_bits(y.f.float_bits(y) ^ (two << (y.type.bits - 2)))


def _reduce(x: Value) -> tuple[Value, Value]:
    """q modulo 4, in an integer's low bits, and r, with |x| = q pi/2 + r and |r| <= pi / 4."""
    f, fmt = x.f, format_of(x)
    a = f.abs(x)
    shifted = f.fma(a, _TWO_OVER_PI, fmt.magic)
    n = shifted - fmt.magic
    r = a
    for part in _HALF_PI_32 if is_single(x) else _HALF_PI_64:
        r = f.fma(n, -part, r)
    q = f.float_bits(shifted)
    if not is_single(x):
        # far out n is wrong; this keeps the result between -1 and 1
        return q, f.fmax(f.fmin(r, 0.7853981633974484), -0.7853981633974484)
    large = a.gt(_LARGE_32)
    kept_q, kept_r = Var(f, q.type, q), Var(f, r.type, r)
    with f.if_(f.any(large)):
        far_q, far_r = _reduce_large(a)
        kept_q.set(f.select(large, far_q, q))
        kept_r.set(f.select(large, far_r, r))
    return kept_q.value, kept_r.value


def _reduce_large(a: Value) -> tuple[Value, Value]:
    """The same for f32 of 2^13 and more: the 24-bit mantissa times 2/pi 2^e modulo 4, in three f64 parts."""
    f, bits = a.f, a.f.float_bits(a)
    table = f.address_of(f.module.constant("two_over_pi", _table()))
    index = f.imax((bits >> 23) - _FIRST_EXPONENT, 0)
    mantissa = f.cast((bits & 0x7FFFFF) | 0x800000, f64)
    parts = [f.gather(f64, f.ptr(table, 8 * i), index * 24) for i in range(3)]
    with f.exact():
        turns = mantissa * parts[0]
        turns = turns - f.floor(turns * 0.25) * 4.0
        n = f.round_half_even(turns + mantissa * parts[1])
        r = ((turns - n) + mantissa * parts[1]) + mantissa * parts[2]
    # inf - inf: the sine of infinity is NaN
    return f.cast(n, i32), f.cast(r * _HALF_PI_64[0], "f32") + (a - a)


def _table() -> bytes:
    """2^(exponent - 150) * 2/pi modulo 4, in parts of 28, 28, 53 bits, from _FIRST_EXPONENT on."""
    two_over_pi = Fraction(_TWO_OVER_PI_DIGITS, 1 << 256)
    rows = []
    for exponent in range(_FIRST_EXPONENT, 256):
        rest = two_over_pi * Fraction(2) ** (exponent - 150) % 4
        for bits in (26, 54):
            part = Fraction(int(rest * 2**bits), 2**bits)
            rows.append(float(part))
            rest -= part
        rows.append(float(rest))
    return struct.pack(f"<{len(rows)}d", *rows)


# 2/pi times 2^256
_TWO_OVER_PI_DIGITS = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561
