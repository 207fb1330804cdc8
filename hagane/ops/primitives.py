"""The pointwise functions that `Fn` may name, with their NumPy meaning: what every code generator offers.

Floats are computed in the precision of the arrays given (float64 in references); integers wrap around.
Composed activations are written in terms of these, so nothing else needs an implementation per target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import InternalError
from hagane.ir.graph import Array

Pointwise = Callable[..., Array]

# Largest finite value of the float types to which casts saturate; infinities saturate too.
SATURATING = {
    DType.F8E4M3: 448.0,
    DType.F8E5M2: 57344.0,
    DType.F8E4M3FNUZ: 240.0,
    DType.F8E5M2FNUZ: 57344.0,
    DType.F4E2M1: 6.0,
}


def _erf(x: Array) -> Array:
    wide = np.asarray(x, np.float64)
    values = np.fromiter(map(math.erf, wide.ravel().tolist()), np.float64, wide.size)
    return values.reshape(wide.shape).astype(x.dtype)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(x.dtype.type(0), x))


def _div(a: Array, b: Array) -> Array:
    """Integers truncate towards zero, as C does; x / 0 is undefined for them (0 here)."""
    if np.result_type(a, b).kind == "f":
        return np.asarray(a / b)
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = a // safe
    wrong = (quotient * safe != a) & ((a < 0) != (safe < 0))
    return np.asarray(np.where(b == 0, np.zeros_like(quotient), quotient + wrong)).astype(a.dtype)


def _pow(a: Array, b: Array) -> Array:
    """The result has the base's type; negative integer exponents go through float64."""
    if a.dtype.kind == "f":
        return np.asarray(np.power(a, b.astype(np.float64) if b.dtype.kind != "f" else b)).astype(a.dtype)
    if b.dtype.kind != "f" and not np.any(b < 0):
        return np.asarray(np.power(a, b.astype(a.dtype)))
    return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)


def _reciprocal(x: Array) -> Array:
    return np.asarray(1 / x)


def _rsqrt(x: Array) -> Array:
    return np.asarray(1 / np.sqrt(x))


def _shift(function: Callable[..., Any]) -> Pointwise:
    """Shifts by the element width or more give zero, as a hardware shift does not."""

    def shift(a: Array, b: Array) -> Array:
        bits = a.dtype.itemsize * 8
        amount = b.astype(np.int64)
        shifted = function(a, np.clip(amount, 0, bits - 1).astype(a.dtype))
        return np.asarray(np.where(amount >= bits, np.zeros_like(shifted), shifted)).astype(a.dtype)

    return shift


NUMPY: dict[str, Pointwise] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _div, "pow": _pow,
    "mod": np.mod, "fmod": np.fmod, "min": np.minimum, "max": np.maximum,
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "reciprocal": _reciprocal,
    "sqrt": np.sqrt, "rsqrt": _rsqrt, "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p,
    "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": _erf, "sigmoid": _sigmoid, "softplus": _softplus,
    "isnan": np.isnan, "isinf_pos": np.isposinf, "isinf_neg": np.isneginf,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not,
    "bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor, "bit_not": np.invert,
    "shift_left": _shift(np.left_shift), "shift_right": _shift(np.right_shift),
}  # fmt: skip

PRIMITIVES = frozenset({*NUMPY, "cast"})
"""All names that a `Fn` may have. `cast` takes its target from the `Fn`'s dtype: see `cast_array`."""

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf_pos", "isinf_neg"})
"""Primitives whose result is bool whatever their arguments are."""


def apply(name: str, *args: Array, dtype: DType | None = None) -> Array:
    """The primitive on arrays, with NumPy's broadcasting; dtype is the target of a cast."""
    if name == "cast":
        if dtype is None:
            raise InternalError("a cast needs a target")
        return cast_array(args[0], dtype)
    with np.errstate(all="ignore"):
        return np.asarray(NUMPY[name](*(np.asarray(a) for a in args)))


def cast_array(x: Array, to: DType) -> Array:
    """x in another element type, rounded to it.

    Floats to integers truncate towards zero, then wrap around (NaN and what an int64 can't hold: undefined).
    Integers wrap around; anything to bool is != 0; float8 and float4 saturate.
    """
    with np.errstate(all="ignore"):
        if to is DType.BOOL:
            return np.asarray(x != 0)
        if to.is_int and x.dtype.kind == "f":
            whole = np.trunc(np.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0))
            wide = np.uint64 if to is DType.U64 else np.int64
            return _wrap_integers(
                np.where(whole < 0, whole.astype(np.int64).astype(wide), whole.astype(wide)), to
            )
        if to.is_int:
            return _wrap_integers(x, to)
        limit = SATURATING.get(to)
        if limit is not None:
            x = np.clip(np.asarray(x, np.float64), -limit, limit)
        return np.asarray(x).astype(to.np)


def _wrap_integers(x: Array, to: DType) -> Array:
    if to.bits >= 8:
        return x.astype(to.np)
    low = x.astype(np.int64) & 15
    if to.is_signed:
        low = np.where(low >= 8, low - 16, low)
    return low.astype(np.int8).astype(to.np)
