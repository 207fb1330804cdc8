"""The inverse of windows: MaxUnpool and Col2Im."""

from __future__ import annotations

from math import prod

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, const, product
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.ops.padding import spatial_ints, spatial_pads
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Value


@converter("MaxUnpool", since=9)
def max_unpool(ctx: NodeContext) -> Value:
    """Zeros, but for x at the flat positions that MaxPool gave."""
    x, positions = ctx.input(0), ctx.input(1)
    rank = x.rank - 2
    kernel = spatial_ints(ctx, "kernel_shape", rank, 1, 1)
    strides, pads = spatial_ints(ctx, "strides", rank, 1, 1), spatial_pads(ctx, rank)
    shape = list(x.shape)
    for k in range(rank):
        shape[k + 2] = (x.shape[k + 2] - 1) * strides[k] + kernel[k] - pads[k] - pads[k + rank]
    flat = ctx.zeros(x.dtype, (product(shape),))
    places = ctx.emit.reshape(positions, (product(positions.shape),))
    values = ctx.emit.reshape(x, (product(x.shape),))
    filled = ctx.op("scatter_elements", flat, places, values, axis=0, reduction="none")
    result = ctx.emit.reshape(filled, shape)
    if ctx.optional(2) is None:
        return result
    wanted = ctx.sizes(2, "output_shape")
    if len(wanted) != x.rank:
        raise ShapeError(f"the output_shape of MaxUnpool has {len(wanted)} dims, x has {x.rank}")
    after = tuple(w - d for w, d in zip(wanted, shape, strict=True))
    if all(a == 0 for a in after):
        return result
    return ctx.op("pad", result, ctx.scalar_like(x, 0), mode="constant", before=(0,) * x.rank, after=after)


@converter("Col2Im", since=18)
def col2im(ctx: NodeContext) -> Value:
    """Overlapping blocks added up to an image: a transposed convolution with one filter per element."""
    x = ctx.input(0)
    image, block = ctx.known_ints(1, "image_shape"), ctx.known_ints(2, "block_shape")
    rank = len(image)
    if x.rank != 3 or len(block) != rank or not rank or any(b < 1 for b in block):
        raise ShapeError(f"Col2Im takes columns[N, C * block, L], not {x.type}, for blocks {list(block)}")
    strides, dilations = spatial_ints(ctx, "strides", rank, 1, 1), spatial_ints(ctx, "dilations", rank, 1, 1)
    pads, taps = spatial_pads(ctx, rank), prod(block)
    channels: Expr = x.shape[1] // taps
    if not channels.is_const or taps * channels.value > 1 << 20:
        raise ModelError(f"Col2Im needs a fixed number of channels, not {x.type}")
    counts, extra = [], []
    for k in range(rank):
        reach = (block[k] - 1) * dilations[k] + 1
        spare = image[k] + pads[k] + pads[k + rank] - reach
        counts.append(spare // strides[k] + 1)
        extra.append(spare % strides[k])
    one_tap = np.eye(taps).reshape(taps, 1, *block)
    weight = ctx.emit.const(np.tile(one_tap, (channels.value, *(1,) * (rank + 1))), x.dtype)
    blocks = ctx.emit.reshape(x, (x.shape[0], x.shape[1], *map(const, counts)))
    return ctx.op(
        "conv_transpose",
        blocks,
        weight,
        None,
        strides=strides,
        dilations=dilations,
        group=channels.value,
        pads_begin=pads[:rank],
        pads_end=pads[rank:],
        output_padding=tuple(extra),
    )


@converter("TensorScatter", since=24)
def tensor_scatter(ctx: NodeContext) -> Value:
    """Writes an update into a cache along one axis, each sample from its own position on."""
    cache, update, starts, emit = ctx.input(0), ctx.input(1), ctx.optional(2), ctx.emit
    mode = ctx.attrs.choice("mode", "linear", ("linear", "circular"))
    axis = ctx.axis(ctx.attrs.integer("axis", -2), cache.rank)
    length = tuple(d if k == axis else 1 for k, d in enumerate(update.shape))
    places = emit.op("iota", dtype=DType.I64, shape=length, axis=axis)
    if starts is not None and starts.rank != 1:
        raise ShapeError(f"the write_indices of TensorScatter should be [batch], not {starts.type}")
    if starts is not None:
        first = emit.reshape(emit.cast(starts, DType.I64), (starts.shape[0], *(1,) * (cache.rank - 1)))
        places = emit.op("add", places, first)
    if mode == "circular":
        places = emit.op("mod", places, emit.reshape(emit.dims([cache.shape[axis]]), ()))
    places = emit.broadcast_to(places, update.shape)
    return ctx.op("scatter_elements", cache, places, update, axis=axis, reduction="none")
