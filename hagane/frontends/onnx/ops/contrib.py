"""com.microsoft: what ONNX Runtime's optimiser fuses: products, convolutions, activations, normalisations."""

from __future__ import annotations

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.ops.conv import conv
from hagane.frontends.onnx.ops.linear import gemm, scaled
from hagane.frontends.onnx.ops.normalization import layer_norm, rms_norm
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Value

MS = "com.microsoft"


@converter("FusedMatMul", domain=MS)
def fused_matmul(ctx: NodeContext) -> Value:
    """alpha * A' B'; transBatch moves the first axis to the place of the row axis."""
    a, b = ctx.input(0), ctx.input(1)
    if ctx.attrs.flag("transBatchA", False) or ctx.attrs.flag("transBatchB", False):
        raise ModelError("FusedMatMul with transBatchA or transBatchB is not supported")
    if ctx.attrs.flag("transA", False):
        a = swapped(ctx, a)
    if ctx.attrs.flag("transB", False):
        b = swapped(ctx, b)
    return scaled(ctx, ctx.op("matmul", a, b), ctx.attrs.number("alpha", 1.0))


def swapped(ctx: NodeContext, x: Value) -> Value:
    """The last two axes exchanged; a vector stays as it is."""
    if x.rank < 2:
        return x
    return ctx.emit.transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


def activated(ctx: NodeContext, x: Value, name: str, parameters: tuple[float, ...]) -> Value:
    """An activation that is named by an attribute. Raises: ModelError for one that isn't known."""
    plain = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "": "identity"}
    if name == "":
        return x
    if name in plain:
        return ctx.op(plain[name], x)
    given = dict(enumerate(parameters))
    if name == "LeakyRelu":
        return ctx.op("leaky_relu", x, alpha=given.get(0, 0.01))
    if name == "HardSigmoid":
        return ctx.op("hard_sigmoid", x, alpha=given.get(0, 0.2), beta=given.get(1, 0.5))
    if name == "Clip":
        return ctx.op("clip", x, lo=given.get(0, float("-inf")), hi=given.get(1, float("inf")))
    raise ModelError(f"the activation {name} of {ctx.op_type} is not supported")


@converter("FusedGemm", domain=MS)
def fused_gemm(ctx: NodeContext) -> Value:
    """Gemm, then an activation."""
    names = ("alpha", "beta", "gamma")
    found = [ctx.attrs.optional_float(f"activation_{n}") for n in names]
    parameters = tuple(p for p in found if p is not None)
    return activated(ctx, gemm(ctx), ctx.attrs.text("activation", ""), parameters)


@converter("FusedConv", domain=MS)
def fused_conv(ctx: NodeContext) -> Value:
    """Conv, plus a fourth input, then an activation."""
    parameters = ctx.attrs.floats("activation_params") or ()
    addend = ctx.optional(3)
    del ctx.entries[3:]
    result = conv(ctx)
    if addend is not None:
        result = ctx.op("add", result, addend)
    return activated(ctx, result, ctx.attrs.text("activation", ""), parameters)


@converter("Gelu", domain=MS)
def gelu(ctx: NodeContext) -> Value:
    """By the error function."""
    return ctx.op("gelu", ctx.input(0), approx="none")


@converter("BiasGelu", domain=MS)
def bias_gelu(ctx: NodeContext) -> Value:
    """Of the sum, by the error function."""
    return ctx.op("gelu", ctx.op("add", ctx.input(0), ctx.input(1)), approx="none")


@converter("FastGelu", domain=MS)
def fast_gelu(ctx: NodeContext) -> Value:
    """Of x plus an optional bias, by tanh."""
    x, bias = ctx.input(0), ctx.optional(1)
    return ctx.op("gelu", x if bias is None else ctx.op("add", x, bias), approx="tanh")


@converter("QuickGelu", domain=MS)
def quick_gelu(ctx: NodeContext) -> Value:
    """x * sigmoid(alpha * x)."""
    x = ctx.input(0)
    return ctx.op("mul", x, ctx.op("sigmoid", scaled(ctx, x, ctx.attrs.number("alpha", 1.702))))


@converter("BiasAdd", domain=MS)
def bias_add(ctx: NodeContext) -> Value:
    """x + bias + skip."""
    return ctx.op("add", ctx.op("add", ctx.input(0), ctx.input(1)), ctx.input(2))


@converter("LayerNormalization", since=1)
def early_layer_norm(ctx: NodeContext) -> list[Value]:
    """The op as ONNX Runtime had it before it became part of opset 17."""
    return layer_norm(ctx)


@converter("SimplifiedLayerNormalization", since=1)
def simplified_layer_norm(ctx: NodeContext) -> list[Value]:
    """RMS normalisation under its first name."""
    return [rms_norm(ctx)]


def _skip_sum(ctx: NodeContext, bias: Value | None) -> Value:
    total = ctx.op("add", ctx.input(0), ctx.input(1))
    return total if bias is None else ctx.op("add", total, bias)


@converter("SkipLayerNormalization", domain=MS)
def skip_layer_norm(ctx: NodeContext) -> list[Value | None]:
    """Layer norm of x + skip + bias; the sum is the fourth output."""
    eps, total = ctx.attrs.number("epsilon", 1e-12), _skip_sum(ctx, ctx.optional(4))
    result = ctx.op("layer_norm", total, ctx.input(2), ctx.optional(3), axis=total.rank - 1, eps=eps)
    return [result, None, None, total]


@converter("SkipSimplifiedLayerNormalization", domain=MS)
def skip_rms_norm(ctx: NodeContext) -> list[Value | None]:
    """RMS norm of x + skip + bias; the sum is the fourth output."""
    eps, total = ctx.attrs.number("epsilon", 1e-12), _skip_sum(ctx, ctx.optional(3))
    result = ctx.op("rms_norm", total, ctx.input(2), axis=total.rank - 1, eps=eps)
    return [result, None, None, total]


@converter("EmbedLayerNormalization", domain=MS)
def embed_layer_norm(ctx: NodeContext) -> list[Value | None]:
    """Layer norm of the sum of word, position and segment embeddings; the sum is the third output.

    The second one counts the positions that the mask keeps.
    """
    ids, segments, emit = ctx.input(0), ctx.optional(1), ctx.emit
    eps = ctx.attrs.number("epsilon", 1e-12)
    ctx.attrs.ignore("mask_index_type")
    if ids.rank != 2:
        raise ShapeError(f"EmbedLayerNormalization takes ids[batch, sequence], not {ids.type}")
    total = emit.op("gather", ctx.input(2), ids, axis=0)
    positions = ctx.optional(8)
    if positions is None:
        positions = emit.op("iota", dtype=DType.I64, shape=(1, ids.shape[1]), axis=1)
    total = emit.op("add", total, emit.op("gather", ctx.input(3), positions, axis=0))
    if segments is not None:
        total = emit.op("add", total, emit.op("gather", ctx.input(4), segments, axis=0))
    result = ctx.op("layer_norm", total, ctx.input(5), ctx.input(6), axis=2, eps=eps)
    mask = ctx.optional(7)
    if mask is None:
        counts = ctx.zeros(DType.I32, (ids.shape[0],))
    else:
        counts = emit.reduce("sum", emit.cast(mask, DType.I32), (1,), keepdims=False)
    return [result, counts, total]
