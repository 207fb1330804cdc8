"""Floating-point remainders."""

from __future__ import annotations

from hagane.codegen.llvm.math.format import is_single
from hagane.codegen.llvm.types import f64
from hagane.codegen.llvm.value import Value, Var


def fmod(x: Value, y: Value) -> Value:
    """The remainder of x / y rounded towards zero, exactly, with x's sign, as C's fmod.

    f64 calls fmod, once for each lane: an import of the program.
    """
    f = x.f
    if not is_single(x):
        return f.emit(f"frem {x.type.llvm} {x.text}, {y.text}", x.type)
    # In f64 an f32 quotient never overflows, and each trip takes 52 bits off the quotient: most values need
    # one.
    wide, divisor = f.cast(x, f64), f.abs(f.cast(y, f64))
    rest = Var(f, wide.type, wide)
    with f.while_(lambda: f.any(f.abs(rest.value).ge(divisor))):
        quotient = rest.value / divisor
        smaller = f.fma(-f.round_half_even(quotient), divisor, rest.value)
        rest.set(f.select(f.abs(rest.value).ge(divisor), smaller, rest.value))
    # rounding to nearest may have gone past zero, to the other side
    r = rest.value
    crossed = (r * wide).lt(0.0)
    r = f.select(crossed, r + f.copysign(divisor, wide), r)
    r = f.select(f.is_nan(divisor), divisor, r)
    return f.cast(f.copysign(r, wide), "f32")


def mod(x: Value, y: Value) -> Value:
    """The remainder with the divisor's sign, as Python's % and NumPy's mod."""
    f = x.f
    r = fmod(x, y)
    other_side = r.lt(0.0) ^ y.lt(0.0)
    return f.select(r.eq(0.0), f.copysign(0.0, y), f.select(other_side, r + y, r))
