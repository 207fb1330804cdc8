"""Tensors from nothing but numbers: ConstantOfShape, Range, EyeLike, Trilu's mask."""

from __future__ import annotations

import numpy as np

from hagane.core.dtypes import DType, from_numpy
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, ceildiv, emax
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.registry import converter
from hagane.frontends.onnx.tensors import dtype_of
from hagane.ir.graph import Value


@converter("ConstantOfShape")
def constant_of_shape(ctx: NodeContext) -> Value:
    """One number everywhere, zero by default."""
    given = ctx.attrs.tensor("value")
    array = np.zeros((), np.float32) if given is None else given
    if array.size != 1:
        raise ModelError(f"the value of ConstantOfShape should be one number, not {array.size}")
    dims = ctx.sizes(0, "shape")
    if any(d.is_const and d.value < 0 for d in dims):
        raise ShapeError(f"ConstantOfShape has a negative dim: {', '.join(map(str, dims))}")
    return ctx.emit.filled(ctx.emit.const(array.reshape(()), from_numpy(array.dtype)), dims)


@converter("Range")
def range_(ctx: NodeContext) -> Value:
    """start, start + delta, ... below limit."""
    ctx.expect_inputs(3, 3)
    start, limit, delta = (ctx.emit.reshape(v, ()) for v in ctx.inputs)
    arrays = [ctx.array_of(v) for v in (start, limit, delta)]
    if all(a is not None for a in arrays):
        numbers = [
            a.astype(np.float64).item() if start.dtype.is_float else a.item() for a in arrays if a is not None
        ]
        if numbers[2] == 0:
            raise ModelError("Range has a delta of zero")
        length: Expr | int = max(int(np.ceil((numbers[1] - numbers[0]) / numbers[2])), 0)
    else:
        length = _symbolic_length(ctx, start, limit, delta)
    steps = ctx.op("iota", dtype=start.dtype, shape=(length,), axis=0)
    return ctx.op("add", ctx.op("mul", steps, delta), start)


def _symbolic_length(ctx: NodeContext, start: Value, limit: Value, delta: Value) -> Expr:
    """The number of steps as an expression of dims, or as a symbol that is computed at run time."""
    first, last, step = (ctx.emit.elements(v) for v in (start, limit, delta))
    if first and last and step and step[0].is_const and step[0] != 0:
        by = step[0].value
        return emax(ceildiv(last[0] - first[0], by) if by > 0 else ceildiv(first[0] - last[0], -by), 0)
    wide = DType.F64  # exact for all integers below 2**53
    a, b, c = (ctx.emit.cast(v, wide) for v in (start, limit, delta))
    count = ctx.op("ceil", ctx.op("div", ctx.op("sub", b, a), c))
    count = ctx.emit.cast(ctx.op("max", count, ctx.scalar_like(count, 0)), DType.I64)
    bound = ctx.emit.bound_elements(count, f"{ctx.name}_length")
    assert bound is not None
    return bound[0]


@converter("EyeLike")
def eye_like(ctx: NodeContext) -> Value:
    """Ones on the k-th diagonal of a matrix of x's shape."""
    x, code = ctx.input(0), ctx.attrs.optional_int("dtype")
    if x.rank != 2:
        raise ShapeError(f"EyeLike takes a matrix, not {x.type}")
    dtype = x.dtype if code is None else dtype_of(code, "the result of EyeLike")
    return ctx.op("eye_like", x, k=ctx.attrs.integer("k", 0), dtype=dtype)


@converter("Trilu")
def trilu(ctx: NodeContext) -> Value:
    """The part of each matrix on one side of the k-th diagonal."""
    x, upper = ctx.input(0), ctx.attrs.flag("upper", True)
    ctx.rank_at_least(x, 2)
    if ctx.optional(1) is None:
        return ctx.op("trilu", x, upper=upper, k=0)
    known = ctx.const_value(1)
    if known is not None and known.size == 1:
        return ctx.op("trilu", x, upper=upper, k=int(known.reshape(())))
    rows = ctx.op("iota", dtype=DType.I64, shape=(x.shape[-2], 1), axis=0)
    columns = ctx.op("iota", dtype=DType.I64, shape=(1, x.shape[-1]), axis=1)
    diagonal = ctx.op("add", rows, ctx.emit.reshape(ctx.emit.cast(ctx.input(1), DType.I64), ()))
    keep = ctx.op("ge" if upper else "le", columns, diagonal)
    return ctx.op("where", keep, x, ctx.scalar_like(x, 0))
