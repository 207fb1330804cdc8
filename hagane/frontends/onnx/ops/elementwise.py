"""Element by element: arithmetic, comparisons, logic, bits, casts, Clip, Where, and Sum, Mean, Max, Min."""

from __future__ import annotations

from functools import reduce

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.registry import converter
from hagane.frontends.onnx.tensors import dtype_of
from hagane.ir.graph import Value

UNARY = {
    "Neg": "neg", "Abs": "abs", "Sign": "sign", "Reciprocal": "reciprocal", "Sqrt": "sqrt", "Exp": "exp",
    "Log": "log", "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sin": "sin", "Cos": "cos",
    "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh",
    "Tanh": "tanh",
    "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf", "IsNaN": "isnan", "Not": "not",
    "BitwiseNot": "bit_not",
}  # fmt: skip
BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Equal": "eq", "Less": "lt", "Greater": "gt",
    "LessOrEqual": "le", "GreaterOrEqual": "ge", "And": "and", "Or": "or", "Xor": "xor",
    "BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor",
}  # fmt: skip
VARIADIC = {"Sum": "add", "Max": "max", "Min": "min"}
# rounding leaves integers as they are; the ops exist for floats only
_FLOAT_ONLY = {"Floor", "Ceil", "Round"}


@converter(*UNARY)
def unary(ctx: NodeContext) -> Value:
    """Ops of one operand that have an IR op of their own."""
    ctx.expect_inputs(1, 1)
    x = ctx.input(0)
    if ctx.op_type in _FLOAT_ONLY and not x.dtype.is_float:
        raise ModelError(f"{ctx.op_type} takes floats, not {x.dtype}")
    return ctx.op(UNARY[ctx.op_type], x)


@converter(*BINARY, since=7)
def binary(ctx: NodeContext) -> Value:
    """Ops of two operands under NumPy's broadcasting."""
    ctx.expect_inputs(2, 2)
    return ctx.op(BINARY[ctx.op_type], ctx.input(0), ctx.input(1))


@converter("Pow", since=7)
def pow(ctx: NodeContext) -> Value:
    """The result has the base's type."""
    ctx.expect_inputs(2, 2)
    return ctx.op("pow", ctx.input(0), ctx.input(1))


@converter("Mod")
def mod(ctx: NodeContext) -> Value:
    """fmod=1: the sign of the dividend, as C's fmod; else the sign of the divisor."""
    fmod = ctx.attrs.flag("fmod", False)
    return ctx.op("fmod" if fmod else "mod", ctx.input(0), ctx.input(1))


@converter("BitShift")
def bit_shift(ctx: NodeContext) -> Value:
    """direction is LEFT or RIGHT."""
    direction = ctx.attrs.choice("direction", "", ("LEFT", "RIGHT"))
    x, amount = ctx.input(0), ctx.input(1)
    if x.dtype.is_signed:  # a negative amount counts as one beyond the width; the sign fills from the left
        last = ctx.scalar_like(amount, x.dtype.bits - 1 if direction == "RIGHT" else x.dtype.bits)
        negative = ctx.op("lt", amount, ctx.scalar_like(amount, 0))
        amount = ctx.op("where", negative, last, ctx.op("min", amount, last))
    return ctx.op(f"shift_{direction.lower()}", x, amount)


@converter(*VARIADIC, since=6)
def variadic(ctx: NodeContext) -> Value:
    """One or more operands, combined from the left."""
    if not ctx.num_inputs:
        raise ModelError(f"{ctx.op_type} needs at least one input")
    result = reduce(lambda a, b: ctx.op(VARIADIC[ctx.op_type], a, b), ctx.inputs)
    return result if ctx.num_inputs > 1 else ctx.op("identity", result)


@converter("Mean", since=6)
def mean(ctx: NodeContext) -> Value:
    """The mean of one or more operands."""
    total = variadic_sum(ctx)
    return ctx.op("mul", total, ctx.scalar_like(total, 1 / ctx.num_inputs))


def variadic_sum(ctx: NodeContext) -> Value:
    """The sum of all inputs."""
    if not ctx.num_inputs:
        raise ModelError(f"{ctx.op_type} needs at least one input")
    return reduce(lambda a, b: ctx.op("add", a, b), ctx.inputs)


