"""Quantised ops: QuantizeLinear, DequantizeLinear, and those that compute on integers."""

from __future__ import annotations

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
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


@converter("QuantizeLinear", since=10)
def quantize(ctx: NodeContext) -> Value:
    """round(x / scale) + zero point, saturated; round half to even."""
    x, scale, zero = ctx.input(0), ctx.input(1), ctx.optional(2)
    axis = quantization_axis(ctx, x, scale)
    block = _block_size(ctx, x, scale)
    code = ctx.attrs.integer("output_dtype", 0)
    precision = ctx.attrs.integer("precision", 0)
    if precision:
        scale, x = (ctx.emit.cast(v, dtype_of(precision, "precision")) for v in (scale, x))
    to = dtype_of(code, "the result of QuantizeLinear") if code else DType.U8
    if zero is not None:
        if code and zero.dtype is not to:
            raise ModelError(f"QuantizeLinear has output_dtype {to}, but a zero point of {zero.dtype}")
        to = zero.dtype
    saturate = ctx.attrs.flag("saturate", True)
    return ctx.op("quantize", x, scale, zero, axis=axis, block=block, to=to, saturate=saturate)


def _block_size(ctx: NodeContext, x: Value, scale: Value) -> int | None:
    block = ctx.attrs.integer("block_size", 0)
    if block < 0 or (block == 0 and scale.rank == x.rank and x.rank > 1):
        raise ModelError(f"{ctx.op_type} has one scale per block {scale.type}, and block_size={block}")
    return block or None


@converter("DequantizeLinear", since=10)
def dequantize(ctx: NodeContext) -> Value:
    """(x - zero point) * scale, in the scale's type."""
    x, scale, zero = ctx.input(0), ctx.input(1), ctx.optional(2)
    axis = quantization_axis(ctx, x, scale)
    block = _block_size(ctx, x, scale)
    code = ctx.attrs.integer("output_dtype", 0)
    to = dtype_of(code, "the result of DequantizeLinear") if code else scale.dtype
    return ctx.op("dequantize", x, scale, zero, axis=axis, block=block, to=to)


@converter("DynamicQuantizeLinear", since=11)
def dynamic_quantize(ctx: NodeContext) -> list[Value]:
    """u8 with a scale and zero point."""
    return list(dynamically_quantized(ctx, ctx.input(0)))


def dynamically_quantized(ctx: NodeContext, x: Value) -> tuple[Value, Value, Value]:
    """x as u8, the scale and the zero point, by the tensor's own range, which always holds zero."""
    zero, axes = ctx.scalar_like(x, 0), range(x.rank)
    top = ctx.op("max", ctx.emit.reduce("max", x, axes, keepdims=False), zero)
    bottom = ctx.op("min", ctx.emit.reduce("min", x, axes, keepdims=False), zero)
    span = ctx.op("sub", top, bottom)
    step = ctx.op("div", span, ctx.scalar_like(x, 255))
    scale = ctx.op("where", ctx.op("eq", span, zero), ctx.scalar_like(x, 1), step)
    point = requantize(ctx, ctx.op("neg", bottom), scale, ctx.emit.scalar(0, DType.U8))
    return requantize(ctx, x, scale, point), scale, point


def requantize(ctx: NodeContext, real: Value, scale: Value, zero: Value, axis: int = 0) -> Value:
    """A real result as an 8-bit one."""
    return ctx.op("quantize", real, scale, zero, axis=axis, block=None, to=zero.dtype, saturate=True)


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
    return requantize(ctx, real, ctx.emit.reshape(y_scale, ()), ctx.emit.reshape(y_zero, ()))


@converter("QLinearMatMul", since=10)
def qlinear_matmul(ctx: NodeContext) -> Value:
    """An integer product, requantised. Scales of a hold per row, those of b per column."""
    ctx.expect_inputs(8, 8)
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = ctx.inputs
    if a_scale.rank == 1 and a_scale.static_shape != (1,):
        a_scale = ctx.emit.unsqueeze(a_scale, (1,))
    left, right = (ctx.emit.reshape(s, ()) if s.static_shape == (1,) else s for s in (a_scale, b_scale))
    factor = ctx.op("mul", left, right)
    if a.dtype.is_float or b.dtype.is_float:
        parts = [
            ctx.op("sub", ctx.emit.cast(v, DType.F32), ctx.emit.cast(z, DType.F32))
            for v, z in zip((a, b), (a_zero, b_zero), strict=True)
        ]
        total = ctx.op("matmul", *parts)
    else:
        total = ctx.op("matmul_integer", a, b, a_zero, b_zero)
    real = ctx.op("mul", ctx.emit.cast(total, factor.dtype), factor)
    return requantize(ctx, real, y_scale, y_zero, max(real.rank - 2, 0))
