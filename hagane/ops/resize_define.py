"""The definition of resize: source coordinates as fractions of integer expressions, and the taps' weights.

With P/Q the source coordinate of an output position, the tap before it is at P // Q, (P % Q) / Q away: index
arithmetic is integer throughout, which vectorises and can't be off by rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr, const, emax, emin, provably_nonneg
from hagane.ir.graph import Node
from hagane.ir.registry import Attrs
from hagane.ir.scalar import Fn, Guard, Index, IndexValue, Read, Scalar, at_least, below, both, cast, fn, lit
from hagane.ops.loops import accumulator, loops

MODES = ("nearest", "linear", "cubic")
NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
TRANSFORMS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)


Continue = Callable[[Index], Scalar]


def is_identity(attrs: Attrs, axis: int, same_extent: bool) -> bool:
    """Whether an axis stays as it is: scale 1 and no cropping."""
    scale, roi = attrs["scales"][axis], attrs["roi"]
    if attrs["coordinate_transformation_mode"] == "tf_crop_and_resize":
        whole = roi[axis] == 0 and roi[axis + len(roi) // 2] == 1
        return whole and scale in (None, 1.0) and same_extent
    return scale == 1.0 or (scale is None and same_extent)


def simplest(value: float) -> Fraction:
    """The simplest fraction that rounds to the value in 32 bits."""
    wanted, limit = np.float32(value), 1
    while limit < 1 << 24:
        found = Fraction(float(wanted)).limit_denominator(limit)
        if np.float32(found.numerator / found.denominator) == wanted:
            return found
        limit *= 2
    return Fraction(float(wanted))


@dataclass(frozen=True)
class Coordinate:
    """The source coordinate numerator/denominator (above zero) on an axis of `length` elements.

    scale: the ratio of the extents as (numerator, denominator).
    """

    numerator: Expr
    denominator: Expr
    length: Expr
    scale: tuple[Expr, Expr]

    @property
    def floor(self) -> Expr:
        return self.numerator // self.denominator

    def clamped(self, position: Expr) -> Expr:
        return emax(0, emin(position, self.length - 1))

    def distance(self, dtype: DType) -> Scalar:
        """How far the coordinate lies above its floor, in [0, 1)."""
        return _quotient(self.numerator % self.denominator, self.denominator, dtype)

    def outside(self) -> list[Scalar]:
        """Conditions of which one holds where the coordinate leaves the axis."""
        conditions = []
        last = (self.length - 1) * self.denominator
        if not provably_nonneg(self.numerator):
            conditions.append(below(self.numerator, const(0)))
        if not provably_nonneg(last - self.numerator):
            conditions.append(below(last, self.numerator))
        return conditions


def _quotient(numerator: Expr, denominator: Expr, dtype: DType) -> Scalar:
    top = cast(IndexValue(DType.I64, numerator), dtype)
    if denominator.is_const:
        size = denominator.value
        exact = size & (size - 1) == 0  # multiplying by a power of two is dividing
        return fn("mul", top, lit(dtype, 1 / size)) if exact else fn("div", top, lit(dtype, size))
    return fn("div", top, cast(IndexValue(DType.I64, denominator), dtype))


def _ratio(scale: float | None, size: Expr, length: Expr) -> tuple[Expr, Expr]:
    """The scale as a fraction of expressions, reduced where one extent is a multiple of the other."""
    if scale is not None:
        found = simplest(scale)
        return const(found.numerator), const(found.denominator)
    if size.is_const and length.is_const:
        shared = gcd(size.value, length.value) or 1
        return const(size.value // shared), const(length.value // shared)
    if length != 0 and size == (size // length) * length:
        return size // length, const(1)
    if size != 0 and length == (length // size) * size:
        return const(1), length // size
    return size, length


def _coordinate(node: Node, axis: int, y: Expr) -> Coordinate:
    attrs, length, size = node.attrs, node.input(0).shape[axis], node.output.shape[axis]
    n, d = _ratio(attrs["scales"][axis], size, length)

    def at(numerator: Expr, denominator: Expr) -> Coordinate:
        return Coordinate(numerator, denominator, length, (n, d))

    match attrs["coordinate_transformation_mode"]:
        case "half_pixel":
            return at((2 * y + 1) * d - n, 2 * n)
        case "pytorch_half_pixel":  # a single element comes from position 0
            several = emin(1, size - 1)
            return at(((2 * y + 1) * d - n) * several, 2 * n)
        case "tf_half_pixel_for_nn":
            return at((2 * y + 1) * d, 2 * n)
        case "asymmetric":
            return at(y * d, n)
        case "half_pixel_symmetric":
            return at((length - 1) * n + (2 * y + 1 - size) * d, 2 * n)
        case "align_corners":
            width, unit = _width(attrs["scales"][axis], size, length)
            return at(y * (length - 1) * unit, emax(1, width - unit))
    return _cropped(node, axis, y, at)


def _width(scale: float | None, size: Expr, length: Expr) -> tuple[Expr, Expr]:
    """The unrounded output extent as (numerator, denominator)."""
    if scale is None:
        return size, const(1)
    found = simplest(scale)
    return length * found.numerator, const(found.denominator)


def _cropped(node: Node, axis: int, y: Expr, at: Callable[[Expr, Expr], Coordinate]) -> Coordinate:
    """start*(L-1) + y*(end-start)*(L-1)/(W-1), or the middle of start and end if W is not above 1."""
    roi, length, size = node.attrs["roi"], node.input(0).shape[axis], node.output.shape[axis]
    start, end = simplest(roi[axis]), simplest(roi[axis + len(roi) // 2])
    unit = start.denominator * end.denominator // gcd(start.denominator, end.denominator)
    first, extent = int(start * unit), int((end - start) * unit)
    width, part = _width(node.attrs["scales"][axis], size, length)
    gap = width - part
    # W > 1 as 0 or 1: the gap is an integer
    several = emax(0, emin(1, gap))
    wide = first * gap + y * extent * part
    single = (2 * first + extent) * (length - 1)
    numerator = 2 * wide * (length - 1) * several + single * emax(1, gap) * (1 - several)
    return at(numerator, 2 * unit * emax(1, gap))


def _nearest(coordinate: Coordinate, mode: str) -> Expr:
    p, q = coordinate.numerator, coordinate.denominator
    if mode == "floor":
        return p // q
    if mode == "ceil":
        return (p + q - 1) // q
    if mode == "round_prefer_ceil":
        return (2 * p + q) // (2 * q)
    return (2 * p + q - 1) // (2 * q)


def _cubic(u: Scalar, a: float, far: bool) -> Scalar:
    """The cubic weight at a distance u: in [1, 2] if far, else in [0, 1]."""

    def horner(*coefficients: float) -> Scalar:
        result: Scalar = lit(u.dtype, coefficients[0])
        for coefficient in coefficients[1:]:
            result = fn("add", fn("mul", result, u), lit(u.dtype, coefficient))
        return result

    return horner(a, -5 * a, 8 * a, -4 * a) if far else horner(a + 2, -(a + 3), 0.0, 1.0)


def _plain_weights(mode: str, t: Scalar, a: float) -> list[Scalar]:
    """Weights of the taps around a coordinate t above its floor, from the lowest position on."""
    back = fn("sub", lit(t.dtype, 1), t)
    if mode == "linear":
        return [back, t]
    before, after = fn("add", t, lit(t.dtype, 1)), fn("sub", lit(t.dtype, 2), t)
    return [_cubic(before, a, True), _cubic(t, a, False), _cubic(back, a, False), _cubic(after, a, True)]


def _sum(terms: list[Scalar]) -> Scalar:
    result = terms[0]
    for term in terms[1:]:
        result = fn("add", result, term)
    return result


def _weighted(coordinate: Coordinate, node: Node, rest: Continue, at: Callable[[Expr], Index]) -> Scalar:
    """The sum over 2 or 4 taps, written out."""
    attrs = node.attrs
    wide = accumulator(node.output.dtype) if node.output.dtype.is_float else DType.F32
    weights = _plain_weights(attrs["mode"], coordinate.distance(wide), attrs["cubic_coeff_a"])
    first = coordinate.floor - (len(weights) // 2 - 1)
    positions = [first + k for k in range(len(weights))]
    if attrs["exclude_outside"]:
        weights = [_inside(coordinate, p, w) for p, w in zip(positions, weights, strict=True)]
        total = _sum(weights)
        weights = [fn("div", w, total) for w in weights]
    values = [rest(at(coordinate.clamped(p))) for p in positions]
    return _sum([fn("mul", v, w) for v, w in zip(values, weights, strict=True)])


def _inside(coordinate: Coordinate, position: Expr, weight: Scalar) -> Scalar:
    held = both(at_least(position, const(0)), below(position, coordinate.length))
    return Guard(weight.dtype, held, weight, lit(weight.dtype, 0))


def _filtered(
    coordinate: Coordinate, node: Node, scope: Index, rest: Continue, at: Callable[[Expr], Index]
) -> Scalar:
    """The antialiasing sum over a stretched filter, divided by its weights' sum."""
    attrs = node.attrs
    wide = accumulator(node.output.dtype) if node.output.dtype.is_float else DType.F32
    n, d = coordinate.scale
    n = emin(n, d)  # only shrinking stretches the filter
    support = 1 if attrs["mode"] == "linear" else 2
    reach = (support * d + n - 1) // n
    nest = loops(scope, [2 * reach])
    step = nest.positions[0] - reach + 1
    p, q = coordinate.numerator, coordinate.denominator
    away = emax(step * q - p % q, p % q - step * q)
    u = _quotient(away * n, q * d, wide)
    if attrs["mode"] == "linear":
        weight: Scalar = fn("max", fn("sub", lit(wide, 1), u), lit(wide, 0))
    else:
        a, zero = attrs["cubic_coeff_a"], lit(wide, 0)
        far = Guard(wide, Fn(DType.BOOL, "lt", (u, lit(wide, 2))), _cubic(u, a, True), zero)
        weight = Guard(wide, Fn(DType.BOOL, "le", (u, lit(wide, 1))), _cubic(u, a, False), far)
    position = coordinate.floor + step
    if attrs["exclude_outside"]:
        weight = _inside(coordinate, position, weight)
    value = rest(at(coordinate.clamped(position)))
    return fn("div", nest.reduce("sum", fn("mul", value, weight)), nest.reduce("sum", weight))


