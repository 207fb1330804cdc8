"""Resize: every axis interpolated by nearest, linear or cubic weights, as ONNX says.

Source coordinates are exact fractions. A scale given as a float stands for the simplest fraction that rounds
to it in 32 bits (0.33333334 is 1/3), so that ties and floors come out as meant; None is the extents' ratio.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import to_expr
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ops.resize_define import MODES, NEAREST_MODES, TRANSFORMS, define, is_identity, simplest

Taps = tuple[Array, Array, Array]
"""For each output position of an axis: its taps' source positions and weights, and if it lies outside."""


def _infer(node: Node) -> list[Type]:
    x, attrs = node.input(0), node.attrs
    for name, known in (
        ("mode", MODES),
        ("coordinate_transformation_mode", TRANSFORMS),
        ("nearest_mode", NEAREST_MODES),
    ):
        if attrs[name] not in known:
            raise ModelError(
                f"resize has no {name} {attrs[name]!r}", next_step=f"use one of: {', '.join(known)}"
            )
    if not (x.dtype.is_float or x.dtype.is_int or attrs["mode"] == "nearest"):
        raise ModelError(f"resize interpolates numbers, not {x.dtype}")
    if not len(attrs["scales"]) == len(attrs["sizes"]) == x.rank:
        raise ShapeError(f"resize names {len(attrs['sizes'])} sizes for the {x.rank} axes of {x}")
    cropped = attrs["coordinate_transformation_mode"] == "tf_crop_and_resize"
    if cropped and len(attrs["roi"] or ()) != 2 * x.rank:
        raise ShapeError(f"resize needs a start and an end for each axis of {x} to crop it")
    shape = tuple(to_expr(s) for s in attrs["sizes"])
    for dim, size in zip(x.shape, shape, strict=True):
        if dim == 0 and size.is_const and size != 0:
            raise ShapeError(f"resize can't make {size} elements of none: {x}")
    return [Type(x.dtype, shape)]


