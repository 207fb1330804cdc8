"""Cutting tensors up and joining them: Concat, Split, Slice, Pad, Tile, DepthToSpace, SpaceToDepth."""

from __future__ import annotations

from collections.abc import Sequence

from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, IntLike, ceildiv, const, emax, emin
from hagane.core.symbolic_rules import provably_nonneg
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.ops.padding import as_int
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Value


@converter("Concat", since=4)
def concat(ctx: NodeContext) -> Value:
    """All inputs one after another."""
    if not ctx.num_inputs:
        raise ModelError("Concat needs at least one input")
    parts = ctx.inputs
    if parts[0].rank == 0:
        raise ShapeError("Concat takes no scalars")
    return ctx.emit.concat(parts, ctx.axis(ctx.attrs.integer("axis"), parts[0].rank))


@converter("Split", since=2)
def split(ctx: NodeContext) -> list[Value]:
    """Sizes as attribute, as input, or equal ones."""
    x = ctx.input(0)
    axis = ctx.axis(ctx.attrs.integer("axis", 0), x.rank)
    count = (
        ctx.attrs.integer("num_outputs", len(ctx.proto.output)) if ctx.opset >= 18 else len(ctx.proto.output)
    )
    sizes: Sequence[IntLike] | None = ctx.attrs.ints("split") if ctx.opset < 13 else None
    if ctx.opset >= 13 and ctx.optional(1) is not None:
        sizes = ctx.sizes(1, "split", x.shape[axis])
    if sizes is None:
        sizes = equal_parts(x, axis, count, uneven=ctx.opset >= 18)
    if len(sizes) != len(ctx.proto.output):
        raise ModelError(f"Split has {len(ctx.proto.output)} outputs and {len(sizes)} sizes")
    return split_by(ctx, x, axis, sizes)


