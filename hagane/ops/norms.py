"""Normalisations: layer, RMS, instance, group, batch (inference), Lp and local response.

Variances are taken in two passes, the mean first: one pass over squares cancels for a large mean. In the
definitions every sum depends on the outer axes only, so that a code generator computes it once per row.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, const
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Guard, Index, Read, Scalar, at_least, below, both, cast, fn, lit
from hagane.ops.loops import Loops, accumulator, count, loops, loops_over
from hagane.ops.shapes import broadcast_index, broadcast_shapes, normal_axis


def _float_input(node: Node) -> Type:
    x = node.input(0)
    if not x.dtype.is_float:
        raise ShapeError(f"{node.op} takes floats, not {x.dtype}")
    return x.type


def _read_wide(node: Node, read: Read, position: int, index: Index) -> Scalar:
    return cast(read(position, index), accumulator(node.input(0).dtype))


def _affine(node: Node, read: Read, value: Scalar, scale_index: Index, bias_index: Index) -> Scalar:
    """value * scale + bias, each where present, in x's dtype."""
    if node.optional(1) is not None:
        value = fn("mul", value, _read_wide(node, read, 1, scale_index))
    if node.optional(2) is not None:
        value = fn("add", value, _read_wide(node, read, 2, bias_index))
    return cast(value, node.input(0).dtype)


def _standardised(
    node: Node,
    read: Read,
    index: Index,
    nests: tuple[Loops, Loops],
    inside: tuple[Index, Index],
    number: Scalar,
) -> Scalar:
    """(x - mean) / sqrt(variance + eps); nests and inside: the loops of the mean and of the variance."""
    wide = accumulator(node.input(0).dtype)
    mean = fn("div", nests[0].reduce("sum", _read_wide(node, read, 0, inside[0])), number)
    distance = fn("sub", _read_wide(node, read, 0, inside[1]), mean)
    variance = fn("div", nests[1].reduce("sum", fn("mul", distance, distance)), number)
    scale = fn("rsqrt", fn("add", variance, lit(wide, node.attrs["eps"])))
    return fn("mul", fn("sub", _read_wide(node, read, 0, index), mean), scale)


def _over_axes(node: Node, read: Read, index: Index, axes: Iterable[int]) -> Scalar:
    """x standardised over whole axes."""
    x = node.input(0)
    chosen = list(axes)
    mean_nest, at_mean = loops_over(index, x.shape, chosen, "m")
    nest, at_variance = loops_over(index, x.shape, chosen, "k")
    number = count([x.shape[a] for a in chosen], accumulator(x.dtype))
    return _standardised(node, read, index, (mean_nest, nest), (at_mean, at_variance), number)


# ---- layer_norm, rms_norm: over axis..rank-1; scale and bias broadcast to x from the right


def _infer_trailing(node: Node) -> list[Type]:
    x = _float_input(node)
    normal_axis(node.attrs["axis"], len(x.shape))
    for position in (1, 2):
        parameter = node.optional(position)
        if parameter is not None and len(broadcast_shapes(x.shape, parameter.shape)) != len(x.shape):
            raise ShapeError(f"{node.op} can't broadcast {parameter} to its input {x}")
    return [x]


def _trailing_affine(node: Node, read: Read, value: Scalar, index: Index) -> Scalar:
    x = node.input(0)
    indices: list[Index] = []
    for position in (1, 2):
        parameter = node.optional(position)
        indices.append(() if parameter is None else broadcast_index(parameter.shape, x.shape, index))
    return _affine(node, read, value, indices[0], indices[1])


def _define_layer_norm(node: Node, read: Read, index: Index, output: int) -> Scalar:
    rank = node.input(0).rank
    value = _over_axes(node, read, index, range(normal_axis(node.attrs["axis"], rank), rank))
    return _trailing_affine(node, read, value, index)


def _define_rms_norm(node: Node, read: Read, index: Index, output: int) -> Scalar:
    x = node.input(0)
    wide = accumulator(x.dtype)
    axes = range(normal_axis(node.attrs["axis"], x.rank), x.rank)
    nest, inside = loops_over(index, x.shape, axes)
    element = _read_wide(node, read, 0, inside)
    mean = fn("div", nest.reduce("sum", fn("mul", element, element)), count([x.shape[a] for a in axes], wide))
    scale = fn("rsqrt", fn("add", mean, lit(wide, node.attrs["eps"])))
    return _trailing_affine(node, read, fn("mul", _read_wide(node, read, 0, index), scale), index)


