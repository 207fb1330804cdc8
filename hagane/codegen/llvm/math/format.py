"""What f32 and f64 differ in, and the few steps that most functions share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hagane.codegen.llvm.types import Type, i32
from hagane.codegen.llvm.value import Value

Coefficients = Sequence[float]


@dataclass(frozen=True)
class Format:
    """A floating-point format. Adding magic, 1.5 * 2**mantissa_bits, leaves an integer in the low bits."""

    mantissa_bits: int
    bias: int
    magic: float
    magic_bits: int
    one_bits: int
    # ln 2 in two parts; and so that any exponent times the first is exact
    ln2: tuple[float, float]
    ln2_short: tuple[float, float]
    smallest_normal: float


SINGLE = Format(
    mantissa_bits=23,
    bias=127,
    magic=1.5 * 2**23,
    magic_bits=0x4B400000,
    one_bits=0x3F800000,
    ln2=(0.6931471824645996, -1.9046542121259336e-09),
    ln2_short=(0.693115234375, 3.194618329871446e-05),
    smallest_normal=2.0**-126,
)
DOUBLE = Format(
    mantissa_bits=52,
    bias=1023,
    magic=1.5 * 2**52,
    magic_bits=0x4338000000000000,
    one_bits=0x3FF0000000000000,
    ln2=(0.6931471805599453, 2.3190468138462996e-17),
    ln2_short=(0.693147180559663, 2.8235290563031577e-13),
    smallest_normal=2.0**-1022,
)


def format_of(x: Value) -> Format:
    """The format of a value's type. Raises: TypeError unless it is f32 or f64."""
    if x.type.kind == "f32":
        return SINGLE
    if x.type.kind == "f64":
        return DOUBLE
    raise TypeError(f"elementary functions take f32 or f64, not {x.type}; cast to f32")


def is_single(x: Value) -> bool:
    """Whether a value is of f32 rather than f64."""
    return format_of(x) is SINGLE


def polynomial(x: Value, coefficients: Coefficients) -> Value:
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule."""
    f = x.f
    result = f.const(x.type, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = f.fma(result, x, c)
    return result


def power_of_two(n_bits: Value, fmt: Format, less: int = 0) -> Value:
    """2**(n - less) of the integer n in the low bits of a sum with magic; it must be a normal number."""
    return _from_bits(
        (n_bits << fmt.mantissa_bits) + (fmt.one_bits - (less << fmt.mantissa_bits)), n_bits.type
    )


def from_bits(bits: Value) -> Value:
    """The float that has these bits."""
    return _from_bits(bits, bits.type)


def _from_bits(bits: Value, type: Type) -> Value:
    return bits.f.bitcast(bits, type.with_kind("f32" if type.kind == "i32" else "f64"))


def scale(y: Value, n: Value, n_bits: Value, offset: int = 0) -> Value:
    """y * 2**(n + offset), right also where it overflows or is denormal; n_bits is n + magic."""
    fmt = format_of(y)
    if _has_avx512(y):
        return _on_registers(_scalef, y, n + offset if offset else n)
    whole = n_bits - (fmt.magic_bits - offset)
    half = whole.ashr(1)
    first = from_bits((half + fmt.bias) << fmt.mantissa_bits)
    second = from_bits((whole - half + fmt.bias) << fmt.mantissa_bits)
    return y * first * second


def divide(a: Value, d: Value) -> Value:
    """a / d for a divisor that is far from zero and infinity, to 0.51 ulp; faster than a division on AVX-512.

    A 512-bit division occupies its unit for 16 cycles; this is four instructions for the multipliers.
    """
    if is_single(a) and _has_avx512(a):
        return _on_registers(_divide_by_reciprocal, a, d)
    return a / d


def _scalef(y: Value, n: Value) -> Value:
    f, type = y.f, y.type
    name = f"llvm.x86.avx512.mask.scalef.{'ps' if type.kind == 'f32' else 'pd'}.{8 * type.nbytes}"
    args = [y, n, f.poison(type), f.const("i16" if type.lanes == 16 else "i8", -1)]
    if type.nbytes == 64:
        args.append(f.const(i32, 4))  # round as the control register says
    return f.intrinsic(name, type, *args)


def _divide_by_reciprocal(a: Value, d: Value) -> Value:
    f, type = a.f, a.type
    mask = f.const("i16" if type.lanes == 16 else "i8", -1)
    guess = f.intrinsic(f"llvm.x86.avx512.rcp14.ps.{8 * type.nbytes}", type, d, f.poison(type), mask)
    quotient = a * guess
    return f.fma(f.fma(-d, quotient, a), guess, quotient)


def _has_avx512(x: Value) -> bool:
    """Whether AVX-512's own instructions can serve; vectors of odd lengths are left to LLVM."""
    return x.f.module.target.arch == "x86-64-v4" and x.type.lanes & (x.type.lanes - 1) == 0


def _on_registers(op: Callable[[Value, Value], Value], a: Value, b: Value) -> Value:
    """Applies op, which wants whole registers, to any power of two of lanes.

    A scalar takes the same instructions as a vector: a row's result must not depend on which of its elements
    fall into a tail.
    """
    f, type = a.f, a.type
    if type.nbytes > 64:
        half = type.lanes // 2
        low, high = (_on_registers(op, f.slice(a, at, half), f.slice(b, at, half)) for at in (0, half))
        return f.concat(low, high)
    if type.nbytes >= 16:
        return op(a, b)
    lanes = 16 // type.element_bytes
    wide = op(_widen(a, lanes), _widen(b, lanes))
    return f.slice(wide, 0, type.lanes)


def _widen(x: Value, lanes: int) -> Value:
    """More lanes, of any content."""
    f = x.f
    if not x.type.is_vector:
        return f.insert(f.poison(x.type.with_lanes(lanes)), 0, x)
    return f.shuffle(x, None, [*range(x.type.lanes), *[-1] * (lanes - x.type.lanes)])


def with_sign(magnitude: Value, x: Value) -> Value:
    """The magnitude with x's sign."""
    return x.f.copysign(magnitude, x)
