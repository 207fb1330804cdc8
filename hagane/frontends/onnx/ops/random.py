"""Random numbers: a hash of each element's position and a seed, so that every run gives the same result.

The seed is the node's own, or follows from its name. Other runtimes draw other numbers.
"""

from __future__ import annotations

import math
import struct
import zlib

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.core.symbolic import Expr, const, product
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.registry import converter
from hagane.frontends.onnx.tensors import dtype_of
from hagane.ir.graph import Value


def seed_of(ctx: NodeContext) -> int:
    """32 bits from the seed attribute, or from the node's name."""
    seed = ctx.attrs.optional_float("seed")
    return zlib.crc32(ctx.name.encode() if seed is None else struct.pack("<f", seed))


def hashed(ctx: NodeContext, count: Expr, seed: int) -> Value:
    """u32[count] that look random. Source: PCG's output function RXS-M-XS, see Jarzynski and Olano 2020."""
    emit, u32 = ctx.emit, DType.U32

    def num(value: int) -> Value:
        return emit.scalar(value & 0xFFFFFFFF, u32)

    position = emit.op("iota", dtype=u32, shape=(count,), axis=0)
    mixed = emit.op("bit_xor", position, num(seed))
    state = emit.op("add", emit.op("mul", mixed, num(747796405)), num(2891336453))
    shift = emit.op("add", emit.op("shift_right", state, num(28)), num(4))
    word = emit.op("mul", emit.op("bit_xor", emit.op("shift_right", state, shift), state), num(277803737))
    return emit.op("bit_xor", emit.op("shift_right", word, num(22)), word)


def unit(ctx: NodeContext, count: Expr, seed: int) -> Value:
    """f32[count] in (0, 1), 24 bits each, neither end included."""
    bits = ctx.op("shift_right", hashed(ctx, count, seed), ctx.emit.scalar(8, DType.U32))
    whole = ctx.op("add", ctx.emit.cast(bits, DType.F32), ctx.emit.scalar(0.5, DType.F32))
    return ctx.op("mul", whole, ctx.emit.scalar(2.0**-24, DType.F32))


def uniform(ctx: NodeContext, shape: tuple[Expr, ...], to: DType) -> Value:
    """Evenly distributed between low and high."""
    low, high, emit = ctx.attrs.number("low", 0.0), ctx.attrs.number("high", 1.0), ctx.emit
    numbers = unit(ctx, product(shape), seed_of(ctx))
    scaled = emit.op("mul", numbers, emit.scalar(high - low, DType.F32))
    return emit.cast(emit.reshape(emit.op("add", scaled, emit.scalar(low, DType.F32)), shape), to)


def normal(ctx: NodeContext, shape: tuple[Expr, ...], to: DType) -> Value:
    """Normally distributed, by Box and Muller's formula."""
    mean, scale, emit = ctx.attrs.number("mean", 0.0), ctx.attrs.number("scale", 1.0), ctx.emit
    count, seed = product(shape), seed_of(ctx)
    first, second = unit(ctx, count, seed), unit(ctx, count, seed ^ 0x9E3779B9)
    radius = emit.op("sqrt", emit.op("mul", emit.op("log", first), emit.scalar(-2.0, DType.F32)))
    angle = emit.op("cos", emit.op("mul", second, emit.scalar(2 * math.pi, DType.F32)))
    numbers = emit.op("mul", emit.op("mul", radius, angle), emit.scalar(scale, DType.F32))
    return emit.cast(emit.reshape(emit.op("add", numbers, emit.scalar(mean, DType.F32)), shape), to)


@converter("RandomUniform", "RandomNormal")
def by_shape(ctx: NodeContext) -> Value:
    """The shape is an attribute."""
    shape = ctx.attrs.ints("shape")
    if shape is None or any(d < 0 for d in shape):
        raise ModelError(f"{ctx.op_type} needs a shape, not {shape}")
    to = _float(ctx, ctx.attrs.integer("dtype", 1))
    make = uniform if ctx.op_type == "RandomUniform" else normal
    return make(ctx, tuple(map(const, shape)), to)


@converter("RandomUniformLike", "RandomNormalLike")
def like_input(ctx: NodeContext) -> Value:
    """The shape is the input's, and its type too unless another is given."""
    x, code = ctx.input(0), ctx.attrs.optional_int("dtype")
    to = _float(ctx, code) if code is not None else x.dtype
    make = uniform if ctx.op_type == "RandomUniformLike" else normal
    return make(ctx, x.shape, to)


def _float(ctx: NodeContext, code: int) -> DType:
    to = dtype_of(code, f"the result of {ctx.op_type}")
    if not to.is_float:
        raise ModelError(f"{ctx.op_type} gives floats, not {to}")
    return to
