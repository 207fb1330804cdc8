"""Reading and writing at positions that are data: Gather, Scatter and others, OneHot, Compress, NonZero."""

from __future__ import annotations

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import product
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Value


def indices_of(ctx: NodeContext, position: int) -> Value:
    """An input of integer positions. Raises: ModelError."""
    indices = ctx.input(position)
    if not indices.dtype.is_int:
        raise ModelError(f"the indices of {ctx.op_type} should be integers, not {indices.dtype}")
    return indices


@converter("Gather")
def gather(ctx: NodeContext) -> Value:
    """Slices of an axis; negative positions count from the back."""
    ctx.expect_inputs(2, 2)
    x, indices = ctx.input(0), indices_of(ctx, 1)
    ctx.rank_at_least(x, 1)
    axis = ctx.axis(ctx.attrs.integer("axis", 0), x.rank)
    known, extent = ctx.array_of(indices), x.shape[axis]
    if known is not None and extent.is_const:
        outside = [int(p) for p in known.reshape(-1) if not -extent.value <= p < extent.value]
        if outside:
            raise ShapeError(f"Gather reads position {outside[0]} of axis {axis} of {x.type}")
    return ctx.op("gather", x, indices, axis=axis)


@converter("GatherElements")
def gather_elements(ctx: NodeContext) -> Value:
    """One element per index."""
    ctx.expect_inputs(2, 2)
    x = ctx.input(0)
    ctx.rank_at_least(x, 1)
    axis = ctx.axis(ctx.attrs.integer("axis", 0), x.rank)
    return ctx.op("gather_elements", x, indices_of(ctx, 1), axis=axis)


@converter("GatherND")
def gather_nd(ctx: NodeContext) -> Value:
    """Slices at tuples of positions."""
    ctx.expect_inputs(2, 2)
    return ctx.op(
        "gather_nd", ctx.input(0), indices_of(ctx, 1), batch_dims=ctx.attrs.integer("batch_dims", 0)
    )


REDUCTIONS = ("none", "add", "mul", "max", "min")


@converter("ScatterElements", "Scatter")
def scatter_elements(ctx: NodeContext) -> Value:
    """Writes one element per index, combined with what is there by `reduction`."""
    ctx.expect_inputs(3, 3)
    x = ctx.input(0)
    ctx.rank_at_least(x, 1)
    axis = ctx.axis(ctx.attrs.integer("axis", 0), x.rank)
    reduction = ctx.attrs.choice("reduction", "none", REDUCTIONS)
    return ctx.op("scatter_elements", x, indices_of(ctx, 1), ctx.input(2), axis=axis, reduction=reduction)


@converter("ScatterND")
def scatter_nd(ctx: NodeContext) -> Value:
    """Writes slices at tuples of positions."""
    ctx.expect_inputs(3, 3)
    reduction = ctx.attrs.choice("reduction", "none", REDUCTIONS)
    return ctx.op("scatter_nd", ctx.input(0), indices_of(ctx, 1), ctx.input(2), reduction=reduction)


@converter("OneHot")
def one_hot(ctx: NodeContext) -> Value:
    """values = [off, on]; the new axis has `depth` positions."""
    ctx.expect_inputs(3, 3)
    indices, values = ctx.emit.cast(ctx.input(0), DType.I64), ctx.input(2)
    depth_value = ctx.emit.cast(ctx.input(1), DType.I64)
    depth = ctx.emit.bound_elements(depth_value, f"{ctx.name}_depth")
    if depth is None or len(depth) != 1:
        raise ModelError(f"the depth of OneHot should be one number, not {ctx.input(1).type}")
    axis = ctx.axis(ctx.attrs.integer("axis", -1), indices.rank + 1)
    return ctx.op("one_hot", indices, values, depth=depth[0], axis=axis)


@converter("NonZero")
def nonzero(ctx: NodeContext) -> Value:
    """Positions of the elements that aren't zero; how many is known at run time."""
    x = ctx.input(0)
    count = ctx.emit.count_true(x, f"{ctx.name}_count", product(x.shape))
    return ctx.op("nonzero", x, count=count)


@converter("Compress")
def compress(ctx: NodeContext) -> Value:
    """Slices of an axis where the condition holds."""
    x, condition = ctx.input(0), ctx.input(1)
    number = ctx.attrs.optional_int("axis")
    if number is None:
        x, axis = ctx.emit.reshape(x, (product(x.shape),)), 0
    else:
        axis = ctx.axis(number, x.rank)
    count = ctx.emit.count_true(condition, f"{ctx.name}_count", x.shape[axis])
    return ctx.op("compress", x, condition, axis=axis, count=count)


@converter("ReverseSequence")
def reverse_sequence(ctx: NodeContext) -> Value:
    """Reverses the first lens[b] elements along the time axis of each batch entry."""
    x = ctx.input(0)
    batch, time = ctx.attrs.integer("batch_axis", 1), ctx.attrs.integer("time_axis", 0)
    axes = {"batch_axis": ctx.axis(batch, x.rank), "time_axis": ctx.axis(time, x.rank)}
    return ctx.op("reverse_sequence", x, ctx.input(1), **axes)
