"""Normalisations: batch, layer, instance, group, RMS, Lp, local response, mean and variance."""

from __future__ import annotations

from collections.abc import Iterable

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import const
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Value


@converter("BatchNormalization", since=7)
def batch_norm(ctx: NodeContext) -> list[Value]:
    """Inference uses the stored mean and variance; training_mode those of the batch."""
    x = ctx.input(0)
    ctx.rank_at_least(x, 2)
    scale, bias, mean, variance = (ctx.input(k) for k in range(1, 5))
    eps, momentum = ctx.attrs.number("epsilon", 1e-5), ctx.attrs.number("momentum", 0.9)
    if not ctx.attrs.flag("spatial", True):
        raise ModelError("BatchNormalization with spatial=0 is not supported")
    training = ctx.attrs.flag("training_mode", False)
    if not training:
        parts = [ctx.emit.cast(v, x.dtype) for v in (scale, bias, mean, variance)]
        result = ctx.op("batch_norm", x, *parts, eps=eps)
        return [result] if ctx.num_outputs == 1 else [result, mean, variance]
    axes = [k for k in range(x.rank) if k != 1]
    current_mean, centred = centre(ctx, x, axes)
    current_variance = ctx.emit.reduce("mean", ctx.op("mul", centred, centred), axes, keepdims=True)
    flat = [
        ctx.emit.cast(ctx.emit.reshape(v, mean.shape), mean.dtype) for v in (current_mean, current_variance)
    ]
    parts = [ctx.emit.cast(v, x.dtype) for v in (scale, bias, *flat)]
    running = [
        ctx.op(
            "add",
            ctx.op("mul", old, ctx.scalar_like(old, momentum)),
            ctx.op("mul", new, ctx.scalar_like(new, 1 - momentum)),
        )
        for old, new in zip((mean, variance), flat, strict=True)
    ]
    return [ctx.op("batch_norm", x, *parts, eps=eps), *running]


def centre(ctx: NodeContext, x: Value, axes: Iterable[int]) -> tuple[Value, Value]:
    """The mean over axes, which are kept, and x minus it."""
    mean = ctx.emit.reduce("mean", x, axes, keepdims=True)
    return mean, ctx.op("sub", x, mean)


@converter("InstanceNormalization")
def instance_norm(ctx: NodeContext) -> Value:
    """Each channel of each sample over its own plane."""
    ctx.expect_inputs(3, 3)
    ctx.rank_at_least(ctx.input(0), 3)
    return ctx.op("instance_norm", *ctx.inputs, eps=ctx.attrs.number("epsilon", 1e-5))


@converter("LayerNormalization", since=17)
def layer_norm(ctx: NodeContext) -> list[Value]:
    """Over all axes from `axis` on; mean and inverse deviation only if they are asked for."""
    x, eps = ctx.input(0), ctx.attrs.number("epsilon", 1e-5)
    axis = ctx.axis(ctx.attrs.integer("axis", -1), x.rank)
    stash = ctx.attrs.integer("stash_type", 1)
    normalised = x.shape[axis:]
    scale = shaped(ctx, ctx.input(1), x, axis)
    bias = ctx.optional(2)
    result = ctx.op(
        "layer_norm", x, scale, None if bias is None else shaped(ctx, bias, x, axis), axis=axis, eps=eps
    )
    if ctx.num_outputs == 1 or not normalised:
        return [result]
    wide = ctx.emit.cast(x, DType.F32) if stash == 1 and x.dtype is not DType.F64 else x
    axes = range(axis, x.rank)
    mean, centred = centre(ctx, wide, axes)
    variance = ctx.emit.reduce("mean", ctx.op("mul", centred, centred), axes, keepdims=True)
    deviation = ctx.op("sqrt", ctx.op("add", variance, ctx.scalar_like(variance, eps)))
    return [result, mean, ctx.op("reciprocal", deviation)]


