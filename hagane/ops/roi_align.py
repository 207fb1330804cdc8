"""roi_align: means or maxima over bilinear samples of regions of feature maps.

x[N, C, H, W], rois[R, 4] as (x1, y1, x2, y2), batch_indices i64[R] -> [R, C, height, width]. Each bin takes
sampling x sampling samples, or about one a pixel if sampling is 0. Mode max is ONNX's: over the four weighted
neighbours of all samples. Samples further than one pixel outside the map are zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, const, emin, to_expr
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Guard, Index, IndexValue, LetIndex, Read, Scalar, both, cast, fn, lit
from hagane.ops.loops import accumulator, bound_index, loops
from hagane.ops.shapes import require_same


def _infer(node: Node) -> list[Type]:
    x, rois, batch = node.input(0), node.input(1), node.input(2)
    require_same(x, rois)
    if x.rank != 4 or rois.rank != 2 or rois.shape[1] not in (const(4),) or batch.rank != 1:
        raise ShapeError(
            f"roi_align takes x[N, C, H, W], rois[R, 4], batch_indices[R], not {x}, {rois}, {batch}"
        )
    if node.attrs["mode"] not in ("avg", "max"):
        raise ShapeError(f"roi_align's mode is avg or max, not {node.attrs['mode']!r}")
    size = (to_expr(node.attrs["height"]), to_expr(node.attrs["width"]))
    return [Type(x.dtype, (rois.shape[0], x.shape[1], *size))]


@dataclass(frozen=True)
class _Side:
    """Vertical (axis 0) or horizontal (axis 1) geometry of a region, as scalars."""

    start: Scalar
    bin_size: Scalar
    extent: Expr

    def position(self, window: Expr, sample: Expr, samples: Expr) -> Scalar:
        """Where a sample of a bin lies on the map: start + (bin + (sample + 1/2) / samples) * size."""
        wide = self.start.dtype
        step = fn("add", cast(IndexValue(DType.I64, sample), wide), lit(wide, 0.5))
        inside = fn("div", fn("mul", step, self.bin_size), cast(IndexValue(DType.I64, samples), wide))
        corner = fn("mul", cast(IndexValue(DType.I64, window), wide), self.bin_size)
        return fn("add", fn("add", self.start, corner), inside)

    def on_map(self, position: Scalar) -> list[Scalar]:
        wide = position.dtype
        last = cast(IndexValue(DType.I64, self.extent), wide)
        return [
            fn("ge", position, lit(wide, -1), dtype=DType.BOOL),
            fn("le", position, last, dtype=DType.BOOL),
        ]

    def clamped(self, position: Scalar) -> Scalar:
        wide = position.dtype
        last = cast(IndexValue(DType.I64, self.extent - 1), wide)
        return fn("min", fn("max", position, lit(wide, 0)), last)


def _side(node: Node, read: Read, roi: Expr, axis: int) -> _Side:
    x, attrs = node.input(0), node.attrs
    wide = accumulator(x.dtype)
    offset, scale = lit(wide, 0.5 if attrs["half_pixel"] else 0.0), lit(wide, attrs["scale"])
    start, end = (
        fn("sub", fn("mul", cast(read(1, (roi, const(column))), wide), scale), offset)
        for column in (1 - axis, 3 - axis)
    )
    size = fn("sub", end, start)
    if not attrs["half_pixel"]:
        size = fn("max", size, lit(wide, 1))
    return _Side(start, fn("div", size, lit(wide, attrs["width" if axis else "height"])), x.shape[axis + 2])


def _define(node: Node, read: Read, index: Index, output: int) -> Scalar:
    sides = [_side(node, read, index[0], axis) for axis in (0, 1)]
    sampling = node.attrs["sampling"]
    if sampling > 0:
        return _bin(node, read, index, sides, [const(sampling)] * 2)
    names = [bound_index(index, hint, None) for hint in ("rows", "columns")]
    result = _bin(node, read, index, sides, [symbol for _, symbol in names])
    for (name, _), side in zip(names, sides, strict=True):
        whole = cast(fn("ceil", side.bin_size), DType.I64)
        samples = fn("max", whole, lit(DType.I64, 0))
        result = LetIndex(result.dtype, name, samples, result)
    return result


def _bin(node: Node, read: Read, index: Index, sides: list[_Side], samples: list[Expr]) -> Scalar:
    """One output element, given the number of samples along both axes."""
    x, is_max = node.input(0), node.attrs["mode"] == "max"
    wide = accumulator(x.dtype)
    nest = loops((*index, *samples), samples)
    batch_name, batch = bound_index(index, "image", x.shape[0])
    places = [
        side.position(window, sample, number)
        for side, window, sample, number in zip(sides, index[2:], nest.positions, samples, strict=True)
    ]
    valid = both(*(c for side, place in zip(sides, places, strict=True) for c in side.on_map(place)))
    clamped = [side.clamped(place) for side, place in zip(sides, places, strict=True)]
    lows = [
        bound_index((*index, *nest.positions), hint, s.extent) for hint, s in zip("yx", sides, strict=True)
    ]
    corners = _corners(read, (batch, index[1]), sides, clamped, [low for _, low in lows], wide)
    sample = corners[0]
    for corner in corners[1:]:
        sample = fn("max" if is_max else "add", sample, corner)
    for (name, _), place in zip(lows, clamped, strict=True):
        sample = LetIndex(wide, name, cast(fn("floor", place), DType.I64), sample)
    total = nest.reduce("max" if is_max else "sum", Guard(wide, valid, sample, lit(wide, 0)))
    number = IndexValue(DType.I64, samples[0] * samples[1])
    if is_max:
        is_empty = fn("eq", number, lit(DType.I64, 0), dtype=DType.BOOL)
        total = total if number.expr.is_const else Guard(wide, is_empty, lit(wide, 0), total)
    else:
        total = fn("div", total, cast(fn("max", number, lit(DType.I64, 1)), wide))
    image = cast(read(2, index[:1]), DType.I64)
    return LetIndex(x.dtype, batch_name, image, cast(total, x.dtype))


def _corners(
    read: Read, plane: Index, sides: list[_Side], places: list[Scalar], lows: list[Expr], wide: DType
) -> list[Scalar]:
    """The four weighted neighbours of a sample."""
    weights: list[tuple[Scalar, Scalar]] = []
    highs: list[Expr] = []
    for side, place, low in zip(sides, places, lows, strict=True):
        high_weight = fn("sub", place, cast(IndexValue(DType.I64, low), wide))
        weights.append((fn("sub", lit(wide, 1), high_weight), high_weight))
        highs.append(emin(low + 1, side.extent - 1))
    return [
        fn("mul", fn("mul", weights[0][a], weights[1][b]), cast(read(0, (*plane, y, x)), wide))
        for a, y in enumerate((lows[0], highs[0]))
        for b, x in enumerate((lows[1], highs[1]))
    ]


def _roi_align(attrs: Attrs, x: Array, rois: Array, batch_indices: Array) -> Array:
    size, extents = (attrs["height"], attrs["width"]), x.shape[2:]
    y = np.zeros((rois.shape[0], x.shape[1], *size))
    for r, (roi, image) in enumerate(zip(rois, batch_indices, strict=True)):
        scaled = roi * attrs["scale"] - (0.5 if attrs["half_pixel"] else 0.0)
        ends = [(scaled[1 - a], scaled[3 - a], size[a], extents[a]) for a in (0, 1)]
        (down, valid_rows), (across, valid_columns) = (_axis_samples(attrs, *e) for e in ends)
        numbers = valid_rows.shape[1], valid_columns.shape[1]
        if 0 in numbers:
            continue
        valid = np.logical_and.outer(valid_rows.reshape(-1), valid_columns.reshape(-1))
        corners = []
        for rows, row_weights in down:
            for columns, column_weights in across:
                values = x[image][:, rows.reshape(-1)][:, :, columns.reshape(-1)]
                weights = np.outer(row_weights.reshape(-1), column_weights.reshape(-1))
                corners.append(np.where(valid, values * weights, 0.0))
        shape = (x.shape[1], size[0], numbers[0], size[1], numbers[1])
        if attrs["mode"] == "max":
            y[r] = np.max(corners, axis=0).reshape(shape).max(axis=(2, 4))
        else:
            y[r] = np.sum(corners, axis=0).reshape(shape).mean(axis=(2, 4))
    return y


def _axis_samples(
    attrs: Attrs, start: float, end: float, bins: int, extent: int
) -> tuple[list[tuple[Array, Array]], Array]:
    """(positions, weights) of both neighbours of the samples [bins, samples], and which samples are valid."""
    length = end - start if attrs["half_pixel"] else max(end - start, 1.0)
    bin_size = length / bins
    samples = attrs["sampling"] if attrs["sampling"] > 0 else max(int(np.ceil(bin_size)), 0)
    steps = (np.arange(samples) + 0.5) * bin_size / max(samples, 1)
    places = start + np.arange(bins)[:, None] * bin_size + steps
    valid = (places >= -1) & (places <= extent)
    places = np.clip(places, 0, extent - 1)
    low = np.floor(places).astype(np.int64)
    high = np.minimum(low + 1, extent - 1)
    return [(low, 1 - (places - low)), (high, places - low)], valid


def _samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 9, 11)).astype(np.float32)
    corner = rng.uniform(-3, 12, (6, 2))
    rois = np.concatenate([corner, corner + rng.uniform(0.5, 14, (6, 2))], axis=1).astype(np.float32)
    images = np.array([0, 1, 1, 0, 1, 0])
    attrs: Attrs = {"mode": "avg", "height": 3, "width": 2, "sampling": 2, "scale": 0.5, "half_pixel": True}
    free = ((0, 0), (0, 2), (0, 3), (1, 0))
    yield Sample((x, rois, images), attrs, dynamic=free[:3])
    yield Sample((x, rois, images), attrs | {"mode": "max", "half_pixel": False, "scale": 1.0})
    yield Sample((x, rois, images), attrs | {"sampling": 1, "scale": 1.0}, dynamic=free[1:3])
    equal = np.array([[1, 2, 8, 9], [0, 0, 7, 7]], np.float32)  # one size: loops of one extent
    yield Sample((x, equal, images[:2]), attrs | {"sampling": 0, "scale": 1.0})
    yield Sample((x, equal, images[:2]), attrs | {"sampling": 0, "scale": 1.0, "mode": "max"})


register(OpDef("roi_align", "window", _infer, _roi_align, define=_define, samples=_samples))
