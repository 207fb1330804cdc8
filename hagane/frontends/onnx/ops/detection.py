"""NonMaxSuppression and RoiAlign, of object detectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import product
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.emit import Emitter
from hagane.frontends.onnx.ops.padding import as_int
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Graph, Type, Value


@dataclass(frozen=True)
class Corners:
    """Coordinates of boxes, one tensor each, with area."""

    top: Value
    left: Value
    bottom: Value
    right: Value
    area: Value


def _corners(emit: Emitter, boxes: Value, centred: bool) -> Corners:
    """boxes[..., 4] as two corners in order, or centre and size, with the last axis gone."""
    last = boxes.rank - 1
    a, b, c, d = (emit.squeeze(emit.slice(boxes, last, k, 1), (last,)) for k in range(4))
    if centred:
        half = [emit.op("mul", v, emit.scalar(0.5, v.dtype)) for v in (d, c)]
        top, left = emit.op("sub", b, half[0]), emit.op("sub", a, half[1])
        bottom, right = emit.op("add", b, half[0]), emit.op("add", a, half[1])
    else:
        top, bottom = emit.op("min", a, c), emit.op("max", a, c)
        left, right = emit.op("min", b, d), emit.op("max", b, d)
    area = emit.op("mul", emit.op("sub", bottom, top), emit.op("sub", right, left))
    return Corners(top, left, bottom, right, area)


@converter("NonMaxSuppression", since=10)
def non_max_suppression(ctx: NodeContext) -> Value:
    """Boxes are visited by falling score; each one kept suppresses those that overlap it.

    boxes[B, N, 4], scores[B, C, N] -> i64[selected, 3] of batch, class and box.
    """
    boxes, scores = ctx.input(0), ctx.input(1)
    if boxes.rank != 3 or scores.rank != 3:
        raise ShapeError(
            f"NonMaxSuppression takes boxes[B, N, 4], scores[B, C, N], not {boxes.type}, {scores.type}"
        )
    emit, (batch, classes, count) = ctx.emit, scores.shape
    centred = ctx.attrs.flag("center_point_box", False)
    limit = ctx.optional(2)
    if limit is None:  # without a limit nothing is selected
        return emit.const(np.zeros((0, 3), np.int64))
    sorted_scores, order = emit.ops("topk", scores, k=as_int(count), axis=2, largest=True, sorted=True)
    wide = emit.broadcast_to(emit.unsqueeze(boxes, (1,)), (batch, classes, count, 4))
    index = emit.broadcast_to(emit.unsqueeze(order, (3,)), (batch, classes, count, 4))
    ranked = emit.op("gather_elements", wide, index, axis=2)
    eligible = emit.filled(emit.scalar(True, DType.BOOL), scores.shape)
    if ctx.optional(4) is not None:
        eligible = emit.op("gt", sorted_scores, emit.reshape(ctx.input(4), ()))
    threshold = emit.scalar(0.0, boxes.dtype)
    if ctx.optional(3) is not None:
        threshold = emit.cast(emit.reshape(ctx.input(3), ()), boxes.dtype)
    kept = _suppress(ctx, _corners(emit, ranked, centred), eligible, threshold)
    counts = emit.op("cumsum", emit.cast(kept, DType.I64), axis=2, exclusive=False, reverse=False)
    within = emit.op("le", counts, emit.cast(emit.reshape(limit, ()), DType.I64))
    kept = emit.op("and", kept, within)
    selected = emit.count_true(kept, f"{ctx.name}_selected", product(scores.shape))
    places = emit.transpose(emit.op("nonzero", kept, count=selected), (1, 0))
    box = emit.unsqueeze(emit.op("gather_nd", order, places, batch_dims=0), (1,))
    return emit.concat([emit.slice(places, 1, 0, 2), box], 1)


def _suppress(ctx: NodeContext, boxes: Corners, eligible: Value, threshold: Value) -> Value:
    """bool[B, C, N]: which of the boxes, sorted by score, are kept. One trip of a loop decides one box."""
    emit, shape = ctx.emit, eligible.shape
    body = Graph("body")
    inner = emit.nested(body)
    step = inner.input("iter", Type(DType.I64, ()))
    going = inner.input("cond", Type(DType.BOOL, ()))
    kept = inner.input("kept", Type(DType.BOOL, shape))

    def row(value: Value) -> Value:
        return inner.unsqueeze(inner.op("gather", value, step, axis=2), (2,))

    one = Corners(*(row(v) for v in (boxes.top, boxes.left, boxes.bottom, boxes.right, boxes.area)))
    zero = inner.scalar(0, boxes.top.dtype)
    height = inner.op("sub", inner.op("min", one.bottom, boxes.bottom), inner.op("max", one.top, boxes.top))
    width = inner.op("sub", inner.op("min", one.right, boxes.right), inner.op("max", one.left, boxes.left))
    overlap = inner.op("mul", inner.op("max", height, zero), inner.op("max", width, zero))
    union = inner.op("sub", inner.op("add", one.area, boxes.area), overlap)
    ratio = inner.op("div", overlap, union)
    hit = inner.op("and", kept, inner.op("gt", ratio, threshold))
    suppressed = inner.op("reduce_any", hit, axes=(2,), keepdims=True)
    chosen = inner.op("and", row(eligible), inner.op("not", suppressed))
    position = inner.op("iota", dtype=DType.I64, shape=(1, 1, shape[2]), axis=2)
    here = inner.op("and", inner.op("eq", position, step), chosen)
    body.outputs = [going, inner.op("or", kept, here)]
    start = emit.filled(emit.scalar(False, DType.BOOL), shape)
    trips = emit.reshape(emit.dims([shape[2]]), ())
    return emit.ops("loop", trips, None, start, graphs={"body": body})[0]


@converter("RoiAlign", since=10)
def roi_align(ctx: NodeContext) -> Value:
    """Averages or maxima of bilinear samples in each region: x[B, C, H, W], rois[R, 4] -> [R, C, h, w]."""
    x, rois, batch = ctx.input(0), ctx.input(1), ctx.input(2)
    if x.rank != 4 or rois.rank != 2:
        raise ShapeError(f"RoiAlign takes x[B, C, H, W] and rois[R, 4], not {x.type} and {rois.type}")
    emit = ctx.emit
    samples = ctx.attrs.integer("sampling_ratio", 0)
    size = (ctx.attrs.integer("output_height", 1), ctx.attrs.integer("output_width", 1))
    scale, mode = ctx.attrs.number("spatial_scale", 1.0), ctx.attrs.choice("mode", "avg", ("avg", "max"))
    default = "half_pixel" if ctx.opset >= 16 else "output_half_pixel"
    kind = ctx.attrs.choice("coordinate_transformation_mode", default, ("half_pixel", "output_half_pixel"))
    if samples < 1:
        raise ModelError(
            "RoiAlign with sampling_ratio=0, where each region decides its samples, is not supported",
            next_step="export the model with a sampling_ratio of 1 or more",
        )
    scaled = emit.op("mul", rois, emit.scalar(scale, rois.dtype))
    if kind == "half_pixel":
        scaled = emit.op("sub", scaled, emit.scalar(0.5, rois.dtype))
    x1, y1, x2, y2 = (emit.slice(scaled, 1, k, 1) for k in range(4))
    extents = [emit.op("sub", y2, y1), emit.op("sub", x2, x1)]
    if kind == "output_half_pixel":
        extents = [emit.op("max", e, emit.scalar(1.0, rois.dtype)) for e in extents]
    coordinates = []
    for start, extent, bins in zip((y1, x1), extents, size, strict=True):
        steps = emit.op("iota", dtype=rois.dtype, shape=(1, bins * samples), axis=1)
        middle = emit.op("add", steps, emit.scalar(0.5, rois.dtype))
        fraction = emit.op("mul", middle, emit.scalar(1.0 / (bins * samples), rois.dtype))
        coordinates.append(emit.op("add", start, emit.op("mul", extent, fraction)))
    values = _bilinear_grid(ctx, x, batch, coordinates[0], coordinates[1], pairwise_max=mode == "max")
    regions, channels = rois.shape[0], x.shape[1]
    split = emit.reshape(values, (regions, channels, size[0], samples, size[1], samples))
    return emit.reduce("mean" if mode == "avg" else "max", split, (3, 5), keepdims=False)


def _bilinear_grid(
    ctx: NodeContext, x: Value, batch: Value, ys: Value, xs: Value, pairwise_max: bool
) -> Value:
    """Samples at ys[R, P] x xs[R, Q] of the image that each region belongs to -> [R, C, P, Q].

    With pairwise_max a sample is the largest of the four weighted corners rather than their sum.
    """
    emit, (_, channels, height, width) = ctx.emit, x.shape
    regions, rows, columns = ys.shape[0], ys.shape[1], xs.shape[1]
    planes = emit.reshape(emit.op("gather", x, batch, axis=0), (regions, channels, height * width))
    ends, inside = [], []
    for position, extent in ((ys, height), (xs, width)):
        size = emit.cast(emit.reshape(emit.dims([extent]), ()), position.dtype)
        low, high = emit.scalar(-1.0, position.dtype), emit.scalar(0.0, position.dtype)
        inside.append(emit.op("and", emit.op("ge", position, low), emit.op("le", position, size)))
        last = emit.op("sub", size, emit.scalar(1.0, position.dtype))
        clamped = emit.op("min", emit.op("max", position, high), last)
        first = emit.op("floor", clamped)
        second = emit.op("min", emit.op("add", first, emit.scalar(1.0, position.dtype)), last)
        far = emit.op("sub", clamped, first)
        near = emit.op("sub", emit.scalar(1.0, position.dtype), far)
        ends.append([(first, near), (second, far)])
    stride = emit.reshape(emit.dims([width]), ())
    total: Value | None = None
    for row, row_weight in ends[0]:
        for column, column_weight in ends[1]:
            flat = emit.op(
                "add",
                emit.op("mul", emit.unsqueeze(emit.cast(row, DType.I64), (2,)), stride),
                emit.unsqueeze(emit.cast(column, DType.I64), (1,)),
            )
            index = emit.reshape(flat, (regions, 1, rows * columns))
            index = emit.broadcast_to(index, (regions, channels, rows * columns))
            corner = emit.op("gather_elements", planes, index, axis=2)
            corner = emit.reshape(corner, (regions, channels, rows, columns))
            weight = emit.op("mul", emit.unsqueeze(row_weight, (1, 3)), emit.unsqueeze(column_weight, (1, 2)))
            part = emit.op("mul", corner, weight)
            total = part if total is None else emit.op("max" if pairwise_max else "add", total, part)
    assert total is not None
    both = emit.op("and", emit.unsqueeze(inside[0], (1, 3)), emit.unsqueeze(inside[1], (1, 2)))
    return emit.op("where", both, total, emit.scalar(0.0, x.dtype))
