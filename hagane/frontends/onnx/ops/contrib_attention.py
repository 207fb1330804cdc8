"""com.microsoft: Attention and MultiHeadAttention without caches of shared buffers."""

from __future__ import annotations

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.ops.attention import merge_heads, split_heads
from hagane.frontends.onnx.ops.contrib import MS
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Value


def _mask(ctx: NodeContext, padding: Value | None, bias: Value | None, like: Value) -> Value | None:
    """One mask from integers[B, T] that say which keys count, and numbers that are added to the scores."""
    hidden = ctx.attrs.number("mask_filter_value", -10000.0)
    if padding is None:
        return bias
    if padding.rank != 2:
        raise ModelError(
            f"the mask {padding.type} of {ctx.op_type} is not supported; it should be [batch, keys]"
        )
    keep = ctx.op("ne", padding, ctx.scalar_like(padding, 0))
    keep = ctx.emit.reshape(keep, (padding.shape[0], 1, 1, padding.shape[1]))
    added = ctx.op("where", keep, ctx.scalar_like(like, 0), ctx.scalar_like(like, hidden))
    return added if bias is None else ctx.op("add", added, bias)


def _attend(ctx: NodeContext, q: Value, k: Value, v: Value, mask: Value | None) -> Value:
    scale, size = ctx.attrs.optional_float("scale"), q.shape[3]
    if not scale and not size.is_const:
        raise ModelError(f"{ctx.op_type} needs a scale or a fixed head size")
    return ctx.op(
        "attention",
        q,
        k,
        v,
        mask,
        scale=scale or float(size.value**-0.5),
        causal=ctx.attrs.flag("unidirectional", False),
        offset=0,
        softcap=0.0,
    )


def _refuse(ctx: NodeContext, positions: tuple[int, ...]) -> None:
    """Raises: ModelError if one of the inputs is there."""
    present = [p for p in positions if ctx.optional(p) is not None]
    if present:
        raise ModelError(f"{ctx.op_type} with input {present[0]} (a cache or the like) is not supported")


