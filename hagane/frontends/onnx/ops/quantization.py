"""Quantised ops: QuantizeLinear, DequantizeLinear, and those that compute on integers."""

from __future__ import annotations

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import const
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.ops.conv import check_channels, kernel_of
from hagane.frontends.onnx.ops.padding import read_window
from hagane.frontends.onnx.registry import converter
from hagane.frontends.onnx.tensors import dtype_of
from hagane.ir.graph import Value


def quantization_axis(ctx: NodeContext, x: Value, scale: Value) -> int:
    """The axis along which scales differ; 0 where there is one scale, which then doesn't matter."""
    number = ctx.attrs.integer("axis", 1) if ctx.opset >= 13 else 1
    if scale.rank == 0 or scale.static_shape == (1,):
        return 0
    axis = ctx.axis(number, x.rank)
    if scale.rank not in (1, x.rank):
        raise ShapeError(f"the scale {scale.type} of {ctx.op_type} should have one dim, or those of {x.type}")
    return axis


def _scalar_if_one(ctx: NodeContext, x: Value, value: Value) -> Value:
    """A single number as a scalar, whatever its rank, unless it is as many blocks of a tensor."""
    return ctx.emit.reshape(value, ()) if value.static_shape == (1,) and x.rank != 1 else value


@converter("QuantizeLinear", since=10)
def quantize(ctx: NodeContext) -> Value:
    """round(x / scale) + zero point, saturated; round half to even."""
    x, scale, zero = ctx.input(0), ctx.input(1), ctx.optional(2)
    axis = quantization_axis(ctx, x, scale)
    block = ctx.attrs.integer("block_size", 0)
    code = ctx.attrs.integer("output_dtype", 0)
    if not ctx.attrs.flag("saturate", True):
        raise ModelError(
            "QuantizeLinear with saturate=0 is not supported", next_step="export with saturate=1"
        )
    precision = ctx.attrs.integer("precision", 0)
    if precision:
        scale, x = (ctx.emit.cast(v, dtype_of(precision, "precision")) for v in (scale, x))
    to = dtype_of(code, "the result of QuantizeLinear") if code else DType.U8
    if zero is not None:
        if code and zero.dtype is not to:
            raise ModelError(f"QuantizeLinear has output_dtype {to}, but a zero point of {zero.dtype}")
        to = zero.dtype
    return quantized(ctx, x, scale, zero, axis, block, to)


def quantized(
    ctx: NodeContext, x: Value, scale: Value, zero: Value | None, axis: int, block: int, to: DType
) -> Value:
    """A quantize node; blocks of scales are spread out first."""
    if scale.rank == x.rank and x.rank > 0 and scale.shape != x.shape and (block or x.rank > 1):
        scale = spread_blocks(ctx, scale, x, axis, block)
        zero = None if zero is None else spread_blocks(ctx, zero, x, axis, block)
    if x.dtype.is_int:
        x = ctx.emit.cast(x, scale.dtype)
    elif scale.dtype is not x.dtype:
        scale = ctx.emit.cast(scale, x.dtype)
    scale = _scalar_if_one(ctx, x, scale)
    zero = None if zero is None else _scalar_if_one(ctx, x, zero)
    return ctx.op("quantize", x, scale, zero, axis=axis, to=to)


