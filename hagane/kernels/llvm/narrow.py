"""Numbers of 4 bits, and floats of 8: bytes in memory, wider types in registers.

Floats are f32 in registers and integers i8. Each element takes a byte in memory, as in NumPy; of a 4-bit
number only the low bits count.
"""

from __future__ import annotations

from dataclasses import dataclass

from hagane.codegen.llvm import Function, Type, Value
from hagane.core.dtypes import DType
from hagane.ops.primitives import SATURATING

_MANTISSA, _BIAS = 23, 127  # of f32


@dataclass(frozen=True)
class _Format:
    """mantissa: its bits. infinity, nan: codes without the sign. one_zero: a sign alone is the only NaN."""

    mantissa: int
    bias: int
    infinity: int | None = None
    nan: int | None = None
    one_zero: bool = False


_FLOATS = {
    DType.F8E4M3: _Format(3, 7, nan=0x7F),
    DType.F8E5M2: _Format(2, 15, infinity=0x7C, nan=0x7E),
    DType.F8E4M3FNUZ: _Format(3, 8, one_zero=True),
    DType.F8E5M2FNUZ: _Format(2, 16, one_zero=True),
    DType.F4E2M1: _Format(1, 1),
}
_INTEGERS = (DType.I4, DType.U4)

REGISTERS = dict.fromkeys(_FLOATS, "f32") | dict.fromkeys(_INTEGERS, "i8")
"""The kind of register for each of these types."""


def decode(f: Function, stored: Value, dtype: DType) -> Value:
    """The register value of bytes in memory."""
    if dtype in _INTEGERS:
        return wrap(f, stored, dtype)
    form, sign_bit = _FLOATS[dtype], 1 << (dtype.bits - 1)
    wide = f.cast(stored, "i32", signed=False)
    magnitude = wide & (sign_bit - 1)
    single = Type("f32", wide.type.lanes)
    normal = (magnitude << (_MANTISSA - form.mantissa)) + ((_BIAS - form.bias) << _MANTISSA)
    steps = f.cast(magnitude, "f32") * 2.0 ** (1 - form.bias - form.mantissa)
    value = f.select(magnitude.ge(1 << form.mantissa), f.bitcast(normal, single), steps)
    if form.nan is not None:
        value = f.select(magnitude.ge(form.nan), f.const(single, float("nan")), value)
    if form.infinity is not None:
        beyond = f.select(magnitude.eq(form.infinity), f.const(single, float("inf")), float("nan"))
        value = f.select(magnitude.ge(form.infinity), beyond, value)
    signed = f.bitcast(f.float_bits(value) | ((wide & sign_bit) << (32 - dtype.bits)), single)
    return f.select(wide.eq(sign_bit), f.const(single, float("nan")), signed) if form.one_zero else signed


def encode(f: Function, value: Value, dtype: DType) -> Value:
    """The bytes of register values. Floats round to nearest even and saturate.

    Infinities stay where there is a code for them; casts saturate them before (see `rounded`).
    """
    if dtype in _INTEGERS:
        return value & ((1 << dtype.bits) - 1)
    form, sign_bit = _FLOATS[dtype], 1 << (dtype.bits - 1)
    sign = (f.float_bits(value) >> (32 - dtype.bits)) & sign_bit
    size = f.fmin(f.abs(value), SATURATING[dtype])
    drop = _MANTISSA - form.mantissa
    bits = f.float_bits(size)
    rounded = (bits + ((1 << (drop - 1)) - 1) + ((bits >> drop) & 1)) >> drop
    normal = rounded - ((_BIAS - form.bias) << form.mantissa)
    steps = f.round_half_even(size * 2.0 ** (form.bias - 1 + form.mantissa))
    code = f.select(size.lt(2.0 ** (1 - form.bias)), f.cast(steps, "i32"), normal)
    if form.infinity is not None:
        code = f.select(f.abs(value).eq(float("inf")), f.const(code.type, form.infinity), code)
    code = f.select(f.is_nan(value), f.const(code.type, form.nan or 0), code)
    if form.one_zero:
        code = f.select(code.eq(0), code, code | sign)
        code = f.select(f.is_nan(value), f.const(code.type, sign_bit), code)
    else:
        code = code | sign
    return f.cast(code, "i8")


def wrap(f: Function, value: Value, dtype: DType) -> Value:
    """i8 registers wrapped around to a 4-bit integer."""
    if not dtype.is_signed:
        return value & ((1 << dtype.bits) - 1)
    unused = f.const(value.type, 8 - dtype.bits)
    return (value << unused).ashr(unused)


def rounded(f: Function, value: Value, dtype: DType) -> Value:
    """Registers that hold what the type can: floats rounded to it and saturated, integers wrapped around."""
    if dtype in _INTEGERS:
        return wrap(f, value, dtype)
    limit = SATURATING[dtype]
    return decode(f, encode(f, f.fmax(f.fmin(value, limit), -limit), dtype), dtype)