@converter("Attention", domain=MS)
def attention(ctx: NodeContext) -> Value:
    """x[B, S, I] times one weight for queries, keys, values. Inputs: x, weight, bias, mask, past, bias."""
    x, weight, bias = ctx.input(0), ctx.input(1), ctx.optional(2)
    heads, sizes = ctx.attrs.integer("num_heads"), ctx.attrs.ints("qkv_hidden_sizes")
    ctx.attrs.ignore("past_present_share_buffer", "rotary_embedding_dim")
    _refuse(ctx, (4, 6))
    if ctx.attrs.flag("do_rotary", False):
        raise ModelError("Attention with do_rotary is not supported")
    width = weight.shape[1]
    if sizes is None:
        if not width.is_const or width.value % 3:
            raise ShapeError(f"the weight {weight.type} of Attention doesn't hold three matrices")
        sizes = (width.value // 3,) * 3
    projected = ctx.op("matmul", x, weight)
    if bias is not None:
        projected = ctx.op("add", projected, bias)
    parts, start = [], 0
    for size in sizes:
        parts.append(split_heads(ctx, ctx.emit.slice(projected, 2, start, size), heads))
        start += size
    mask = _mask(ctx, ctx.optional(3), ctx.optional(5), x)
    return merge_heads(ctx, _attend(ctx, parts[0], parts[1], parts[2], mask))


@converter("QAttention", domain=MS)
def quantised_attention(ctx: NodeContext) -> Value:
    """Attention whose projection is an integer product.

    Inputs: x, weight, bias, the scales of x and weight, mask, the zero points of x and weight, past.
    """
    ctx.attrs.ignore("past_present_share_buffer", "rotary_embedding_dim")
    _refuse(ctx, (8,))
    total = ctx.op("matmul_integer", ctx.input(0), ctx.input(1), ctx.optional(6), ctx.optional(7))
    factor = ctx.op("mul", ctx.input(3), ctx.input(4))
    projected = ctx.op("mul", ctx.emit.cast(total, factor.dtype), factor)
    projected = ctx.op("add", projected, ctx.input(2))
    width = projected.shape[2]
    if not width.is_const or width.value % 3:
        raise ShapeError(f"the weight {ctx.input(1).type} of QAttention doesn't hold three matrices")
    size, heads = width.value // 3, ctx.attrs.integer("num_heads")
    q, k, v = (split_heads(ctx, ctx.emit.slice(projected, 2, p * size, size), heads) for p in range(3))
    return merge_heads(ctx, _attend(ctx, q, k, v, _mask(ctx, ctx.optional(5), None, projected)))


@converter("MultiHeadAttention", domain=MS)
def multi_head_attention(ctx: NodeContext) -> list[Value]:
    """Inputs: query, key, value, bias, key padding mask, scores' bias, past key, past value."""
    heads, emit = ctx.attrs.integer("num_heads"), ctx.emit
    _refuse(ctx, (8, 9))
    if ctx.optional(1) is None or ctx.optional(2) is None:
        raise ModelError("MultiHeadAttention with packed queries, keys and values is not supported")
    parts = [ctx.input(k) for k in range(3)]
    bias = ctx.optional(3)
    if bias is not None:
        start = 0
        for which, part in enumerate(parts):
            size = part.shape[-1]
            if part.rank != 3 or not size.is_const:
                raise ShapeError(f"MultiHeadAttention can't add its bias {bias.type} to {part.type}")
            parts[which] = ctx.op("add", part, emit.slice(bias, 0, start, size))
            start += size.value
    q, k, v = (split_heads(ctx, p, heads) for p in parts)
    past = [ctx.optional(p) for p in (6, 7)]
    if past[0] is not None and past[1] is not None:
        k, v = emit.concat([past[0], k], 2), emit.concat([past[1], v], 2)
    mask = _mask(ctx, ctx.optional(4), ctx.optional(5), q)
    return [merge_heads(ctx, _attend(ctx, q, k, v, mask)), k, v]


@converter("RotaryEmbedding", domain=MS)
def rotary(ctx: NodeContext) -> Value:
    """Rotates pairs of x by their positions' angles. x[B, S, H * D] or [B, H, S, D], caches[P, D / 2]."""
    x, positions, emit = ctx.input(0), ctx.input(1), ctx.emit
    interleaved, heads = ctx.attrs.flag("interleaved", False), ctx.attrs.integer("num_heads", 0)
    ctx.attrs.ignore("is_packed_batching")
    half = ctx.input(2).shape[1]
    if ctx.attrs.number("scale", 1.0) != 1.0 or ctx.attrs.integer("rotary_embedding_dim", 0) > 0:
        raise ModelError("RotaryEmbedding with scale or rotary_embedding_dim is not supported")
    if not half.is_const:
        raise ModelError(f"RotaryEmbedding needs caches of fixed width, not {ctx.input(2).type}")
    if x.rank == 3 and not heads:
        width = x.shape[2]
        heads = width.value // (2 * half.value) if width.is_const else 0
    y = split_heads(ctx, x, heads)
    if positions.rank < 2:  # one offset for all: positions count from it
        steps = emit.op("iota", dtype=DType.I64, shape=(1, y.shape[2]), axis=1)
        positions = emit.op("add", emit.reshape(positions, (1, 1)), steps)
    cos, sin = (emit.unsqueeze(emit.op("gather", ctx.input(p), positions, axis=0), (1,)) for p in (2, 3))
    step, second = (2, 1) if interleaved else (1, half.value)
    a, b = (emit.slice(y, 3, start, half, step) for start in (0, second))
    turned = [
        emit.op("sub", emit.op("mul", a, cos), emit.op("mul", b, sin)),
        emit.op("add", emit.op("mul", b, cos), emit.op("mul", a, sin)),
    ]
    if interleaved:
        pairs = emit.concat([emit.unsqueeze(t, (4,)) for t in turned], 4)
        rotated = emit.reshape(pairs, y.shape)
    else:
        rotated = emit.concat(turned, 3)
    return merge_heads(ctx, rotated) if x.rank == 3 else rotated
