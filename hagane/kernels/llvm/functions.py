"""Pointwise functions by name, as kernel code. Signs and rounding follow the dtype of the scalar."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hagane.codegen.llvm import Function, Value
from hagane.codegen.llvm import math as emit_math
from hagane.core.dtypes import DType
from hagane.core.errors import InternalError
from hagane.ir.scalar import Fn
from hagane.kernels.llvm import narrow

_REGISTER = {DType.F16: "f32", DType.BF16: "f32", DType.BOOL: "i1", **narrow.REGISTERS}


def apply_function(f: Function, name: str, scalar: Fn, args: Sequence[Value]) -> Value:
    """The function `name` on register values. Raises: InternalError for an unknown function."""
    values = _same_lanes(f, args)
    source = scalar.args[0].dtype
    if name == "cast":
        return _cast(f, values[0], source, scalar.dtype)
    if name in _COMPARISONS:
        signed = source.is_signed or source is DType.BOOL
        if source is DType.BOOL:
            values = [f.cast(v, "i8", signed=False) for v in values]
        return f.compare(name, values[0], values[1], signed=signed)
    if name == "shift_right" and source.is_signed:
        return _shift_right_signed(f, *values)
    if name == "pow" and source.is_float and scalar.args[1].dtype.is_int:
        values[1] = f.cast(values[1], values[0].type.kind, signed=scalar.args[1].dtype.is_signed)
    if name in _BITWISE:
        return _BITWISE[name](f, *values)
    if not source.is_float:
        result = _integer(f, name, source, values)
        return narrow.rounded(f, result, source) if source in narrow.REGISTERS else result
    if name in _FLOATS:
        return _FLOATS[name](f, *values)
    found: Callable[..., Value] | None = getattr(emit_math, name, None)
    if found is None:
        raise InternalError(f"no CPU code for the function {name!r}")
    return found(*values)


def _same_lanes(f: Function, args: Sequence[Value]) -> list[Value]:
    lanes = max(v.type.lanes for v in args)
    return [f.broadcast(v, lanes) if v.type.lanes != lanes else v for v in args]


_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")

_BITWISE: dict[str, Callable[..., Value]] = {
    "and": lambda f, a, b: a & b,
    "or": lambda f, a, b: a | b,
    "xor": lambda f, a, b: a ^ b,
    "not": lambda f, a: ~a,
    "bit_and": lambda f, a, b: a & b,
    "bit_or": lambda f, a, b: a | b,
    "bit_xor": lambda f, a, b: a ^ b,
    "bit_not": lambda f, a: ~a,
    "shift_left": lambda f, a, b: _shift(f, a << b, b),
    "shift_right": lambda f, a, b: _shift(f, a >> b, b),
}


def _shift(f: Function, shifted: Value, count: Value) -> Value:
    """Shifts by the width or more give 0, which LLVM leaves open."""
    return f.select(count.ult(count.type.bits), shifted, f.const(shifted.type, 0))


def _shift_right_signed(f: Function, value: Value, count: Value) -> Value:
    """Copies the sign in; shifts by the width or more leave nothing but the sign."""
    top = f.const(count.type, count.type.bits - 1)
    return value.ashr(f.select(count.ult(count.type.bits), count, top))


_FLOATS: dict[str, Callable[..., Value]] = {
    "add": lambda f, a, b: a + b,
    "sub": lambda f, a, b: a - b,
    "mul": lambda f, a, b: a * b,
    "div": lambda f, a, b: a / b,
    "min": lambda f, a, b: f.fmin(a, b),
    "max": lambda f, a, b: f.fmax(a, b),
    "neg": lambda f, a: f.neg(a),
    "abs": lambda f, a: f.abs(a),
    "sqrt": lambda f, a: f.sqrt(a),
    "rsqrt": lambda f, a: f.const(a.type, 1.0) / f.sqrt(a),
    "reciprocal": lambda f, a: f.const(a.type, 1.0) / a,
    "floor": lambda f, a: f.floor(a),
    "ceil": lambda f, a: f.ceil(a),
    "round": lambda f, a: f.round_half_even(a),
    "isnan": lambda f, a: f.is_nan(a),
    "isinf_pos": lambda f, a: a.eq(float("inf")),
    "isinf_neg": lambda f, a: a.eq(float("-inf")),
}


def _integer(f: Function, name: str, dtype: DType, values: list[Value]) -> Value:
    signed = dtype.is_signed
    match name:
        case "add":
            return values[0] + values[1]
        case "sub":
            return values[0] - values[1]
        case "mul":
            return values[0] * values[1]
        case "div":
            return _safe_divide(f, values, lambda a, b: a / b if signed else a // b)
        case "mod":
            return _safe_divide(f, values, f.floor_mod if signed else lambda a, b: a % b)
        case "fmod":
            return _safe_divide(f, values, lambda a, b: a.srem(b) if signed else a % b)
        case "min":
            return f.imin(values[0], values[1], signed=signed)
        case "max":
            return f.imax(values[0], values[1], signed=signed)
        case "neg":
            return f.neg(values[0])
        case "abs":
            return f.abs(values[0]) if signed else values[0]
        case "pow":
            return _integer_power(f, values[0], values[1], signed)
        case "sign":
            zero = f.const(values[0].type, 0)
            one = f.select(values[0].ne(0), f.const(values[0].type, 1), zero)
            return f.select(values[0].lt(0), f.const(values[0].type, -1), one) if signed else one
        case "floor" | "ceil" | "round":
            return values[0]
    raise InternalError(f"no CPU code for the function {name!r} on {dtype}")


def _safe_divide(f: Function, values: list[Value], divide: Callable[[Value, Value], Value]) -> Value:
    """Division that doesn't trap: by 0, and of the smallest number by -1, which ONNX leaves open."""
    a, b = values
    if b.const is not None and b.const not in (0, -1):
        return divide(a, b)
    trapping = b.eq(0) | (b.eq(-1) & a.eq(-(1 << (a.type.bits - 1))))
    return divide(a, f.select(trapping, f.const(b.type, 1), b))


def _integer_power(f: Function, base: Value, exponent: Value, signed: bool) -> Value:
    wide = f.cast(base, "f64", signed=signed)
    power = f.cast(exponent, "f64", signed=signed) if exponent.type.is_int else f.cast(exponent, "f64")
    return f.cast(emit_math.pow(wide, power), base.type.kind, signed=signed, saturate=True)


def _cast(f: Function, value: Value, source: DType, target: DType) -> Value:
    """Between dtypes, through the register types; a cast to a narrow float rounds to it."""
    kind = _REGISTER.get(target, target.value.replace("u", "i") if target.is_int else target.value)
    if target is DType.BOOL:
        return value.ne(0) if value.type.kind != "i1" else value
    if (source.is_int and target.is_float) or (source.is_int and target.is_int):
        result = f.cast(value, kind, signed=source.is_signed)
    elif target.is_int:
        # through i64, which every narrower type wraps from, as NumPy and ONNX Runtime do
        wide = f.cast(value, "i64", signed=True, saturate=True) if source.is_float else value
        result = f.cast(wide, kind, signed=source is not DType.BOOL)
    else:
        single = target in narrow.REGISTERS and value.type.kind == "f64"
        result = f.round_to_odd(value) if single else f.cast(value, kind, signed=False)
    if target in narrow.REGISTERS:
        return narrow.rounded(f, result, target)
    if target in (DType.F16, DType.BF16):
        result = f.cast(f.cast(result, target.value), "f32")
    return result
