"""MatMul and Gemm."""

from __future__ import annotations

from hagane.core.errors import ShapeError
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Value


@converter("MatMul")
def matmul(ctx: NodeContext) -> Value:
    """NumPy's matmul."""
    ctx.expect_inputs(2, 2)
    return ctx.op("matmul", ctx.input(0), ctx.input(1))


@converter("Gemm", since=7)
def gemm(ctx: NodeContext) -> Value:
    """alpha * A' B' + beta * C, with the factors of 1 and an absent C left out."""
    a, b, c = ctx.input(0), ctx.input(1), ctx.optional(2)
    if a.rank != 2 or b.rank != 2:
        raise ShapeError(f"Gemm takes two matrices, not {a.type} and {b.type}")
    alpha, beta = ctx.attrs.number("alpha", 1.0), ctx.attrs.number("beta", 1.0)
    if ctx.attrs.flag("transA", False):
        a = ctx.emit.transpose(a, (1, 0))
    if ctx.attrs.flag("transB", False):
        b = ctx.emit.transpose(b, (1, 0))
    result = scaled(ctx, ctx.op("matmul", a, b), alpha)
    if c is None or beta == 0.0:
        return result
    if c.rank > 2:
        raise ShapeError(f"C of Gemm is {c.type}; it must broadcast to {result.type}")
    return ctx.op("add", result, scaled(ctx, c, beta))


def scaled(ctx: NodeContext, x: Value, factor: float) -> Value:
    """x times a number; x itself for 1."""
    return x if factor == 1.0 else ctx.op("mul", x, ctx.scalar_like(x, factor))
