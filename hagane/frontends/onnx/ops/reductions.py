"""Reductions over axes, ArgMax and ArgMin, CumSum and CumProd."""

from __future__ import annotations

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Value

DIRECT = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
}


def reduced_axes(ctx: NodeContext, x: Value) -> tuple[int, ...] | None:
    """The axes to reduce; None if nothing is reduced."""
    since = 13 if ctx.op_type == "ReduceSum" else 18
    noop = ctx.attrs.flag("noop_with_empty_axes", False) if ctx.opset >= since else False
    if ctx.opset < since:
        given = ctx.attrs.ints("axes")
    else:
        given = ctx.known_ints(1, "axes") if ctx.optional(1) is not None else None
    if not given:
        return None if noop else tuple(range(x.rank))
    return ctx.axes(given, x.rank)


def reduce(ctx: NodeContext, op: str, x: Value, axes: tuple[int, ...] | None, keepdims: bool) -> Value:
    """x itself where nothing is reduced."""
    return x if axes is None else ctx.emit.reduce(op, x, axes, keepdims)


@converter(*DIRECT)
def direct(ctx: NodeContext) -> Value:
    """Those with an IR op of their own."""
    x, keepdims = ctx.input(0), ctx.attrs.flag("keepdims", True)
    axes = reduced_axes(ctx, x)
    return reduce(ctx, DIRECT[ctx.op_type], x, axes, keepdims)


@converter("ReduceL1")
def l1(ctx: NodeContext) -> Value:
    """The sum of magnitudes."""
    x, keepdims = ctx.input(0), ctx.attrs.flag("keepdims", True)
    return reduce(ctx, "sum", ctx.op("abs", x), reduced_axes(ctx, x), keepdims)


@converter("ReduceSumSquare")
def sum_square(ctx: NodeContext) -> Value:
    """The sum of squares."""
    x, keepdims = ctx.input(0), ctx.attrs.flag("keepdims", True)
    return reduce(ctx, "sum", ctx.op("mul", x, x), reduced_axes(ctx, x), keepdims)


@converter("ReduceL2")
def root_of_squares(ctx: NodeContext) -> Value:
    """The root of the sum of squares."""
    x, keepdims = _floats(ctx), ctx.attrs.flag("keepdims", True)
    total = reduce(ctx, "sum", ctx.op("mul", x, x), reduced_axes(ctx, x), keepdims)
    return _as_given(ctx, ctx.op("sqrt", total))


@converter("ReduceLogSum")
def log_sum(ctx: NodeContext) -> Value:
    """The logarithm of the sum."""
    x, keepdims = _floats(ctx), ctx.attrs.flag("keepdims", True)
    return _as_given(ctx, ctx.op("log", reduce(ctx, "sum", x, reduced_axes(ctx, x), keepdims)))


def _floats(ctx: NodeContext) -> Value:
    """The input; integers in f64, as roots and logarithms are taken of them."""
    x = ctx.input(0)
    return ctx.op("cast", x, to=DType.F64) if x.dtype.is_int else x


def _as_given(ctx: NodeContext, result: Value) -> Value:
    """The result in the input's type: of integers the part before the point."""
    dtype = ctx.input(0).dtype
    return result if result.dtype is dtype else ctx.op("cast", result, to=dtype)


@converter("ReduceLogSumExp")
def log_sum_exp(ctx: NodeContext) -> Value:
    """The largest element is taken out first, so that no exponential overflows."""
    x, keepdims = _floats(ctx), ctx.attrs.flag("keepdims", True)
    axes = reduced_axes(ctx, x)
    if axes is None or not axes:
        return ctx.op("identity", ctx.input(0))
    top = ctx.emit.reduce("max", x, axes, keepdims=True)
    infinite = ctx.op("isinf", top, positive=True, negative=True)
    shift = ctx.op("where", infinite, ctx.scalar_like(x, 0), top)
    total = ctx.emit.reduce("sum", ctx.op("exp", ctx.op("sub", x, shift)), axes, keepdims=True)
    result = ctx.op("add", ctx.op("log", total), shift)
    return _as_given(ctx, result if keepdims else ctx.emit.squeeze(result, axes))


@converter("ArgMax", "ArgMin")
def arg_extremum(ctx: NodeContext) -> Value:
    """The first position of the extremum, or the last one with select_last_index."""
    x = ctx.input(0)
    number = ctx.attrs.integer("axis", 0)
    return ctx.op(
        ctx.op_type.lower(),
        x,
        axis=ctx.axis(number, x.rank),
        keepdims=ctx.attrs.flag("keepdims", True),
        select_last=ctx.attrs.flag("select_last_index", False),
    )


@converter("CumSum", "CumProd")
def cumulative(ctx: NodeContext) -> Value:
    """Sums of all elements up to each one; exclusive leaves that one out."""
    x = ctx.input(0)
    axes = ctx.known_ints(1, "axis")
    if len(axes) != 1:
        raise ModelError(f"the axis of {ctx.op_type} should be one number")
    return ctx.op(
        ctx.op_type.lower(),
        x,
        axis=ctx.axis(axes[0], x.rank),
        exclusive=ctx.attrs.flag("exclusive", False),
        reverse=ctx.attrs.flag("reverse", False),
    )
