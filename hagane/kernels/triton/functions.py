"""Pointwise functions by name, as Triton text over names of register values.

Operators that Triton approximates (division and square root in f32) are asked for correctly rounded;
transcendental functions are those of NVIDIA's libdevice, which keep to 1 or 2 ulp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hagane.core.dtypes import DType
from hagane.core.errors import InternalError
from hagane.ir.scalar import Fn
from hagane.kernels.triton.types import compute_type, memory_type

Let = Callable[[str], str]
"""let(expression) names an intermediate value."""

_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_LOGIC = {"and": "&", "or": "|", "xor": "^", "bit_and": "&", "bit_or": "|", "bit_xor": "^"}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*"}
_LIBDEVICE = (
    "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "erf", "floor", "ceil", "fmod",
)  # fmt: skip
_NAN = "propagate_nan=tl.PropagateNan.ALL"
# the largest f64 below 2^63: what casts of floats to integers saturate at
_TOP = "9.223372036854774784e18"


def apply_function(let: Let, scalar: Fn, args: Sequence[str]) -> str:
    """The function on register values, as an expression. Raises: InternalError for an unknown function."""
    name, source = scalar.name, scalar.args[0].dtype
    if name == "cast":
        return _cast(let, args[0], source, scalar.dtype)
    if name in _COMPARE:
        if source is DType.BOOL:
            args = [f"{a}.to(tl.int8)" for a in args]
        return f"{args[0]} {_COMPARE[name]} {args[1]}"
    if name in _LOGIC:
        return f"{args[0]} {_LOGIC[name]} {args[1]}"
    if name == "not":
        return f"{args[0]} == 0"
    if name == "bit_not":
        return f"~{args[0]}"
    if name in ("shift_left", "shift_right"):
        return _shift(name, source, *args)
    if name in _ARITHMETIC:
        return f"{args[0]} {_ARITHMETIC[name]} {args[1]}"
    result = _float(let, scalar, args) if source.is_float else _integer(let, scalar, args)
    if result is None:
        raise InternalError(f"no GPU code for the function {name!r} on {source}")
    return result


def _shift(name: str, dtype: DType, value: str, count: str) -> str:
    """Shifts by the width or more give 0, or nothing but the sign; the hardware's don't."""
    below = f"({count} >= 0) & ({count} < {dtype.bits})" if dtype.is_signed else f"{count} < {dtype.bits}"
    if name == "shift_left":
        return f"tl.where({below}, {value} << {count}, {value} - {value})"
    if dtype.is_signed:
        return f"{value} >> tl.where({below}, {count}, {count} - {count} + {dtype.bits - 1})"
    return f"tl.where({below}, {value} >> {count}, {value} - {value})"


def _float(let: Let, scalar: Fn, args: Sequence[str]) -> str | None:
    name, a = scalar.name, args[0]
    wide = scalar.args[0].dtype is DType.F64
    b = args[1] if len(args) > 1 else ""
    one = f"tl.full([], 1.0, {compute_type(scalar.args[0].dtype)})"
    match name:
        case "div":
            return _divide(a, b, wide)
        case "pow":
            return f"libdevice.pow({a}, {b}.to({a}.dtype))"
        case "mod":
            rest = let(f"libdevice.fmod({a}, {b})")
            return f"tl.where(({rest} != 0) & (({rest} < 0) != ({b} < 0)), {rest} + {b}, {rest})"
        case "min":
            return f"tl.minimum({a}, {b}, {_NAN})"
        case "max":
            return f"tl.maximum({a}, {b}, {_NAN})"
        case "neg":
            return f"-{a}"
        case "abs":
            return f"tl.abs({a})"
        case "sign":
            return f"tl.where({a} > 0, {one}, tl.where({a} < 0, -{one}, {a}))"
        case "reciprocal":
            return _divide(one, a, wide)
        case "sqrt":
            return _root(a, wide)
        case "rsqrt":
            return _divide(one, let(_root(a, wide)), wide)
        case "round":
            return f"libdevice.rint({a})"
        case "sigmoid":
            return _divide(one, let(f"1.0 + libdevice.exp(-{a})"), wide)
        case "softplus":
            return f"tl.maximum({a}, 0.0, {_NAN}) + libdevice.log1p(libdevice.exp(-tl.abs({a})))"
        case "isnan":
            return f"{a} != {a}"
        case "isinf_pos":
            return f'{a} == float("inf")'
        case "isinf_neg":
            return f'{a} == float("-inf")'
    return f"libdevice.{name}({', '.join(args)})" if name in _LIBDEVICE else None


def _divide(a: str, b: str, wide: bool) -> str:
    return f"{a} / {b}" if wide else f"tl.div_rn({a}, {b})"


def _root(a: str, wide: bool) -> str:
    return f"tl.sqrt({a})" if wide else f"tl.sqrt_rn({a})"


def _integer(let: Let, scalar: Fn, args: Sequence[str]) -> str | None:
    name, a = scalar.name, args[0]
    dtype = scalar.args[0].dtype
    b = args[1] if len(args) > 1 else ""
    match name:
        case "div":
            return f"{a} // {_divisor(let, b)}"
        case "fmod":
            return f"{a} % {_divisor(let, b)}"
        case "mod":
            safe = _divisor(let, b)
            rest = let(f"{a} % {safe}")
            if not dtype.is_signed:
                return rest
            return f"tl.where(({rest} != 0) & (({rest} < 0) != ({safe} < 0)), {rest} + {safe}, {rest})"
        case "min":
            return f"tl.minimum({a}, {b})"
        case "max":
            return f"tl.maximum({a}, {b})"
        case "neg":
            return f"{a} - {a} - {a}"
        case "abs":
            return f"tl.where({a} < 0, {a} - {a} - {a}, {a})" if dtype.is_signed else a
        case "sign":
            positive = f"tl.where({a} > 0, 1, 0)"
            return f"({positive} - tl.where({a} < 0, 1, 0)).to({memory_type(dtype)})"
        case "pow":
            # pow is exact to an ulp only: 8 ** 7 comes out below 2097152
            power = let(f"libdevice.rint(libdevice.pow({a}.to(tl.float64), {b}.to(tl.float64)))")
            return _cast(let, power, DType.F64, dtype)
        case "floor" | "ceil" | "round":
            return a
    return None


def _divisor(let: Let, b: str) -> str:
    """Division by 0 is undefined for integers, but must not fault."""
    return let(f"tl.where({b} == 0, {b} - {b} + 1, {b})")


def _cast(let: Let, value: str, source: DType, target: DType) -> str:
    """Between dtypes, through the register types; a cast to a 16-bit float rounds to it."""
    if target is DType.BOOL:
        return f"{value} != 0"
    if source.is_float and target.is_int:
        # through i64, which every narrower type wraps from; what it can't hold saturates, NaN gives 0
        wide = let(f"{value}.to(tl.float64)")
        inside = let(f"tl.minimum(tl.maximum({wide}, -9.223372036854775808e18), {_TOP})")
        return f"tl.where({wide} != {wide}, 0.0, {inside}).to(tl.int64).to({memory_type(target)})"
    if target in (DType.F16, DType.BF16):
        return f"{value}.to({memory_type(target)}).to(tl.float32)"
    return f"{value}.to({memory_type(target)})"
