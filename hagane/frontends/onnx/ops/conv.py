"""Conv and ConvTranspose."""

from __future__ import annotations

from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, IntLike, const
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.ops.padding import AUTO_PAD, as_int, read_window, spatial_ints, spatial_pads
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Value


def kernel_of(ctx: NodeContext, x: Value, w: Value) -> tuple[IntLike, ...]:
    """The weight's spatial extents; kernel_shape must agree. Raises: ShapeError, ModelError."""
    if x.rank < 3 or w.rank != x.rank:
        raise ShapeError(
            f"{ctx.op_type} has the input {x.type} and the weight {w.type}; both need one rank, 3 or more"
        )
    kernel = tuple(as_int(d) for d in w.shape[2:])
    stated = ctx.attrs.ints("kernel_shape")
    if stated is not None and all(isinstance(k, int) for k in kernel) and stated != kernel:
        raise ShapeError(f"{ctx.op_type} says kernel_shape={list(stated)}, but its weight is {w.type}")
    return kernel


def check_channels(ctx: NodeContext, x: Value, w: Value, group: int) -> None:
    """Raises: ShapeError unless the weight's channels and group fit the input."""
    channels, per_group, filters = x.shape[1], w.shape[1], w.shape[0]
    if group < 1:
        raise ModelError(f"group={group} of {ctx.op_type} should be 1 or more")
    if channels.is_const and per_group.is_const and channels != per_group * group:
        raise ShapeError(f"{ctx.op_type} input has {channels} channels, the weight wants {per_group * group}")
    if filters.is_const and filters.value % group:
        raise ShapeError(f"{ctx.op_type} has {filters} filters, which group={group} doesn't divide")


@converter("Conv")
def conv(ctx: NodeContext) -> Value:
    """x[N, C, *spatial], w[M, C/group, *kernel], optional bias[M]."""
    ctx.expect_inputs(2, 3)
    x, w = ctx.input(0), ctx.input(1)
    window = read_window(ctx, x, kernel_of(ctx, x, w))
    group = ctx.attrs.integer("group", 1)
    check_channels(ctx, x, w, group)
    return ctx.op("conv", x, w, ctx.optional(2), group=group, **window.attrs)


@converter("ConvTranspose")
def conv_transpose(ctx: NodeContext) -> Value:
    """x[N, C, *spatial], w[C, M/group, *kernel], optional bias[M]."""
    ctx.expect_inputs(2, 3)
    x, w = ctx.input(0), ctx.input(1)
    kernel = kernel_of(ctx, x, w)
    rank, group = len(kernel), ctx.attrs.integer("group", 1)
    if group < 1 or (x.shape[1].is_const and x.shape[1].value % group):
        raise ModelError(f"group={group} doesn't divide the {x.shape[1]} channels of ConvTranspose")
    if x.shape[1].is_const and w.shape[0].is_const and x.shape[1] != w.shape[0]:
        raise ShapeError(f"ConvTranspose input has {x.shape[1]} channels, the weight wants {w.shape[0]}")
    strides = spatial_ints(ctx, "strides", rank, 1, 1)
    dilations = spatial_ints(ctx, "dilations", rank, 1, 1)
    extra: list[IntLike] = list(spatial_ints(ctx, "output_padding", rank, 0, 0))
    reach = [(kernel[k] - 1) * dilations[k] + 1 for k in range(rank)]
    begin, end, extra = _transposed_pads(ctx, x, strides, reach, extra)
    return ctx.op(
        "conv_transpose",
        x,
        w,
        ctx.optional(2),
        strides=strides,
        dilations=dilations,
        group=group,
        pads_begin=begin,
        pads_end=end,
        output_padding=tuple(extra),
    )


def _transposed_pads(
    ctx: NodeContext, x: Value, strides: tuple[int, ...], reach: list[IntLike], extra: list[IntLike]
) -> tuple[tuple[IntLike, ...], tuple[IntLike, ...], list[IntLike]]:
    """Begin and end pads and output padding; from output_shape or auto_pad if one of them is given."""
    rank = len(strides)
    auto = ctx.attrs.choice("auto_pad", "NOTSET", AUTO_PAD)
    wanted = ctx.attrs.ints("output_shape")
    pads = spatial_pads(ctx, rank)
    if wanted is None and auto in ("NOTSET", "VALID"):
        pads = pads if auto == "NOTSET" else (0,) * (2 * rank)
        return pads[:rank], pads[rank:], extra
    if wanted is not None and len(wanted) not in (rank, rank + 2):
        raise ModelError(f"output_shape={list(wanted)} of ConvTranspose should have {rank} numbers")
    begin: list[IntLike] = []
    end: list[IntLike] = []
    for k in range(rank):
        extent = x.shape[k + 2]
        size: Expr = extent * strides[k] if wanted is None else const(wanted[len(wanted) - rank + k])
        total = (extent - 1) * strides[k] + reach[k] + extra[k] - size
        if total.is_const and total.value < 0:
            extra[k], total = extra[k] - total.value, const(0)
        small = total // 2
        first = small if auto == "SAME_UPPER" else total - small
        begin.append(as_int(first))
        end.append(as_int(total - first))
    return tuple(begin), tuple(end), extra
