"""com.microsoft: quantised ops of ONNX Runtime's quantisation tools."""

from __future__ import annotations

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.ops.contrib import MS, swapped
from hagane.frontends.onnx.ops.pooling import average_pool
from hagane.frontends.onnx.ops.quantization import (
    dequantize,
    dynamically_quantized,
    quantize,
    requantize,
)
from hagane.frontends.onnx.ops.recurrent import recurrent_layer
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Array, Value

converter("QuantizeLinear", domain=MS)(quantize)
converter("DequantizeLinear", domain=MS)(dequantize)


def real(ctx: NodeContext, first: int, axis: int = 0) -> Value:
    """The real numbers of three inputs in a row: tensor, scale, zero point."""
    x, scale, zero = ctx.input(first), ctx.input(first + 1), ctx.optional(first + 2)
    return ctx.op("dequantize", x, scale, zero, axis=axis, block=None, to=scale.dtype)


def result(ctx: NodeContext, value: Value, first: int, like: Value) -> Value:
    """A real result quantised by two inputs in a row: scale and zero point."""
    zero = ctx.optional(first + 1)
    return requantize(ctx, value, ctx.input(first), ctx.emit.scalar(0, like.dtype) if zero is None else zero)


@converter("QLinearAdd", "QLinearMul", domain=MS)
def qlinear_binary(ctx: NodeContext) -> Value:
    """Two quantised tensors combined as real numbers."""
    op = "add" if ctx.op_type == "QLinearAdd" else "mul"
    return result(ctx, ctx.op(op, real(ctx, 0), real(ctx, 3)), 6, ctx.input(0))


@converter("QLinearSigmoid", "QLinearLeakyRelu", domain=MS)
def qlinear_activation(ctx: NodeContext) -> Value:
    """An activation of real numbers."""
    x = real(ctx, 0)
    if ctx.op_type == "QLinearSigmoid":
        return result(ctx, ctx.op("sigmoid", x), 3, ctx.input(0))
    return result(ctx, ctx.op("leaky_relu", x, alpha=ctx.attrs.number("alpha", 0.01)), 3, ctx.input(0))


@converter("QLinearSoftmax", domain=MS)
def qlinear_softmax(ctx: NodeContext) -> Value:
    """Softmax of real numbers along one axis."""
    x = real(ctx, 0)
    axis = ctx.axis(ctx.attrs.integer("axis", -1), x.rank)
    if ctx.attrs.integer("opset", 13) < 13 and axis != x.rank - 1:
        raise ModelError("QLinearSoftmax with opset below 13 is only supported along the last axis")
    return result(ctx, ctx.op("softmax", x, axis=axis), 3, ctx.input(0))


@converter("QLinearGlobalAveragePool", domain=MS)
def qlinear_global_pool(ctx: NodeContext) -> Value:
    """The mean of each plane."""
    x, last = real(ctx, 0), ctx.attrs.flag("channels_last", False)
    axes = range(1, x.rank - 1) if last else range(2, x.rank)
    return result(ctx, ctx.emit.reduce("mean", x, axes, keepdims=True), 3, ctx.input(0))


@converter("QLinearAveragePool", domain=MS)
def qlinear_average_pool(ctx: NodeContext) -> Value:
    """The mean of each window."""
    if ctx.attrs.flag("channels_last", False):
        raise ModelError("QLinearAveragePool with channels_last is not supported")
    quantised, entries = ctx.input(0), list(ctx.entries)
    ctx.entries[:] = [real(ctx, 0)]
    pooled = average_pool(ctx)
    ctx.entries[:] = entries
    return result(ctx, pooled, 3, quantised)


@converter("QLinearConcat", domain=MS)
def qlinear_concat(ctx: NodeContext) -> Value:
    """Inputs: the result's scale and zero point, then a tensor with scale and zero point each."""
    if ctx.num_inputs < 5 or (ctx.num_inputs - 2) % 3:
        raise ModelError(f"QLinearConcat has {ctx.num_inputs} inputs")
    parts = [real(ctx, k) for k in range(2, ctx.num_inputs, 3)]
    joined = ctx.emit.concat(parts, ctx.axis(ctx.attrs.integer("axis"), parts[0].rank))
    return result(ctx, joined, 0, ctx.input(2))


@converter("QGemm", domain=MS)
def qgemm(ctx: NodeContext) -> Value:
    """alpha * A' B' + C of quantised matrices; without a result scale the result is real."""
    a, b = ctx.input(0), ctx.input(3)
    if ctx.attrs.flag("transA", False):
        a = swapped(ctx, a)
    if ctx.attrs.flag("transB", False):
        b = swapped(ctx, b)
    total = ctx.op("matmul_integer", a, b, ctx.optional(2), ctx.optional(5))
    if ctx.optional(6) is not None:
        total = ctx.op("add", total, ctx.input(6))
    factor = ctx.op("mul", ctx.input(1), ctx.input(4))
    alpha = ctx.attrs.number("alpha", 1.0)
    factor = ctx.op("mul", factor, ctx.scalar_like(factor, alpha)) if alpha != 1.0 else factor
    value = ctx.op("mul", ctx.emit.cast(total, factor.dtype), factor)
    return value if ctx.optional(7) is None else result(ctx, value, 7, ctx.input(0))


