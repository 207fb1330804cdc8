"""Reading images at computed positions: GridSample and DeformConv."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as combinations

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, product
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.emit import Emitter
from hagane.frontends.onnx.ops.conv import check_channels, kernel_of
from hagane.frontends.onnx.ops.padding import as_int, read_window
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Value

CUBIC_A = -0.75


@dataclass(frozen=True)
class Tap:
    """A position along an axis: an index in bounds, a weight (None: 1), where it counts (None: anywhere)."""

    index: Value
    weight: Value | None
    inside: Value | None


class AxisSampler:
    """Taps along one axis of an image for positions that may lie outside."""

    def __init__(self, emit: Emitter, extent: Expr, dtype: DType, padding: str, align_corners: bool) -> None:
        self.emit, self.dtype, self.padding = emit, dtype, padding
        self.size = emit.cast(emit.reshape(emit.dims([extent]), ()), dtype)
        self.last = emit.op("sub", self.size, self.num(1))
        self.low = self.num(0.0 if align_corners else -0.5)
        self.span = self.last if align_corners else self.size

    def num(self, value: float) -> Value:
        return self.emit.scalar(value, self.dtype)

    def clamp(self, position: Value) -> Value:
        return self.emit.op("min", self.emit.op("max", position, self.num(0)), self.last)

    def reflect(self, position: Value) -> Value:
        """Mirrored at both borders, as often as it takes."""
        emit = self.emit
        distance = emit.op("abs", emit.op("sub", position, self.low))
        period = emit.op("max", emit.op("mul", self.span, self.num(2)), self.num(1e-9))
        phase = emit.op("fmod", distance, period)
        mirrored = emit.op("min", phase, emit.op("sub", period, phase))
        return emit.op("add", mirrored, self.low)

    def prepared(self, position: Value) -> Value:
        """What the padding mode makes of a position before neighbours are looked up."""
        if self.padding == "border":
            return self.clamp(position)
        return self.reflect(position) if self.padding == "reflection" else position

    def tap(self, whole: Value, weight: Value | None) -> Tap:
        """A tap at a position that is a whole number, in or out of bounds."""
        emit, inside = self.emit, None
        if self.padding == "zeros":
            inside = emit.op("and", emit.op("ge", whole, self.num(0)), emit.op("le", whole, self.last))
        elif self.padding == "reflection":
            whole = self.reflect(whole)
        return Tap(emit.cast(self.clamp(whole), DType.I64), weight, inside)

    def taps(self, position: Value, mode: str) -> list[Tap]:
        """The neighbours of a position with their weights."""
        emit, position = self.emit, self.prepared(position)
        if mode == "nearest":
            return [self.tap(emit.op("round", position), None)]
        first = emit.op("floor", position)
        fraction = emit.op("sub", position, first)
        if mode == "linear":
            near = emit.op("sub", self.num(1), fraction)
            return [self.tap(first, near), self.tap(emit.op("add", first, self.num(1)), fraction)]
        found = []
        for offset in (-1, 0, 1, 2):
            distance = emit.op("abs", emit.op("sub", fraction, self.num(offset)))
            inner = self._polynomial(distance, CUBIC_A + 2, -(CUBIC_A + 3), 0.0, 1.0)
            outer = self._polynomial(distance, CUBIC_A, -5 * CUBIC_A, 8 * CUBIC_A, -4 * CUBIC_A)
            weight = emit.op("where", emit.op("le", distance, self.num(1)), inner, outer)
            found.append(self.tap(emit.op("add", first, self.num(offset)), weight))
        return found

    def _polynomial(self, x: Value, *coefficients: float) -> Value:
        result = self.num(coefficients[0])
        for coefficient in coefficients[1:]:
            result = self.emit.op("add", self.emit.op("mul", result, x), self.num(coefficient))
        return result


def sample(
    emit: Emitter, x: Value, positions: list[Value], mode: str, padding: str, align_corners: bool
) -> Value:
    """x[N, C, *S] at positions[N, P], one tensor for each spatial axis in pixels -> [N, C, P]."""
    batch, channels, *spatial = x.shape
    points = positions[0].shape[1]
    planes = emit.reshape(x, (batch, channels, product(spatial)))
    samplers = [AxisSampler(emit, d, positions[0].dtype, padding, align_corners) for d in spatial]
    per_axis = [s.taps(p, mode) for s, p in zip(samplers, positions, strict=True)]
    total: Value | None = None
    for corner in combinations(*per_axis):
        flat: Value | None = None
        for tap, extent in zip(corner, spatial, strict=True):
            scale = emit.reshape(emit.dims([extent]), ())
            flat = tap.index if flat is None else emit.op("add", emit.op("mul", flat, scale), tap.index)
        assert flat is not None
        index = emit.broadcast_to(emit.unsqueeze(flat, (1,)), (batch, channels, points))
        value = emit.op("gather_elements", planes, index, axis=2)
        for tap in corner:
            if tap.weight is not None:
                value = emit.op("mul", value, emit.cast(emit.unsqueeze(tap.weight, (1,)), x.dtype))
            if tap.inside is not None:
                value = emit.op("where", emit.unsqueeze(tap.inside, (1,)), value, emit.scalar(0, x.dtype))
        total = value if total is None else emit.op("add", total, value)
    assert total is not None
    return total


@converter("GridSample", since=16)
def grid_sample(ctx: NodeContext) -> Value:
    """x[N, C, *S] at grid[N, *O, d] of coordinates in -1..1, the last spatial axis first."""
    x, grid, emit = ctx.input(0), ctx.input(1), ctx.emit
    names = {"bilinear": "linear", "bicubic": "cubic"}
    mode = ctx.attrs.choice("mode", "linear", ("linear", "nearest", "cubic", "bilinear", "bicubic"))
    padding = ctx.attrs.choice("padding_mode", "zeros", ("zeros", "border", "reflection"))
    align = ctx.attrs.flag("align_corners", False)
    rank = x.rank - 2
    if rank < 1 or grid.rank != x.rank or grid.shape[-1] != rank:
        raise ShapeError(
            f"GridSample takes x[N, C, *S] and a grid[N, *O, {rank}], not {x.type} and {grid.type}"
        )
    outside = grid.shape[1:-1]
    flat = emit.reshape(grid, (grid.shape[0], product(outside), rank))
    positions = []
    for axis in range(rank):
        unit = emit.squeeze(emit.slice(flat, 2, rank - 1 - axis, 1), (2,))
        size = emit.cast(emit.reshape(emit.dims([x.shape[axis + 2]]), ()), grid.dtype)
        one, half = emit.scalar(1, grid.dtype), emit.scalar(0.5, grid.dtype)
        from_start = emit.op("mul", emit.op("add", unit, one), half)
        if align:
            positions.append(emit.op("mul", from_start, emit.op("sub", size, one)))
        else:
            positions.append(emit.op("sub", emit.op("mul", from_start, size), half))
    result = sample(emit, x, positions, names.get(mode, mode), padding, align)
    return emit.reshape(result, (*x.shape[:2], *outside))


@converter("DeformConv", since=19)
def deform_conv(ctx: NodeContext) -> Value:
    """A convolution whose taps are moved by offsets[N, groups * taps * 2, oH, oW] and weighted by a mask."""
    x, w, offset, emit = ctx.input(0), ctx.input(1), ctx.input(2), ctx.emit
    bias, mask = ctx.optional(3), ctx.optional(4)
    if x.rank != 4 or offset.rank != 4:
        raise ShapeError(
            f"DeformConv takes x[N, C, H, W] and offsets[N, G, oH, oW], not {x.type}, {offset.type}"
        )
    window = read_window(ctx, x, kernel_of(ctx, x, w))
    group, parts = ctx.attrs.integer("group", 1), ctx.attrs.integer("offset_group", 1)
    check_channels(ctx, x, w, group)
    (height, width) = window.kernel
    if not isinstance(height, int) or not isinstance(width, int) or parts < 1:
        raise ModelError("DeformConv needs a weight of fixed size and an offset_group of 1 or more")
    taps = height * width
    batch, channels = x.shape[0], x.shape[1]
    rows, columns = offset.shape[2], offset.shape[3]
    points = rows * columns
    moves = emit.reshape(offset, (batch * parts, taps, 2, rows, columns))
    positions = []
    for axis, (extent, kernel) in enumerate(zip((rows, columns), (height, width), strict=True)):
        shape = [as_int(extent) if k == axis else 1 for k in range(2)]
        outer = emit.op("iota", dtype=x.dtype, shape=(1, 1, *shape), axis=axis + 2)
        tap_shape = (1, kernel, 1) if axis == 0 else (1, 1, kernel)
        inner = emit.op("iota", dtype=x.dtype, shape=tap_shape, axis=axis + 1)
        inner = emit.reshape(emit.broadcast_to(inner, (1, height, width)), (1, taps, 1, 1))
        start = emit.op("mul", outer, emit.scalar(window.strides[axis], x.dtype))
        start = emit.op("sub", start, emit.cast(emit.reshape(emit.dims([window.begin[axis]]), ()), x.dtype))
        base = emit.op("add", start, emit.op("mul", inner, emit.scalar(window.dilations[axis], x.dtype)))
        moved = emit.op("add", emit.squeeze(emit.slice(moves, 2, axis, 1), (2,)), base)
        positions.append(emit.reshape(moved, (batch * parts, points * taps)))
    per_part = channels // parts
    grouped = emit.reshape(x, (batch * parts, per_part, *x.shape[2:]))
    values = sample(emit, grouped, positions, "linear", "zeros", True)
    values = emit.reshape(values, (batch * parts, per_part, taps, points))
    if mask is not None:
        values = emit.op("mul", values, emit.reshape(mask, (batch * parts, 1, taps, points)))
    filters = w.shape[0]
    values = emit.reshape(values, (batch, group, channels // group * taps, points))
    weights = emit.reshape(w, (group, filters // group, w.shape[1] * taps))
    result = emit.reshape(emit.op("matmul", weights, values), (batch, filters, rows, columns))
    if bias is not None:
        result = emit.op("add", result, emit.reshape(bias, (1, filters, 1, 1)))
    return result