def _scale_and_shift(value: Array, scale: Array | None, bias: Array | None) -> Array:
    if scale is not None:
        value = value * scale
    return value if bias is None else np.asarray(value + bias)


def _standardise(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    distance = x - x.mean(axis=axes, keepdims=True)
    return np.asarray(distance / np.sqrt(np.square(distance).mean(axis=axes, keepdims=True) + eps))


def _layer_norm(attrs: Attrs, x: Array, scale: Array | None = None, bias: Array | None = None) -> Array:
    axes = tuple(range(attrs["axis"] % x.ndim, x.ndim))
    return _scale_and_shift(_standardise(x, axes, attrs["eps"]), scale, bias)


def _rms_norm(attrs: Attrs, x: Array, scale: Array | None = None) -> Array:
    axes = tuple(range(attrs["axis"] % x.ndim, x.ndim))
    return _scale_and_shift(
        x / np.sqrt(np.square(x).mean(axis=axes, keepdims=True) + attrs["eps"]), scale, None
    )


# ---- instance_norm, group_norm, batch_norm: axis 1 holds the channels


def _infer_channels(node: Node) -> list[Type]:
    x = _float_input(node)
    channels = x.shape[1] if len(x.shape) > 1 else const(1)
    for value in node.inputs[1:]:
        if value is None:
            continue
        if value.rank != 1:
            raise ShapeError(f"{node.op} takes one number per channel, not {value}")
        if channels.is_const and value.shape[0].is_const and channels != value.shape[0]:
            raise ShapeError(f"{node.op} input {x} has {channels} channels, {value} is for {value.shape[0]}")
    return [x]


def _infer_group_norm(node: Node) -> list[Type]:
    x = _float_input(node)
    groups = node.attrs["groups"]
    if len(x.shape) < 2 or (x.shape[1].is_const and x.shape[1].value % groups):
        raise ShapeError(f"group_norm can't split the channels of {x} into {groups} groups")
    return _infer_channels(node)


def _define_instance_norm(node: Node, read: Read, index: Index, output: int) -> Scalar:
    value = _over_axes(node, read, index, range(2, node.input(0).rank))
    return _affine(node, read, value, index[1:2], index[1:2])


def _define_group_norm(node: Node, read: Read, index: Index, output: int) -> Scalar:
    x = node.input(0)
    size = x.shape[1] // node.attrs["groups"]
    extents = [size, *x.shape[2:]]
    first = index[1] // size * size

    def inside(nest: Loops) -> Index:
        return (index[0], first + nest.positions[0], *nest.positions[1:])

    mean_nest, nest = loops(index[:2], extents, "m"), loops(index[:2], extents, "k")
    number = count(extents, accumulator(x.dtype))
    value = _standardised(node, read, index, (mean_nest, nest), (inside(mean_nest), inside(nest)), number)
    return _affine(node, read, value, index[1:2], index[1:2])


def _define_batch_norm(node: Node, read: Read, index: Index, output: int) -> Scalar:
    wide = accumulator(node.input(0).dtype)
    channel = index[1:2] if len(index) > 1 else (const(0),)
    scale, bias, mean, variance = (_read_wide(node, read, k, channel) for k in range(1, 5))
    factor = fn("mul", scale, fn("rsqrt", fn("add", variance, lit(wide, node.attrs["eps"]))))
    centred = fn("sub", _read_wide(node, read, 0, index), mean)
    return cast(fn("add", fn("mul", centred, factor), bias), node.input(0).dtype)


def _per_channel(parameter: Array, x: Array) -> Array:
    return parameter.reshape((-1,) + (1,) * max(x.ndim - 2, 0))


def _instance_norm(attrs: Attrs, x: Array, scale: Array, bias: Array) -> Array:
    standardised = _standardise(x, tuple(range(2, x.ndim)), attrs["eps"])
    return _scale_and_shift(standardised, _per_channel(scale, x), _per_channel(bias, x))


def _group_norm(attrs: Attrs, x: Array, scale: Array, bias: Array) -> Array:
    grouped = x.reshape(x.shape[0], attrs["groups"], -1)
    standardised = _standardise(grouped, (2,), attrs["eps"]).reshape(x.shape)
    return _scale_and_shift(standardised, _per_channel(scale, x), _per_channel(bias, x))


def _batch_norm(attrs: Attrs, x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Array:
    scale, bias, mean, variance = (_per_channel(p, x) for p in (scale, bias, mean, variance))
    return np.asarray((x - mean) / np.sqrt(variance + attrs["eps"]) * scale + bias)


# ---- lp_norm, lrn


def _infer_lp_norm(node: Node) -> list[Type]:
    x = _float_input(node)
    normal_axis(node.attrs["axis"], len(x.shape))
    if node.attrs["p"] not in (1, 2):
        raise ShapeError(f"lp_norm knows p = 1 and p = 2, not {node.attrs['p']}")
    return [x]


def _define_lp_norm(node: Node, read: Read, index: Index, output: int) -> Scalar:
    x = node.input(0)
    wide = accumulator(x.dtype)
    nest, inside = loops_over(index, x.shape, [normal_axis(node.attrs["axis"], x.rank)])
    element = _read_wide(node, read, 0, inside)
    if node.attrs["p"] == 1:
        norm = nest.reduce("sum", fn("abs", element))
    else:
        norm = fn("sqrt", nest.reduce("sum", fn("mul", element, element)))
    zero, one = lit(wide, 0), lit(wide, 1)
    is_zero = fn("eq", norm, zero, dtype=DType.BOOL)
    quotient = fn("div", _read_wide(node, read, 0, index), Guard(wide, is_zero, one, norm))
    return cast(Guard(wide, is_zero, zero, quotient), x.dtype)


def _lp_norm(attrs: Attrs, x: Array) -> Array:
    norm = np.linalg.norm(x, ord=attrs["p"], axis=attrs["axis"], keepdims=True)
    return np.asarray(np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)))