@converter("MatMulIntegerToFloat", domain=MS)
def matmul_integer_to_float(ctx: NodeContext) -> Value:
    """An integer product times both scales, plus a bias. Inputs: A, B, scales, zero points, bias."""
    total = ctx.op("matmul_integer", ctx.input(0), ctx.input(1), ctx.optional(4), ctx.optional(5))
    factor = ctx.op("mul", ctx.input(2), ctx.input(3))
    value = ctx.op("mul", ctx.emit.cast(total, factor.dtype), factor)
    return value if ctx.optional(6) is None else ctx.op("add", value, ctx.input(6))


@converter("DynamicQuantizeMatMul", domain=MS)
def dynamic_quantize_matmul(ctx: NodeContext) -> Value:
    """A is quantised by its own range. Inputs: A, B, the scale of B, its zero point, bias."""
    x, x_scale, x_zero = dynamically_quantized(ctx, ctx.input(0))
    total = ctx.op("matmul_integer", x, ctx.input(1), x_zero, ctx.optional(3))
    factor = ctx.op("mul", x_scale, ctx.input(2))
    value = ctx.op("mul", ctx.emit.cast(total, factor.dtype), factor)
    return value if ctx.optional(4) is None else ctx.op("add", value, ctx.input(4))


@converter("DynamicQuantizeLSTM", domain=MS)
def dynamic_quantize_lstm(ctx: NodeContext) -> list[Value]:
    """An LSTM with weights[D, I, 4 * H] that lie transposed and are dequantised; inputs stay as they are."""
    weights = []
    for first, scale in ((1, 8), (2, 10)):
        w = ctx.emit.transpose(ctx.input(first), (0, 2, 1))
        parts = [ctx.input(scale), ctx.optional(scale + 1)]
        wide = [None if p is None else ctx.emit.reshape(p, (*p.shape, *(1,) * (3 - p.rank))) for p in parts]
        to = ctx.input(scale).dtype
        weights.append(ctx.op("dequantize", w, wide[0], wide[1], axis=0, block=None, to=to))
    ctx.entries[:] = [ctx.input(0), *weights, *ctx.entries[3:8]]
    return recurrent_layer(ctx, "LSTM")


@converter("MatMulNBits", domain=MS)
def matmul_nbits(ctx: NodeContext) -> Value:
    """A times the transpose of a matrix [N, K] of 4- or 8-bit numbers with a scale per block of a row."""
    a, k, n = ctx.input(0), ctx.attrs.integer("K"), ctx.attrs.integer("N")
    bits, block = ctx.attrs.integer("bits", 4), ctx.attrs.integer("block_size")
    ctx.attrs.ignore("accuracy_level", "weight_prepacked")
    if bits not in (4, 8) or block < 16 or k < 1 or n < 1 or ctx.optional(4) is not None:
        raise ModelError(
            f"MatMulNBits with {bits} bits in blocks of {block}, K={k}, N={n}, or g_idx: unsupported"
        )
    blocks = -(-k // block)
    weight = unpacked(ctx.known(1, "weights"), n, blocks * block, bits)[:, :k]
    kind = DType.U4 if bits == 4 else DType.U8
    scale = ctx.emit.reshape(ctx.input(2), (n, blocks))
    zero = np.full((n, blocks), 1 << (bits - 1), np.uint8)
    if ctx.optional(3) is not None:
        points = ctx.known(3, "zero points")
        if points.dtype != np.uint8:
            raise ModelError("MatMulNBits with zero points that aren't u8 is not supported")
        zero = unpacked(points, n, blocks, bits)
    operands = [ctx.emit.const(v.astype(kind.np), name=name) for v, name in ((weight, "w"), (zero, "zero"))]
    wide = ctx.op("dequantize", operands[0], scale, operands[1], axis=1, block=block, to=scale.dtype)
    product = ctx.op("matmul", a, ctx.emit.transpose(ctx.emit.cast(wide, a.dtype), (1, 0)))
    return product if ctx.optional(5) is None else ctx.op("add", product, ctx.input(5))


def unpacked(data: Array, rows: int, columns: int, bits: int) -> Array:
    """u8[rows, columns] from bytes in which each row starts anew, the low half first. Raises: ShapeError."""
    if data.dtype != np.uint8 or data.size % rows:
        raise ShapeError(f"packed numbers of {data.dtype}{list(data.shape)} don't fill {rows} rows")
    flat = data.reshape(rows, -1)
    if bits == 4:
        flat = np.stack([flat & 15, flat >> 4], axis=-1).reshape(rows, -1)
    if flat.shape[1] < columns:
        raise ShapeError(f"packed numbers of {list(data.shape)} don't fill [{rows}, {columns}]")
    return flat[:, :columns]