def _rounded(value: Scalar, dtype: DType) -> Scalar:
    """An interpolated value in the output's type: integers round half to even and saturate."""
    if dtype.is_float:
        return cast(value, dtype)
    low = -(1 << dtype.bits - 1) if dtype.is_signed else 0
    high = (1 << dtype.bits - dtype.is_signed) - 1
    held = fn("min", fn("max", fn("round", value), lit(value.dtype, low)), lit(value.dtype, high))
    return cast(held, dtype)


def define(node: Node, read: Read, index: Index, output: int) -> Scalar:
    """One element: the taps of the axes nested in each other, the last axis innermost."""
    x, attrs, dtype = node.input(0), node.attrs, node.output.dtype
    cropped = attrs["coordinate_transformation_mode"] == "tf_crop_and_resize"
    nearest = attrs["mode"] == "nearest"
    wide = accumulator(dtype) if dtype.is_float else DType.F32
    coordinates: dict[int, Coordinate] = {}
    for axis, (dim, size) in enumerate(zip(x.shape, node.output.shape, strict=True)):
        if not is_identity(attrs, axis, dim == size):
            coordinates[axis] = _coordinate(node, axis, index[axis])

    def along(axis: int, done: Index, scope: Index) -> Scalar:
        if axis == len(index):
            return read(0, done) if nearest else cast(read(0, done), wide)
        coordinate = coordinates.get(axis)
        if coordinate is None:
            return along(axis + 1, (*done, index[axis]), scope)

        def at(position: Expr) -> Index:
            return (*done, position)

        def rest(found: Index) -> Scalar:
            return along(axis + 1, found, (*scope, *found))

        if nearest:
            return rest(at(coordinate.clamped(_nearest(coordinate, attrs["nearest_mode"]))))
        n, d = coordinate.scale
        if attrs["antialias"] and not provably_nonneg(n - d):
            return _filtered(coordinate, node, scope, rest, at)
        return _weighted(coordinate, node, rest, at)

    value = along(0, (), index)
    if not nearest:
        value = _rounded(value, dtype)
    conditions = [c for coordinate in coordinates.values() for c in coordinate.outside()] if cropped else []
    for condition in conditions:
        value = Guard(dtype, condition, lit(dtype, attrs["extrapolation_value"]), value)
    return value