def spread_blocks(ctx: NodeContext, scale: Value, x: Value, axis: int, block: int) -> Value:
    """One number per block along an axis, repeated for each of the block's elements."""
    extent, blocks = x.shape[axis], scale.shape[axis]
    size = block
    if size == 0:
        if not (extent.is_const and blocks.is_const and blocks.value):
            raise ModelError(f"{ctx.op_type} needs a block_size")
        size = -(-extent.value // blocks.value)
    wide = ctx.emit.unsqueeze(scale, (axis + 1,))
    dims = list(wide.shape)
    dims[axis + 1] = const(size)
    wide = ctx.emit.broadcast_to(wide, dims)
    merged = list(scale.shape)
    merged[axis] = blocks * size
    return ctx.emit.slice(ctx.emit.reshape(wide, merged), axis, 0, extent)


@converter("DequantizeLinear", since=10)
def dequantize(ctx: NodeContext) -> Value:
    """(x - zero point) * scale, in the scale's type."""
    x, scale, zero = ctx.input(0), ctx.input(1), ctx.optional(2)
    axis = quantization_axis(ctx, x, scale)
    block = ctx.attrs.integer("block_size", 0)
    code = ctx.attrs.integer("output_dtype", 0)
    to = dtype_of(code, "the result of DequantizeLinear") if code else scale.dtype
    scale = _scalar_if_one(ctx, x, scale)
    zero = None if zero is None else _scalar_if_one(ctx, x, zero)
    if block == 0 and scale.rank == x.rank and x.rank > 1:
        raise ModelError("DequantizeLinear has one scale per block, but no block_size")
    return ctx.op("dequantize", x, scale, zero, axis=axis, block=block, to=to)


@converter("DynamicQuantizeLinear", since=11)
def dynamic_quantize(ctx: NodeContext) -> list[Value]:
    """u8 with a scale and zero point from the tensor's own range, which always holds zero."""
    x = ctx.input(0)
    zero = ctx.scalar_like(x, 0)
    axes = range(x.rank)
    top = ctx.op("max", ctx.emit.reduce("max", x, axes, keepdims=False), zero)
    bottom = ctx.op("min", ctx.emit.reduce("min", x, axes, keepdims=False), zero)
    span = ctx.op("sub", top, bottom)
    flat = ctx.op("eq", span, zero)
    scale = ctx.op("where", flat, ctx.scalar_like(x, 1), ctx.op("div", span, ctx.scalar_like(x, 255)))
    start = ctx.op("round", ctx.op("div", ctx.op("neg", bottom), scale))
    point = ctx.emit.cast(ctx.op("clip", start, lo=0.0, hi=255.0), DType.U8)
    return [ctx.op("quantize", x, scale, point, axis=0, to=DType.U8), scale, point]


@converter("MatMulInteger", since=10)
def matmul_integer(ctx: NodeContext) -> Value:
    """i32 product of 8-bit matrices, each less its zero point."""
    a, b = ctx.input(0), ctx.input(1)
    return ctx.op("matmul_integer", a, b, ctx.optional(2), ctx.optional(3))


@converter("ConvInteger", since=10)
def conv_integer(ctx: NodeContext) -> Value:
    """i32 convolution of 8-bit tensors, each less its zero point."""
    return _conv_integer(ctx, ctx.input(0), ctx.input(1), ctx.optional(2), ctx.optional(3))


def _conv_integer(ctx: NodeContext, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None) -> Value:
    window = read_window(ctx, x, kernel_of(ctx, x, w))
    group = ctx.attrs.integer("group", 1)
    check_channels(ctx, x, w, group)
    return ctx.op("conv_integer", x, w, x_zero, w_zero, group=group, **window.attrs)


@converter("QLinearConv", since=10)
def qlinear_conv(ctx: NodeContext) -> Value:
    """An integer convolution, its bias in the accumulator's scale, requantised."""
    ctx.expect_inputs(8, 9)
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (ctx.input(k) for k in range(8))
    total = _conv_integer(ctx, x, w, x_zero, w_zero)
    channel = (1, -1 if w_scale.rank else 1, *(1,) * (x.rank - 2))
    bias = ctx.optional(8)
    if bias is not None:
        total = ctx.op("add", total, ctx.emit.reshape(bias, (1, bias.shape[0], *channel[2:])))
    factor = ctx.op("mul", ctx.emit.reshape(x_scale, ()), w_scale)
    if factor.rank:
        factor = ctx.emit.reshape(factor, (1, factor.shape[0], *channel[2:]))
    real = ctx.op("mul", ctx.emit.cast(total, factor.dtype), factor)
    return quantized(
        ctx, real, ctx.emit.reshape(y_scale, ()), ctx.emit.reshape(y_zero, ()), 0, 0, y_zero.dtype
    )


@converter("QLinearMatMul", since=10)
def qlinear_matmul(ctx: NodeContext) -> Value:
    """An integer product, requantised. Scales of a hold per row, those of b per column."""
    ctx.expect_inputs(8, 8)
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = ctx.inputs
    if a_scale.rank == 1 and a_scale.static_shape != (1,):
        a_scale = ctx.emit.unsqueeze(a_scale, (1,))
    left, right = (ctx.emit.reshape(s, ()) if s.static_shape == (1,) else s for s in (a_scale, b_scale))
    factor = ctx.op("mul", left, right)
    total = ctx.op("matmul_integer", a, b, a_zero, b_zero)
    real = ctx.op("mul", ctx.emit.cast(total, factor.dtype), factor)
    return quantized(ctx, real, y_scale, y_zero, max(real.rank - 2, 0), 0, y_zero.dtype)