def _define_lrn(node: Node, read: Read, index: Index, output: int) -> Scalar:
    x, size = node.input(0), node.attrs["size"]
    wide = accumulator(x.dtype)
    nest = loops(index, [size])
    channel: Expr = index[1] + nest.positions[0] - (size - 1) // 2
    element = _read_wide(node, read, 0, (index[0], channel, *index[2:]))
    valid = both(at_least(channel, const(0)), below(channel, x.shape[1]))
    total = nest.reduce("sum", Guard(wide, valid, fn("mul", element, element), lit(wide, 0)))
    base = fn("add", lit(wide, node.attrs["bias"]), fn("mul", lit(wide, node.attrs["alpha"] / size), total))
    factor = fn("pow", base, lit(wide, -node.attrs["beta"]))
    return cast(fn("mul", _read_wide(node, read, 0, index), factor), x.dtype)


def _lrn(attrs: Attrs, x: Array) -> Array:
    size, channels = attrs["size"], x.shape[1]
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    pads = [(0, 0), (before, after)] + [(0, 0)] * (x.ndim - 2)
    squares = np.pad(np.square(x), pads)
    total = sum(squares[:, k : k + channels] for k in range(size))
    return np.asarray(x / (attrs["bias"] + attrs["alpha"] / size * total) ** attrs["beta"])


# ---- samples


def _normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _trailing_samples(with_bias: bool) -> Iterable[Sample]:
    def parameters(x: Array, *shape: int) -> tuple[Array, ...]:
        both_parameters = (_normal(*shape).astype(x.dtype), (_normal(*shape) + 1).astype(x.dtype))
        return both_parameters if with_bias else both_parameters[:1]

    x = _normal(3, 5, 37) * 2 + 1
    attrs = {"axis": -1, "eps": 1e-5}
    yield Sample((x, *parameters(x, 37)), attrs, dynamic=((0, 0), (0, 1)))
    yield Sample((x, *parameters(x, 5, 37)), {"axis": 1, "eps": 1e-3}, dynamic=((0, 0),))
    yield Sample((x, *parameters(x, 5, 1)), {"axis": 2, "eps": 1e-5})
    half = x.astype(np.float16)
    yield Sample((half, *parameters(half, 37)), attrs, dynamic=((0, 1),))
    yield Sample((x + 50, *parameters(x, 37)), attrs)
    if with_bias:
        yield Sample((x, _normal(37), None), attrs)