def equal_parts(x: Value, axis: int, count: int, uneven: bool) -> list[Expr]:
    """Sizes of `count` equal parts; with `uneven` the last one may be smaller. Raises: ShapeError."""
    extent = x.shape[axis]
    if count < 1:
        raise ModelError("Split needs at least one output")
    if extent.is_const and extent.value % count and not uneven:
        raise ShapeError(f"Split can't cut axis {axis} of {x.type} into {count} equal parts")
    if not uneven:
        return [extent // count] * count
    size = ceildiv(extent, count)
    last = extent - size * (count - 1)
    if last.is_const and last.value < 0:
        raise ShapeError(f"Split can't cut axis {axis} of {x.type} into {count} parts of {size}")
    return [size] * (count - 1) + [last]


def split_by(ctx: NodeContext, x: Value, axis: int, sizes: Sequence[IntLike]) -> list[Value]:
    """Slices of the given sizes, one after another. Raises: ShapeError."""
    total = const(0)
    for size in sizes:
        total = total + size
    if total.is_const and x.shape[axis].is_const and total != x.shape[axis]:
        raise ShapeError(f"the parts of Split add up to {total}, axis {axis} of {x.type} has {x.shape[axis]}")
    parts = []
    start = const(0)
    for size in sizes:
        parts.append(ctx.emit.slice(x, axis, start, size))
        start = start + size
    return parts


@converter("Slice")
def slice_attributes(ctx: NodeContext) -> Value:
    """Before opset 10 everything is an attribute."""
    starts, ends = ctx.attrs.ints("starts"), ctx.attrs.ints("ends")
    if starts is None or ends is None:
        raise ModelError("Slice needs starts and ends")
    axes = ctx.attrs.ints("axes") or tuple(range(len(starts)))
    return sliced(ctx, [const(s) for s in starts], [const(e) for e in ends], axes, (1,) * len(starts))


@converter("Slice", since=10)
def slice_inputs(ctx: NodeContext) -> Value:
    """Starts and ends may be computed; axes and steps must be known."""
    ctx.expect_inputs(3, 5)
    starts, ends = ctx.sizes(1, "starts", signed=True), ctx.sizes(2, "ends", signed=True)
    axes = ctx.known_ints(3, "axes") if ctx.optional(3) is not None else tuple(range(len(starts)))
    steps = ctx.known_ints(4, "steps") if ctx.optional(4) is not None else (1,) * len(starts)
    return sliced(ctx, starts, ends, axes, steps)


def sliced(
    ctx: NodeContext, starts: Sequence[Expr], ends: Sequence[Expr], axes: Sequence[int], steps: Sequence[int]
) -> Value:
    """A slice by ONNX's rules: ends exclusive, negative positions from the back, everything clamped."""
    x = ctx.input(0)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ModelError(
            f"Slice has {len(starts)} starts, {len(ends)} ends, {len(axes)} axes, {len(steps)} steps"
        )
    firsts: list[IntLike] = [0] * x.rank
    sizes: list[IntLike] = list(x.shape)
    strides = [1] * x.rank
    for axis, start, end, step in zip(ctx.axes(axes, x.rank), starts, ends, steps, strict=True):
        if step == 0:
            raise ModelError(f"Slice has a step of zero for axis {axis}")
        first, count = slice_range(x.shape[axis], start, end, step)
        firsts[axis], sizes[axis], strides[axis] = as_int(first), as_int(count), step
    if tuple(sizes) == x.shape and all(s == 1 for s in strides):
        return x
    return ctx.op("slice", x, starts=tuple(firsts), sizes=tuple(sizes), steps=tuple(strides))


def slice_range(extent: Expr, start: Expr, end: Expr, step: int) -> tuple[Expr, Expr]:
    """First position and number of elements."""
    if step > 0:
        first = _clamp(_from_front(start, extent), const(0), extent)
        last = _clamp(_from_front(end, extent), const(0), extent)
        return first, emax(ceildiv(last - first, step), 0)
    first = _clamp(_from_front(start, extent), const(0), extent - 1)
    last = _clamp(_from_front(end, extent), const(-1), extent - 1)
    return first, emax(ceildiv(first - last, -step), 0)


NO_LIMIT = 2**31 - 1  # exporters write this or a larger number for "to the end"


def _from_front(position: Expr, extent: Expr) -> Expr:
    """A position that counts from the back if it is negative, from the front; still unclamped."""
    if position.is_const and position.value >= NO_LIMIT:
        return extent
    if position.is_const and position.value < -NO_LIMIT:
        return const(-1)
    if position.is_const:
        return position if position.value >= 0 else position + extent
    if provably_nonneg(position):
        return position
    if provably_nonneg(-position - 1):
        return position + extent
    # of unknown sign: within [-extent - 1, extent] the quotient is -1 for negative ones and 0 for the others
    inside = emax(emin(position, extent), -extent - 1)
    return inside - extent * ((inside + extent + 1) // (extent + 1) - 1)


def _clamp(position: Expr, lo: Expr, hi: Expr) -> Expr:
    return emax(emin(position, hi), lo)


PAD_MODES = ("constant", "reflect", "edge", "wrap")


@converter("Pad", since=2)
def pad_attributes(ctx: NodeContext) -> Value:
    """Before opset 11 everything is an attribute."""
    pads, mode = ctx.attrs.ints("pads") or (), ctx.attrs.choice("mode", "constant", PAD_MODES)
    x, value = ctx.input(0), ctx.attrs.number("value", 0.0)
    return padded(ctx, x, [const(p) for p in pads], range(x.rank), mode, ctx.scalar_like(x, value))


@converter("Pad", since=11)
def pad(ctx: NodeContext) -> Value:
    """Pads: all begins, then all ends, of the given axes; negative ones crop."""
    ctx.expect_inputs(2, 4)
    x, mode = ctx.input(0), ctx.attrs.choice("mode", "constant", PAD_MODES)
    value = ctx.optional(2)
    axes = ctx.known_ints(3, "axes") if ctx.optional(3) is not None else tuple(range(x.rank))
    if value is not None:
        value = ctx.emit.reshape(value, ())
    return padded(ctx, x, ctx.sizes(1, "pads", signed=True), axes, mode, value)


def padded(
    ctx: NodeContext, x: Value, pads: Sequence[Expr], axes: Sequence[int], mode: str, value: Value | None
) -> Value:
    """x with padding; negative padding is a slice before it."""
    at = ctx.axes(axes, x.rank)
    if len(pads) != 2 * len(at):
        raise ModelError(f"Pad has {len(pads)} pads for {len(at)} axes")
    before, after = [const(0)] * x.rank, [const(0)] * x.rank
    for k, axis in enumerate(at):
        before[axis], after[axis] = pads[k], pads[k + len(at)]
    for axis in at:
        if all(provably_nonneg(p[axis]) for p in (before, after)):
            continue
        crop = [emax(-p[axis], 0) for p in (before, after)]
        x = ctx.emit.slice(x, axis, crop[0], x.shape[axis] - crop[0] - crop[1])
        before[axis], after[axis] = emax(before[axis], 0), emax(after[axis], 0)
    if all(p == 0 for p in (*before, *after)):
        return x
    if mode == "constant" and value is None:
        value = ctx.scalar_like(x, 0)
    amounts = {"before": tuple(map(as_int, before)), "after": tuple(map(as_int, after))}
    return ctx.op("pad", x, value if mode == "constant" else None, mode=mode, **amounts)


@converter("Tile", since=6)
def tile(ctx: NodeContext) -> Value:
    """One repeat per axis."""
    ctx.expect_inputs(2, 2)
    x, repeats = ctx.input(0), ctx.sizes(1, "repeats")
    if len(repeats) != x.rank:
        raise ShapeError(f"Tile has {len(repeats)} repeats for {x.type}")
    return x if all(r == 1 for r in repeats) else ctx.op("tile", x, repeats=tuple(map(as_int, repeats)))


def _blocks(ctx: NodeContext, x: Value) -> int:
    size = ctx.attrs.integer("blocksize")
    if x.rank != 4 or size < 1:
        raise ShapeError(f"{ctx.op_type} takes 4 dims and a positive blocksize, not {x.type} and {size}")
    return size


@converter("DepthToSpace")
def depth_to_space(ctx: NodeContext) -> Value:
    """Channels become blocks of pixels; DCR: depth is the fastest part of the channels, CRD: the slowest."""
    x = ctx.input(0)
    block, mode = _blocks(ctx, x), ctx.attrs.choice("mode", "DCR", ("DCR", "CRD"))
    n, c, h, w = x.shape
    if c.is_const and c.value % (block * block):
        raise ShapeError(f"DepthToSpace of {x.type}: {block * block} doesn't divide the channels")
    depth = c // (block * block)
    split = (n, block, block, depth, h, w) if mode == "DCR" else (n, depth, block, block, h, w)
    perm = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    spread = ctx.emit.transpose(ctx.emit.reshape(x, split), perm)
    return ctx.emit.reshape(spread, (n, depth, h * block, w * block))


@converter("SpaceToDepth")
def space_to_depth(ctx: NodeContext) -> Value:
    """Blocks of pixels become channels."""
    x = ctx.input(0)
    block = _blocks(ctx, x)
    n, c, h, w = x.shape
    if any(d.is_const and d.value % block for d in (h, w)):
        raise ShapeError(f"SpaceToDepth of {x.type}: {block} doesn't divide the plane")
    mode = ctx.attrs.choice("mode", "DCR", ("DCR", "CRD")) if ctx.opset >= 13 else "DCR"
    split = ctx.emit.reshape(x, (n, c, h // block, block, w // block, block))
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return ctx.emit.reshape(ctx.emit.transpose(split, perm), (n, c * (block * block), h // block, w // block))
