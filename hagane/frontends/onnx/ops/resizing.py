"""Resize and the older Upsample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, IntLike, const
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.ops.padding import as_int
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Value
from hagane.ops.resize_define import simplest

COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_crop_and_resize", "tf_half_pixel_for_nn",
)  # fmt: skip
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def scaled_dim(extent: Expr, scale: float) -> Expr:
    """floor(extent * scale) in 32 bits, as runtimes do; a dynamic extent takes the nearest fraction."""
    if extent.is_const:
        return const(int(np.floor(np.float32(extent.value) * np.float32(scale))))
    ratio = simplest(scale)
    return (extent * ratio.numerator) // ratio.denominator


def _resize(
    ctx: NodeContext,
    x: Value,
    scales: Sequence[float | None],
    sizes: Sequence[IntLike],
    **attrs: Any,
) -> Value:
    cropped = attrs["coordinate_transformation_mode"] == "tf_crop_and_resize"
    if all(s == 1.0 for s in scales) and tuple(sizes) == x.shape and not cropped:
        return x
    return ctx.op("resize", x, scales=tuple(scales), sizes=tuple(sizes), **attrs)


def _defaults() -> dict[str, Any]:
    """What Upsample and the first Resize do."""
    return {
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
        "cubic_coeff_a": -0.75,
        "exclude_outside": False,
        "extrapolation_value": 0.0,
        "antialias": False,
        "roi": (),
    }


@converter("Upsample", since=7)
@converter("Resize", since=10)
def upsample(ctx: NodeContext) -> Value:
    """Scales as an attribute or as an input, one for each axis."""
    x, mode = ctx.input(0), ctx.attrs.choice("mode", "nearest", ("nearest", "linear", "bilinear"))
    if ctx.op_type == "Upsample" and ctx.opset < 9:
        scales: Sequence[float] = ctx.attrs.floats("scales") or ()
    else:
        scales = [float(s) for s in ctx.known(1, "scales").reshape(-1)]
    if len(scales) != x.rank or any(s <= 0 for s in scales):
        raise ShapeError(f"{ctx.op_type} has the scales {list(scales)} for {x.type}")
    sizes = [as_int(scaled_dim(d, s)) for d, s in zip(x.shape, scales, strict=True)]
    return _resize(ctx, x, scales, sizes, mode=mode.removeprefix("bi"), **_defaults())


@converter("Resize", since=11)
def resize(ctx: NodeContext) -> Value:
    """Either scales or sizes, for all axes or (opset 18) for some."""
    x = ctx.input(0)
    attrs = {
        "mode": ctx.attrs.choice("mode", "nearest", ("nearest", "linear", "cubic")),
        "coordinate_transformation_mode": ctx.attrs.choice(
            "coordinate_transformation_mode", "half_pixel", COORDINATES
        ),
        "nearest_mode": ctx.attrs.choice("nearest_mode", "round_prefer_floor", NEAREST),
        "cubic_coeff_a": ctx.attrs.number("cubic_coeff_a", -0.75),
        "exclude_outside": ctx.attrs.flag("exclude_outside", False),
        "extrapolation_value": ctx.attrs.number("extrapolation_value", 0.0),
        "antialias": ctx.attrs.flag("antialias", False),
    }
    policy = ctx.attrs.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    given = ctx.attrs.ints("axes")
    axes = tuple(range(x.rank)) if given is None else ctx.axes(given, x.rank)
    scales, sizes = _targets(ctx, x, axes, policy)
    return _resize(ctx, x, scales, sizes, **attrs, roi=_roi(ctx, x, axes, attrs))


def _roi(ctx: NodeContext, x: Value, axes: Sequence[int], attrs: dict[str, Any]) -> tuple[float, ...]:
    """Starts and ends for all axes, in units of the whole axis; only one mode looks at it."""
    if attrs["coordinate_transformation_mode"] != "tf_crop_and_resize":
        return ()
    numbers = [float(v) for v in ctx.known(1, "region").reshape(-1)]
    if len(numbers) != 2 * len(axes):
        raise ModelError(f"the region of Resize has {len(numbers)} numbers for {len(axes)} axes")
    starts, ends = [0.0] * x.rank, [1.0] * x.rank
    for k, axis in enumerate(axes):
        starts[axis], ends[axis] = numbers[k], numbers[k + len(axes)]
    return (*starts, *ends)


def _targets(
    ctx: NodeContext, x: Value, axes: Sequence[int], policy: str
) -> tuple[list[float | None], list[IntLike]]:
    """Scale and size of each axis. A scale is None where a size was given: it is the ratio of extents."""
    scales: list[float | None] = [1.0] * x.rank
    sizes: list[IntLike] = [as_int(d) for d in x.shape]
    given = ctx.optional(3)
    if given is not None and given.static_shape != (0,):
        wanted = ctx.sizes(3, "sizes")
        if len(wanted) != len(axes):
            raise ShapeError(f"Resize has {len(wanted)} sizes for {len(axes)} axes of {x.type}")
        if policy != "stretch":
            return _keep_ratio(x, axes, [w.value if w.is_const else None for w in wanted], policy)
        for axis, size in zip(axes, wanted, strict=True):
            sizes[axis] = as_int(size)
            scales[axis] = 1.0 if size == x.shape[axis] else None
        return scales, sizes
    factors = [float(s) for s in ctx.known(2, "scales").reshape(-1)]
    if len(factors) != len(axes) or any(not s > 0 for s in factors):
        raise ShapeError(f"Resize has the scales {factors} for {len(axes)} axes of {x.type}")
    for axis, factor in zip(axes, factors, strict=True):
        scales[axis], sizes[axis] = factor, as_int(scaled_dim(x.shape[axis], factor))
    return scales, sizes


def _keep_ratio(
    x: Value, axes: Sequence[int], wanted: list[int | None], policy: str
) -> tuple[list[float | None], list[IntLike]]:
    """One scale for all axes: the smallest or the largest that the sizes ask for."""
    dims = [x.shape[a] for a in axes]
    known = [(w, d.value) for w, d in zip(wanted, dims, strict=True) if w is not None and d.is_const]
    ratios = [w / extent for w, extent in known if extent]
    if len(ratios) != len(axes):
        raise ModelError(f"Resize with keep_aspect_ratio_policy={policy} needs fixed dims, not {x.type}")
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    scales: list[float | None] = [1.0] * x.rank
    sizes: list[IntLike] = [as_int(d) for d in x.shape]
    for axis, dim in zip(axes, dims, strict=True):
        scales[axis], sizes[axis] = scale, int(np.floor(scale * dim.value + 0.5))
    return scales, sizes
