"""Transposed convolution: x[N, C, *spatial], w[C, M/group, *kernel], bias[M] or none.

Every input element adds a copy of the kernel to the output, at `stride` times its position; pads are cut off.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, ceildiv, const, to_expr
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Guard, Index, IndexValue, Read, Scalar, at_least, below, both, cast, fn, lit
from hagane.ops.conv import check_bias, conv_attrs
from hagane.ops.loops import accumulator, loops
from hagane.ops.shapes import require_same
from hagane.ops.windows import Windows, pad_spatial, taps, windows_of


def _windows(node: Node) -> tuple[Windows, tuple[Expr, ...]]:
    """The windows and the output padding. Raises: ShapeError."""
    rank = node.input(0).rank - 2
    extra = tuple(to_expr(p) for p in node.attrs["output_padding"])
    if len(extra) != rank:
        raise ShapeError(f"output_padding={extra} should have one entry for each of {rank} spatial axes")
    return windows_of(node.attrs, node.input(1).shape[2:], rank), extra


def _infer(node: Node) -> list[Type]:
    x, w, group = node.input(0), node.input(1), node.attrs["group"]
    require_same(x, w)
    if x.rank < 3 or w.rank != x.rank:
        raise ShapeError(
            f"conv_transpose takes x[N, C, spatial...] and w[C, M/group, kernel...], not {x}, {w}"
        )
    channels, wanted = x.shape[1], w.shape[0]
    if channels.is_const and wanted.is_const and (channels != wanted or channels.value % group):
        raise ShapeError(
            f"conv_transpose input has {channels} channels, the weight is for {wanted} in {group} groups"
        )
    windows, extra = _windows(node)
    spatial: list[Expr] = []
    for axis, extent in enumerate(x.shape[2:]):
        full = (extent - 1) * windows.strides[axis] + windows.reach(axis) + extra[axis]
        length = full - windows.pads_begin[axis] - windows.pads_end[axis]
        if length.is_const and length.value < 0:
            raise ShapeError(f"the pads of conv_transpose are longer than the {full} elements of axis {axis}")
        spatial.append(length)
    filters = w.shape[1] * group
    check_bias(node, filters)
    return [Type(x.dtype, (x.shape[0], filters, *spatial))]


def _num_steps(windows: Windows, axis: int) -> Expr:
    """Taps of the kernel to visit per output: those of one phase where dilation permits, else all."""
    if windows.dilations[axis] == 1:
        return ceildiv(windows.kernel[axis], windows.strides[axis])
    return windows.kernel[axis]


def _source(
    windows: Windows, axis: int, output: Expr, step: Expr, extent: Expr, extra: Expr
) -> tuple[Expr, Expr, list[Scalar]]:
    """Input position and kernel tap for a step of the loop at an output position, and when they are valid."""
    kernel, stride, dilation = windows.kernel[axis], windows.strides[axis], windows.dilations[axis]
    begin, end = windows.pads_begin[axis], windows.pads_end[axis]
    conditions: list[Scalar] = []
    if dilation == 1:
        position, tap = (output + begin) // stride - step, (output + begin) % stride + step * stride
        if kernel % stride != 0:
            conditions.append(below(tap, kernel))
        lowest = begin // stride - (_num_steps(windows, axis) - 1)
    else:
        start, tap = output + begin - step * dilation, step
        position = start // stride
        if stride != 1:
            remainder = IndexValue(DType.I64, start % stride)
            conditions.append(fn("eq", remainder, lit(DType.I64, 0), dtype=DType.BOOL))
        lowest = (begin - (kernel - 1) * dilation) // stride
    if not (lowest.is_const and lowest.value >= 0):
        conditions.append(at_least(position, const(0)))
    beyond = (windows.reach(axis) + extra - end - 1) // stride
    if not (beyond.is_const and beyond.value <= 0):
        conditions.append(below(position, extent))
    return position, tap, conditions


def _define(node: Node, read: Read, index: Index, output: int) -> Scalar:
    x, w, group = node.input(0), node.input(1), node.attrs["group"]
    windows, extra = _windows(node)
    wide = accumulator(x.dtype)
    per_group = x.shape[1] // group
    nest = loops(index, [per_group, *(_num_steps(windows, a) for a in range(windows.rank))])
    channel, steps = nest.positions[0], nest.positions[1:]
    filter_index = index[1]
    if group != 1:
        channel = index[1] // w.shape[1] * per_group + channel
        filter_index = index[1] % w.shape[1]
    positions: list[Expr] = []
    kernel_taps: list[Expr] = []
    conditions: list[Scalar] = []
    for axis, extent in enumerate(x.shape[2:]):
        position, tap, needed = _source(windows, axis, index[axis + 2], steps[axis], extent, extra[axis])
        positions.append(position)
        kernel_taps.append(tap)
        conditions += needed
    element = cast(read(0, (index[0], channel, *positions)), wide)
    term: Scalar = fn("mul", element, cast(read(1, (channel, filter_index, *kernel_taps)), wide))
    if conditions:
        term = Guard(wide, both(*conditions), term, lit(wide, 0))
    total = nest.reduce("sum", term)
    if node.optional(2) is not None:
        total = fn("add", total, cast(read(2, index[1:2]), wide))
    return cast(total, x.dtype)


def _conv_transpose(attrs: Attrs, x: Array, w: Array, bias: Array | None = None) -> Array:
    group, kernel, rank = attrs["group"], w.shape[2:], x.ndim - 2
    strides, dilations, extra = attrs["strides"], attrs["dilations"], attrs["output_padding"]
    spatial = x.shape[2:]
    full = [
        (d - 1) * s + (k - 1) * dil + 1 + e
        for d, s, k, dil, e in zip(spatial, strides, kernel, dilations, extra, strict=True)
    ]
    inner, outer = w.shape[0] // group, w.shape[1] * int(np.prod(kernel))
    matrix = w.reshape(group, inner, outer).transpose(0, 2, 1)
    y = np.zeros((x.shape[0], group, w.shape[1], *full), np.result_type(x, w))
    for image in range(x.shape[0]):
        copies = np.matmul(matrix, x[image].reshape(group, inner, int(np.prod(spatial))))
        copies = copies.reshape(group, w.shape[1], *kernel, *spatial)
        for tap in taps(kernel):
            place: Any = tuple(
                slice(t * dil, t * dil + (d - 1) * s + 1, s)
                for t, dil, d, s in zip(tap, dilations, spatial, strides, strict=True)
            )
            y[image][(slice(None), slice(None), *place)] += copies[:, :, *tap]
    y = y.reshape((x.shape[0], group * w.shape[1], *full))
    y = pad_spatial(y, tuple(-p for p in attrs["pads_begin"]), tuple(-p for p in attrs["pads_end"]))
    return y if bias is None else y + bias.reshape((1, -1) + (1,) * rank)


def _samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)

    def x(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    def attrs(rank: int, group: int = 1, **changed: tuple[int, ...]) -> Attrs:
        return {"output_padding": (0,) * rank} | conv_attrs(rank, group, **changed)

    free = ((0, 0), (0, 2), (0, 3))
    ones: Attrs = {"pads_begin": (1, 1), "pads_end": (1, 1)}
    yield Sample((x(2, 5, 6, 7), x(5, 3, 2, 2), x(3)), attrs(2, strides=(2, 2)), dynamic=free)
    yield Sample((x(1, 5, 6, 7), x(5, 3, 4, 4), x(3)), attrs(2, strides=(2, 2), **ones), dynamic=free)
    uneven = attrs(2, strides=(2, 2), output_padding=(1, 1), **ones)
    yield Sample((x(1, 5, 6, 7), x(5, 3, 3, 3), None), uneven, dynamic=free)
    yield Sample((x(1, 5, 6, 7), x(5, 3, 3, 3), x(3)), attrs(2, **ones), dynamic=free)
    yield Sample(
        (x(1, 4, 5, 6), x(4, 3, 3, 2), x(6)), attrs(2, 2, strides=(3, 2), dilations=(2, 3)), dynamic=free
    )
    yield Sample((x(1, 4, 5, 6), x(4, 1, 3, 3), x(4)), attrs(2, 4, strides=(2, 1), pads_begin=(0, 1)))
    yield Sample((x(2, 3, 9), x(3, 4, 5), x(4)), attrs(1, strides=(3,), pads_end=(2,)), dynamic=((0, 2),))
    yield Sample((x(1, 2, 3, 4, 3), x(2, 2, 2, 3, 2), None), attrs(3, strides=(2, 1, 2)))
    half = [a.astype(np.float16) for a in (x(1, 4, 5, 5), x(4, 3, 3, 3), x(3))]
    yield Sample(tuple(half), attrs(2, strides=(2, 2)))


register(OpDef("conv_transpose", "contraction", _infer, _conv_transpose, define=_define, samples=_samples))