def _source(attrs: Attrs, axis: int, y: int, length: int, size: int, ratio: Fraction) -> Fraction:
    """The coordinate in the input of output position y."""
    half, width = Fraction(1, 2), ratio * length
    match attrs["coordinate_transformation_mode"]:
        case "half_pixel":
            return (y + half) / ratio - half
        case "pytorch_half_pixel":
            return (y + half) / ratio - half if size > 1 else Fraction(0)
        case "tf_half_pixel_for_nn":
            return (y + half) / ratio
        case "asymmetric":
            return y / ratio
        case "align_corners":
            return y * (length - 1) / (width - 1) if width > 1 else Fraction(0)
        case "half_pixel_symmetric":
            offset = Fraction(length, 2) * (1 - size / width)
            return offset + (y + half) / ratio - half
        case _:
            roi = attrs["roi"]
            start, end = simplest(roi[axis]), simplest(roi[axis + len(roi) // 2])
            if width > 1:
                return (start + y * (end - start) / (width - 1)) * (length - 1)
            return (start + end) / 2 * (length - 1)


def _kernel(mode: str, distance: Array, a: float) -> Array:
    """The weight of a tap at a distance from the source coordinate, in taps of the filter."""
    u = np.abs(distance)
    if mode == "linear":
        return np.asarray(np.clip(1 - u, 0, 1))
    inner = ((a + 2) * u - (a + 3)) * u * u + 1
    outer = ((a * u - 5 * a) * u + 8 * a) * u - 4 * a
    return np.asarray(np.where(u <= 1, inner, np.where(u < 2, outer, 0)))


def _nearest(mode: str, x: Fraction) -> int:
    floor = x.numerator // x.denominator
    ceil = -(-x.numerator // x.denominator)
    if mode in ("floor", "ceil"):
        return floor if mode == "floor" else ceil
    above = x - floor
    return (
        ceil if above > Fraction(1, 2) or (above == Fraction(1, 2) and mode == "round_prefer_ceil") else floor
    )


def _taps(attrs: Attrs, axis: int, length: int, size: int) -> Taps:
    scale = attrs["scales"][axis]
    ratio = Fraction(size, length) if scale is None else simplest(scale)
    sources = [_source(attrs, axis, y, length, size, ratio) for y in range(size)]
    outside: Array = np.array([x < 0 or x > length - 1 for x in sources], bool)
    if attrs["mode"] == "nearest":
        positions = np.array([[_nearest(attrs["nearest_mode"], x)] for x in sources], np.int64)
        return np.clip(positions, 0, length - 1), np.ones(positions.shape), outside
    squeeze = min(ratio, Fraction(1)) if attrs["antialias"] else Fraction(1)
    support = 1 if attrs["mode"] == "linear" else 2
    reach = -(-support * squeeze.denominator // squeeze.numerator)
    floors = np.array([x.numerator // x.denominator for x in sources], np.int64)
    fractions = np.array([float(x - x.numerator // x.denominator) for x in sources])
    steps = np.arange(1 - reach, 1 + reach)
    weights = _kernel(attrs["mode"], (steps - fractions[:, None]) * float(squeeze), attrs["cubic_coeff_a"])
    positions = floors[:, None] + steps
    if attrs["exclude_outside"]:
        weights = np.where((positions < 0) | (positions >= length), 0, weights)
    total = weights.sum(axis=1, keepdims=True)
    if attrs["exclude_outside"] or attrs["antialias"]:
        weights = weights / np.where(total == 0, 1, total)
    return np.clip(positions, 0, length - 1), weights, outside


def _reference(attrs: Attrs, x: Array) -> Array:
    cropped = attrs["coordinate_transformation_mode"] == "tf_crop_and_resize"
    nearest = attrs["mode"] == "nearest"
    result = x if nearest else x.astype(np.float64)
    beyond = np.zeros(tuple(attrs["sizes"]), bool)
    for axis, size in enumerate(attrs["sizes"]):
        length = x.shape[axis]
        if is_identity(attrs, axis, size == length):
            continue
        if size == 0:
            return np.zeros(tuple(attrs["sizes"]), x.dtype)
        positions, weights, outside = _taps(attrs, axis, length, size)
        along = [1] * axis + [size] + [1] * (x.ndim - axis - 1)
        beyond |= outside.reshape(along)
        total: Any = 0
        for tap in range(positions.shape[1]):
            part = np.take(result, positions[:, tap], axis=axis)
            total = part if nearest else total + part * weights[:, tap].reshape(along)
        result = total
    if cropped:
        result = np.where(beyond, np.asarray(attrs["extrapolation_value"]).astype(result.dtype), result)
    if x.dtype.kind in "iu" and not nearest:
        limits = np.iinfo(x.dtype)
        result = np.clip(np.rint(result), int(limits.min), int(limits.max))
    return np.asarray(result).astype(x.dtype)


def _attrs(
    mode: str, scales: tuple[float | None, ...], sizes: tuple[int, ...], transform: str, **changed: Any
) -> Attrs:
    plain = {
        "mode": mode,
        "scales": scales,
        "sizes": sizes,
        "coordinate_transformation_mode": transform,
        "nearest_mode": "round_prefer_floor",
        "cubic_coeff_a": -0.75,
        "exclude_outside": False,
        "extrapolation_value": 0.0,
        "antialias": False,
        "roi": None,
    }
    return plain | changed


def _samples() -> Iterable[Sample]:
    x = np.random.default_rng(0).standard_normal((1, 2, 6, 9)).astype(np.float32)
    dynamic = ((0, 1), (0, 2), (0, 3))
    plain = [t for t in TRANSFORMS if t != "tf_crop_and_resize"]
    double, ratio = (1.0, 1.0, 2.0, 2.0), (1.0, 1.0, None, None)
    for mode, transform in itertools.product(MODES, plain):
        for sizes in ((1, 2, 12, 27), (1, 2, 4, 5), (1, 2, 1, 1)):
            yield Sample((x,), _attrs(mode, ratio, sizes, transform), dynamic)
        yield Sample((x,), _attrs(mode, double, (1, 2, 12, 18), transform), dynamic[:1])
        third = float(np.float32(1) / np.float32(3))
        yield Sample((x,), _attrs(mode, (1.0, 1.0, third, 0.6), (1, 2, 2, 5), transform), dynamic)
    for nearest, transform in itertools.product(NEAREST_MODES, ("half_pixel", "asymmetric", "align_corners")):
        yield Sample((x,), _attrs("nearest", ratio, (1, 2, 8, 6), transform, nearest_mode=nearest), dynamic)
    for mode in MODES:
        roi = (0.0, 0.0, 0.4, 0.6, 1.0, 1.0, 1.2, 1.7)
        crop: dict[str, Any] = {"transform": "tf_crop_and_resize", "roi": roi, "extrapolation_value": 10.0}
        yield Sample((x,), _attrs(mode, (1.0, 1.0, 0.8, None), (1, 2, 4, 8), **crop), dynamic)
        yield Sample((x,), _attrs(mode, ratio, (1, 2, 1, 1), **crop), dynamic)
    for mode in ("linear", "cubic"):
        for scales, sizes in (((1.0, 1.0, 0.6, 0.4), (1, 2, 3, 3)), (ratio, (1, 2, 4, 20))):
            for outside in (False, True):
                more = {"antialias": True, "exclude_outside": outside}
                yield Sample((x,), _attrs(mode, scales, sizes, "half_pixel", **more), dynamic)
        yield Sample((x,), _attrs(mode, double, (1, 2, 12, 18), "half_pixel", exclude_outside=True))
        numbers = (x[0] * 40).astype(np.int8)
        yield Sample((numbers,), _attrs(mode, (1.0, 2.0, 2.0), (2, 12, 18), "half_pixel"))
    yield Sample((x[0, 0] > 0,), _attrs("nearest", (2.0, 3.0), (12, 27), "asymmetric", nearest_mode="floor"))
    yield Sample((x[0].astype(np.float16),), _attrs("linear", (1.0, 2.0, 2.0), (2, 12, 18), "half_pixel"))
    yield Sample((x[:0],), _attrs("linear", double, (0, 2, 12, 18), "half_pixel"))


register(OpDef("resize", "movement", _infer, _reference, define=define, samples=_samples))
