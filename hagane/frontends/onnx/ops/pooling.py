"""Pools over windows and over whole planes."""

from __future__ import annotations

from hagane.core.errors import ModelError
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.ops.padding import Window, read_window
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Value


def pool_window(ctx: NodeContext, x: Value) -> Window:
    """The window of a pool, whose kernel_shape is required."""
    kernel = ctx.attrs.ints("kernel_shape")
    if not kernel or any(k < 1 for k in kernel):
        raise ModelError(f"{ctx.op_type} needs a kernel_shape of positive numbers, not {kernel}")
    return read_window(ctx, x, kernel)


@converter("MaxPool")
def max_pool(ctx: NodeContext) -> list[Value]:
    """The second output holds positions in the flattened input."""
    x = ctx.input(0)
    window = pool_window(ctx, x)
    indices = ctx.has_output(1)
    return ctx.emit.ops(
        "max_pool",
        x,
        kernel=window.kernel,
        **window.attrs,
        ceil_mode=ctx.attrs.flag("ceil_mode", False),
        storage_order=ctx.attrs.integer("storage_order", 0),
        indices=indices,
    )


@converter("AveragePool", since=7)
def average_pool(ctx: NodeContext) -> Value:
    """With count_include_pad the padding counts as elements of zero."""
    x = ctx.input(0)
    window = pool_window(ctx, x)
    return ctx.op(
        "avg_pool",
        x,
        kernel=window.kernel,
        **window.attrs,
        ceil_mode=ctx.attrs.flag("ceil_mode", False),
        count_include_pad=ctx.attrs.flag("count_include_pad", False),
    )


@converter("LpPool")
def lp_pool(ctx: NodeContext) -> Value:
    """The p-norm of each window."""
    x = ctx.input(0)
    window = pool_window(ctx, x)
    return ctx.op(
        "lp_pool",
        x,
        kernel=window.kernel,
        **window.attrs,
        ceil_mode=ctx.attrs.flag("ceil_mode", False),
        p=ctx.attrs.integer("p", 2),
    )


@converter("GlobalAveragePool", "GlobalMaxPool")
def global_pool(ctx: NodeContext) -> Value:
    """The mean or maximum of each plane, spatial axes kept as ones."""
    x = ctx.input(0)
    ctx.rank_at_least(x, 2)
    kind = "mean" if ctx.op_type == "GlobalAveragePool" else "max"
    return ctx.emit.reduce(kind, x, range(2, x.rank), keepdims=True)


@converter("GlobalLpPool")
def global_lp_pool(ctx: NodeContext) -> Value:
    """The p-norm of each plane."""
    x, p = ctx.input(0), ctx.attrs.integer("p", 2)
    ctx.rank_at_least(x, 2)
    size = ctx.op("abs", x)
    powers = ctx.op("pow", size, ctx.scalar_like(x, p))
    total = ctx.emit.reduce("sum", powers, range(2, x.rank), keepdims=True)
    return ctx.op("pow", total, ctx.scalar_like(x, 1 / p))