@converter("Where")
def where(ctx: NodeContext) -> Value:
    """The first operand chooses between the others."""
    ctx.expect_inputs(3, 3)
    return ctx.op("where", *ctx.inputs)


@converter("IsInf")
def isinf(ctx: NodeContext) -> Value:
    """Either sign can be left out."""
    negative, positive = ctx.attrs.flag("detect_negative", True), ctx.attrs.flag("detect_positive", True)
    return ctx.op("isinf", ctx.input(0), positive=positive, negative=negative)


@converter("Clip")
def clip_attributes(ctx: NodeContext) -> Value:
    """Before opset 11 the bounds are attributes."""
    lo, hi = ctx.attrs.optional_float("min"), ctx.attrs.optional_float("max")
    return clip_between(ctx, ctx.input(0), lo, hi)


@converter("Clip", since=11)
def clip(ctx: NodeContext) -> Value:
    """Bounds are optional scalars; where lo > hi, hi wins."""
    x, lo, hi = ctx.input(0), ctx.optional(1), ctx.optional(2)
    fixed = [None if b is None else ctx.array_of(b) for b in (lo, hi)]
    known = all(b is None or (a is not None and a.size == 1) for a, b in zip(fixed, (lo, hi), strict=True))
    if known and x.dtype.is_float:
        bounds = [None if a is None else float(a.reshape(())) for a in fixed]
        return clip_between(ctx, x, *bounds)
    if lo is not None:
        x = ctx.op("max", x, ctx.emit.reshape(lo, ()) if lo.static_shape == (1,) else lo)
    if hi is not None:
        x = ctx.op("min", x, ctx.emit.reshape(hi, ()) if hi.static_shape == (1,) else hi)
    return x if x is not ctx.input(0) else ctx.op("identity", x)


def clip_between(ctx: NodeContext, x: Value, lo: float | None, hi: float | None) -> Value:
    """x clipped to constant bounds, either of which may be absent."""
    if lo is None and hi is None:
        return x
    return ctx.op("clip", x, lo=float("-inf") if lo is None else lo, hi=float("inf") if hi is None else hi)


@converter("Cast")
def cast(ctx: NodeContext) -> Value:
    """saturate only concerns float8 targets."""
    to = dtype_of(ctx.attrs.integer("to"), "the target of Cast")
    return cast_to(ctx, ctx.input(0), to)


@converter("CastLike")
def cast_like(ctx: NodeContext) -> Value:
    """The target is another input's type."""
    return cast_to(ctx, ctx.input(0), ctx.input(1).dtype)


def cast_to(ctx: NodeContext, x: Value, to: DType) -> Value:
    """x as another type. Raises: ModelError where the conversion isn't offered."""
    saturate = ctx.attrs.flag("saturate", True)
    ctx.attrs.ignore("round_mode")  # only concerns float8e8m0
    if DType.STRING in (x.dtype, to) and x.dtype is not to:
        raise ModelError(f"Cast from {x.dtype} to {to} is not supported: strings stay on the host")
    result = ctx.emit.cast(x, to)
    if saturate or to not in OVERFLOW or not x.dtype.is_float:
        return result
    limit, ties_overflow, infinite = OVERFLOW[to]
    over = ctx.op("ge" if ties_overflow else "gt", ctx.op("abs", x), ctx.scalar_like(x, limit))
    lost = ctx.emit.scalar(float("inf") if infinite else float("nan"), to)
    if infinite:
        negative = ctx.op("lt", x, ctx.scalar_like(x, 0))
        lost = ctx.op("where", negative, ctx.emit.scalar(float("-inf"), to), lost)
    return ctx.op("where", over, lost, result)


# Where a cast to float8 overflows without saturation: the value midway between the largest number and what
# would be next, whether that value itself overflows, and whether the result is infinite rather than NaN.
OVERFLOW = {
    DType.F8E4M3: (464.0, False, False),
    DType.F8E4M3FNUZ: (248.0, True, False),
    DType.F8E5M2: (61440.0, True, True),
    DType.F8E5M2FNUZ: (61440.0, True, False),
}