def _channel_samples(groups: int | None) -> Iterable[Sample]:
    attrs = {"eps": 1e-5} | ({} if groups is None else {"groups": groups})
    yield Sample((_normal(2, 6, 5, 7), _normal(6), _normal(6) + 1), attrs, dynamic=((0, 0), (0, 2), (0, 3)))
    yield Sample((_normal(1, 6, 19) + 20, _normal(6), _normal(6) + 1), attrs, dynamic=((0, 2),))
    half = [a.astype(np.float16) for a in (_normal(2, 6, 3, 3), _normal(6), _normal(6))]
    yield Sample(tuple(half), attrs)
    yield Sample((_normal(2, 6, 2, 3, 4), _normal(6), _normal(6)), attrs)


def _batch_norm_samples() -> Iterable[Sample]:
    def parameters(channels: int) -> tuple[Array, ...]:
        return (
            _normal(channels),
            _normal(channels) + 1,
            _normal(channels) - 1,
            np.square(_normal(channels)) + 0.1,
        )

    attrs = {"eps": 1e-5}
    yield Sample((_normal(2, 7, 5, 9), *parameters(7)), attrs, dynamic=((0, 0), (0, 2), (0, 3)))
    yield Sample((_normal(3, 17), *parameters(17)), attrs, dynamic=((0, 0),))
    yield Sample((_normal(2, 3, 11), *parameters(3)), attrs)
    yield Sample((_normal(9), *parameters(1)), attrs)
    yield Sample((_normal(2, 7, 3, 3).astype(np.float16), *parameters(7)), attrs)


def _lp_norm_samples() -> Iterable[Sample]:
    x = _normal(3, 5, 19)
    x[1, :, 4] = 0
    for p in (1, 2):
        yield Sample((x,), {"axis": -1, "p": p}, dynamic=((0, 0), (0, 2)))
        yield Sample((x,), {"axis": 1, "p": p}, dynamic=((0, 1),))
    yield Sample((x.astype(np.float16),), {"axis": 2, "p": 2})


def _lrn_samples() -> Iterable[Sample]:
    x = _normal(2, 7, 3, 5)
    yield Sample((x,), {"size": 3, "alpha": 0.1, "beta": 0.75, "bias": 1.0}, dynamic=((0, 0), (0, 1), (0, 2)))
    yield Sample((x,), {"size": 4, "alpha": 0.5, "beta": 0.5, "bias": 2.0})
    yield Sample((x.astype(np.float16),), {"size": 5, "alpha": 1e-2, "beta": 0.75, "bias": 1.0})


_KIND = "normalisation"

register(
    OpDef(
        "layer_norm",
        _KIND,
        _infer_trailing,
        _layer_norm,
        define=_define_layer_norm,
        samples=lambda: _trailing_samples(with_bias=True),
    )
)
register(
    OpDef(
        "rms_norm",
        _KIND,
        _infer_trailing,
        _rms_norm,
        define=_define_rms_norm,
        samples=lambda: _trailing_samples(with_bias=False),
    )
)
register(
    OpDef(
        "instance_norm",
        _KIND,
        _infer_channels,
        _instance_norm,
        define=_define_instance_norm,
        samples=lambda: _channel_samples(None),
    )
)
register(
    OpDef(
        "group_norm",
        _KIND,
        _infer_group_norm,
        _group_norm,
        define=_define_group_norm,
        samples=lambda: _channel_samples(3),
    )
)
register(
    OpDef(
        "batch_norm",
        _KIND,
        _infer_channels,
        _batch_norm,
        define=_define_batch_norm,
        samples=_batch_norm_samples,
    )
)
register(OpDef("lp_norm", _KIND, _infer_lp_norm, _lp_norm, define=_define_lp_norm, samples=_lp_norm_samples))
register(
    OpDef("lrn", _KIND, lambda node: [_float_input(node)], _lrn, define=_define_lrn, samples=_lrn_samples)
)
