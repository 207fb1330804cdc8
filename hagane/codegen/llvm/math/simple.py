"""Functions that are one instruction or a few."""

from __future__ import annotations

import math

from hagane.codegen.llvm.types import i1
from hagane.codegen.llvm.value import Value


def sqrt(x: Value) -> Value:
    """The square root, correctly rounded."""
    return x.f.sqrt(x)


def reciprocal(x: Value) -> Value:
    """1 / x, correctly rounded."""
    return 1.0 / x


def round_half_even(x: Value) -> Value:
    """The nearest integer, ties to even."""
    return x.f.round_half_even(x)


def sign(x: Value) -> Value:
    """-1, 0 or 1; NaN for NaN. Integers are signed."""
    f = x.f
    if x.type.is_int:
        return f.cast(x.gt(0), x.type.element) - f.cast(x.lt(0), x.type.element)
    return f.select(f.abs(x).gt(0.0), f.copysign(1.0, x), x + 0.0)


def is_nan(x: Value) -> Value:
    """The mask of NaNs."""
    return x.f.is_nan(x)


def is_inf(x: Value, negative: bool = True, positive: bool = True) -> Value:
    """The mask of infinities of the signs asked for."""
    if negative and positive:
        return x.f.abs(x).eq(math.inf)
    if negative or positive:
        return x.eq(math.inf if positive else -math.inf)
    return x.f.const(i1.with_lanes(x.type.lanes), 0)