def shaped(ctx: NodeContext, parameter: Value, x: Value, axis: int) -> Value:
    """A scale or bias with exactly the dims that are normalised; it may broadcast to them in the file."""
    wanted = x.shape[axis:]
    if parameter.shape == wanted:
        return parameter
    if parameter.rank > len(wanted):
        extra = parameter.rank - len(wanted)
        if any(d != 1 for d in parameter.shape[:extra]):
            raise ShapeError(f"{parameter.type} doesn't broadcast to the normalised dims of {x.type}")
        parameter = ctx.emit.reshape(parameter, parameter.shape[extra:])
    return ctx.emit.broadcast_to(parameter, wanted)


@converter("RMSNormalization", since=23)
def rms_norm(ctx: NodeContext) -> Value:
    """x over its root mean square, over all axes from `axis` on."""
    x, eps = ctx.input(0), ctx.attrs.number("epsilon", 1e-5)
    axis = ctx.axis(ctx.attrs.integer("axis", -1), x.rank)
    ctx.attrs.ignore("stash_type")  # sums are always accumulated in at least f32
    scale = ctx.emit.cast(shaped(ctx, ctx.input(1), x, axis), x.dtype)
    return ctx.op("rms_norm", x, scale, axis=axis, eps=eps)


@converter("GroupNormalization", since=18)
def group_norm_per_group(ctx: NodeContext) -> Value:
    """In opset 18 scale and bias have one number per group."""
    x, groups = ctx.input(0), _groups(ctx)
    per_group = x.shape[1] // groups
    parts = []
    for parameter in (ctx.input(1), ctx.input(2)):
        wide = ctx.emit.broadcast_to(ctx.emit.reshape(parameter, (groups, 1)), (const(groups), per_group))
        parts.append(ctx.emit.reshape(wide, (x.shape[1],)))
    return ctx.op("group_norm", x, *parts, groups=groups, eps=ctx.attrs.number("epsilon", 1e-5))


@converter("GroupNormalization", since=21)
def group_norm(ctx: NodeContext) -> Value:
    """Scale and bias have one number per channel."""
    ctx.attrs.ignore("stash_type")
    x, groups = ctx.input(0), _groups(ctx)
    return ctx.op(
        "group_norm", x, ctx.input(1), ctx.input(2), groups=groups, eps=ctx.attrs.number("epsilon", 1e-5)
    )


def _groups(ctx: NodeContext) -> int:
    x, groups = ctx.input(0), ctx.attrs.integer("num_groups")
    ctx.rank_at_least(x, 3)
    if groups < 1 or (x.shape[1].is_const and x.shape[1].value % groups):
        raise ModelError(f"num_groups={groups} doesn't divide the {x.shape[1]} channels")
    return groups


@converter("LpNormalization")
def lp_norm(ctx: NodeContext) -> Value:
    """x over its 1- or 2-norm along an axis."""
    x, p = ctx.input(0), ctx.attrs.integer("p", 2)
    return ctx.op("lp_norm", x, axis=ctx.axis(ctx.attrs.integer("axis", -1), x.rank), p=p)


@converter("LRN")
def lrn(ctx: NodeContext) -> Value:
    """Local response normalisation across channels."""
    return ctx.op(
        "lrn",
        ctx.input(0),
        size=ctx.attrs.integer("size"),
        alpha=ctx.attrs.number("alpha", 1e-4),
        beta=ctx.attrs.number("beta", 0.75),
        bias=ctx.attrs.number("bias", 1.0),
    )


@converter("MeanVarianceNormalization", since=9)
def mean_variance(ctx: NodeContext) -> Value:
    """(x - mean) / (deviation + 1e-9) over axes, those of a plane and the batch by default."""
    x = ctx.input(0)
    axes = ctx.axes(ctx.attrs.ints("axes") or (0, 2, 3), x.rank)
    _, centred = centre(ctx, x, axes)
    deviation = ctx.op("sqrt", ctx.emit.reduce("mean", ctx.op("mul", centred, centred), axes, keepdims=True))
    return ctx.op("div", centred, ctx.op("add", deviation, ctx.scalar_like(x, 1e-9)))
