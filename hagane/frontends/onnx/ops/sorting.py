"""TopK and Unique."""

from __future__ import annotations

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.core.symbolic import Expr, emax, product
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.ops.padding import as_int
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Value


@converter("TopK")
def top_k(ctx: NodeContext) -> list[Value]:
    """Values and positions of the k largest or smallest elements."""
    x = ctx.input(0)
    axis = ctx.axis(ctx.attrs.integer("axis", -1), x.rank)
    largest, ordered = ctx.attrs.flag("largest", True), ctx.attrs.flag("sorted", True)
    if ctx.opset < 10:
        return ctx.emit.ops("topk", x, k=ctx.attrs.integer("k"), axis=axis, largest=largest, sorted=ordered)
    counts = ctx.sizes(1, "k", x.shape[axis])
    if len(counts) != 1:
        raise ModelError("k of TopK should be one number")
    k = counts[0].value if counts[0].is_const else counts[0]
    return ctx.emit.ops("topk", x, k=k, axis=axis, largest=largest, sorted=ordered)


@converter("Unique", since=11)
def unique(ctx: NodeContext) -> list[Value]:
    """Distinct elements, where each occurs first, which one each element is, and how often each occurs.

    After a stable sort equal elements are neighbours, the first one in front.
    """
    x, emit = ctx.input(0), ctx.emit
    if ctx.attrs.optional_int("axis") is not None and x.rank != 1:
        raise ModelError(f"Unique along an axis of {x.type} is not supported", next_step="leave the axis out")
    in_order = ctx.attrs.flag("sorted", True)
    length = product(x.shape)
    flat = emit.reshape(x, (length,))
    values, order = emit.ops("topk", flat, k=as_int(length), axis=0, largest=False, sorted=True)
    rest = emax(length - 1, 0)
    changes = emit.op("ne", emit.slice(values, 0, length - rest, rest), emit.slice(values, 0, 0, rest))
    start = emit.filled(emit.scalar(True, DType.BOOL), (length - rest,))
    first = emit.concat([start, changes], 0)
    group = emit.op("cumsum", emit.cast(first, DType.I64), axis=0, exclusive=False, reverse=False)
    group = emit.op("sub", group, emit.scalar(1, DType.I64))
    count = emit.count_true(first, f"{ctx.name}_count", length)
    distinct = emit.op("compress", values, first, axis=0, count=count)
    places = emit.op("compress", order, first, axis=0, count=distinct.shape[0])
    inverse = emit.op(
        "scatter_elements", ctx.zeros(DType.I64, (length,)), order, group, axis=0, reduction="none"
    )
    ones = emit.filled(emit.scalar(1, DType.I64), (length,))
    none = ctx.zeros(DType.I64, (count,))
    counts = emit.op("scatter_elements", none, group, ones, axis=0, reduction="add")
    if in_order:
        return [distinct, places, inverse, counts]
    return _by_first_occurrence(ctx, count, distinct, places, inverse, counts)


def _by_first_occurrence(
    ctx: NodeContext, count: Expr, distinct: Value, places: Value, inverse: Value, counts: Value
) -> list[Value]:
    emit = ctx.emit
    _, perm = emit.ops("topk", places, k=as_int(count), axis=0, largest=False, sorted=True)
    ranks = emit.op("iota", dtype=DType.I64, shape=(count,), axis=0)
    none = ctx.zeros(DType.I64, (count,))
    position = emit.op("scatter_elements", none, perm, ranks, axis=0, reduction="none")
    moved = [emit.op("gather", v, perm, axis=0) for v in (distinct, places)]
    return [*moved, emit.op("gather", position, inverse, axis=0), emit.op("gather", counts, perm, axis=0)]
