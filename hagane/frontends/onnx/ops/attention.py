"""Attention of opset 23 and later; its rarer forms go through the function that ONNX defines it by."""

from __future__ import annotations

from collections.abc import Sequence

from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import const
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.registry import converter
from hagane.frontends.onnx.scope import Entry
from hagane.ir.graph import Value


def split_heads(ctx: NodeContext, x: Value, heads: int | None) -> Value:
    """[B, S, H * D] as [B, H, S, D]; four dims stay as they are. Raises: ModelError, ShapeError."""
    if x.rank == 4:
        return x
    if x.rank != 3 or not heads or heads < 1:
        raise ModelError(f"{ctx.op_type} of {x.type} needs its number of heads")
    batch, length, width = x.shape
    if width.is_const and width.value % heads:
        raise ShapeError(f"{heads} heads don't divide {x.type}")
    return ctx.emit.transpose(ctx.emit.reshape(x, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def merge_heads(ctx: NodeContext, x: Value) -> Value:
    """[B, H, S, D] as [B, S, H * D]."""
    batch, heads, length, size = x.shape
    return ctx.emit.reshape(ctx.emit.transpose(x, (0, 2, 1, 3)), (batch, length, heads * size))


@converter("Attention", since=23)
def attention(ctx: NodeContext) -> Sequence[Entry | None] | None:
    """softmax(scale * q k^T + mask) v, with past keys and values put in front."""
    attrs, emit = ctx.attrs, ctx.emit
    windowed = attrs.integer("left_window_size", -1) >= 0 or attrs.integer("right_window_size", -1) >= 0
    mask = ctx.optional(3)
    softcap = attrs.number("softcap", 0.0)
    if windowed or ctx.has_output(3) or ctx.optional(6) is not None or (softcap and mask is not None):
        return None
    attrs.ignore("softmax_precision", "qk_matmul_output_mode")
    q = split_heads(ctx, ctx.input(0), attrs.optional_int("q_num_heads"))
    groups = attrs.optional_int("kv_num_heads")
    k, v = (split_heads(ctx, ctx.input(p), groups) for p in (1, 2))
    offset = const(0)
    past = [ctx.optional(p) for p in (4, 5)]
    if past[0] is not None and past[1] is not None:
        offset = past[0].shape[2]
        k, v = emit.concat([past[0], k], 2), emit.concat([past[1], v], 2)
    size = q.shape[3]
    scale = attrs.optional_float("scale")
    if scale is None and not size.is_const:
        return None
    if mask is not None and mask.shape[-1] not in (k.shape[2], 1):
        return None
    y = ctx.op(
        "attention",
        q,
        k,
        v,
        mask,
        scale=scale if scale is not None else float(size.value**-0.5),
        causal=attrs.flag("is_causal", False),
        offset=offset.value if offset.is_const else offset,
        softcap=softcap,
    )
    return [merge_heads(ctx, y) if ctx.input(0).rank == 3 else y, k, v]
