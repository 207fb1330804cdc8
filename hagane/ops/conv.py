"""Convolution over any number of spatial axes: x[N, C, *spatial], w[M, C/group, *kernel], bias[M] or none."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Guard, Index, Read, Scalar, both, cast, fn, lit
from hagane.ops.loops import accumulator, loops
from hagane.ops.shapes import require_same
from hagane.ops.windows import at_tap, taps, view_windows, windows_of

# At most this many elements of the matrix of patches are made at once: 64 MiB of float64.
_PATCH_ELEMENTS = 1 << 23


def conv_output_shape(node: Node) -> tuple[Expr, ...]:
    """Shape of the result of conv and conv_integer. Raises: ShapeError."""
    x, w, group = node.input(0), node.input(1), node.attrs["group"]
    if x.rank < 3 or w.rank != x.rank:
        raise ShapeError(
            f"{node.op} takes x[N, C, spatial...] and w[M, C/group, kernel...] of one rank, not {x}, {w}"
        )
    channels, wanted, filters = x.shape[1], w.shape[1] * group, w.shape[0]
    if channels.is_const and wanted.is_const and channels != wanted:
        raise ShapeError(
            f"{node.op} input has {channels} channels, the weight wants {wanted} (group={group})"
        )
    if filters.is_const and filters.value % group:
        raise ShapeError(f"{node.op} can't split {filters} filters into {group} groups")
    windows = windows_of(node.attrs, w.shape[2:], x.rank - 2)
    return (x.shape[0], filters, *windows.outputs(x.shape[2:]))


def check_bias(node: Node, filters: Expr) -> None:
    """Raises: ShapeError unless bias is absent or [filters]."""
    bias = node.optional(2)
    if bias is None:
        return
    require_same(node.input(0), bias)
    if bias.rank != 1 or (bias.shape[0].is_const and filters.is_const and bias.shape[0] != filters):
        raise ShapeError(f"{node.op} has {filters} filters, its bias is {bias}")


def _infer(node: Node) -> list[Type]:
    x = node.input(0)
    require_same(x, node.input(1))
    shape = conv_output_shape(node)
    check_bias(node, shape[1])
    return [Type(x.dtype, shape)]


def define_sum(node: Node, read_x: Read, read_w: Read, index: Index) -> Scalar:
    """Sum over channels of the group and kernel taps of x * w; padding reads as zero.

    read_x, read_w give elements of x and w, converted to the accumulator's type.
    """
    x, w, group = node.input(0), node.input(1), node.attrs["group"]
    windows = windows_of(node.attrs, w.shape[2:], x.rank - 2)
    nest = loops(index, w.shape[1:])
    channel, kernel = nest.positions[0], nest.positions[1:]
    if group != 1:
        channel = index[1] // (w.shape[0] // group) * w.shape[1] + channel
    positions = windows.positions(index[2:], kernel)
    element = read_x(0, (index[0], channel, *positions))
    conditions = windows.inside(positions, x.shape[2:])
    if conditions:
        element = Guard(element.dtype, both(*conditions), element, lit(element.dtype, 0))
    return nest.reduce("sum", fn("mul", element, read_w(1, (index[1], *nest.positions))))


def _define(node: Node, read: Read, index: Index, output: int) -> Scalar:
    dtype = node.input(0).dtype
    wide = accumulator(dtype)

    def read_wide(position: int, at: Index) -> Scalar:
        return cast(read(position, at), wide)

    total = define_sum(node, read_wide, read_wide, index)
    if node.optional(2) is not None:
        total = fn("add", total, read_wide(2, index[1:2]))
    return cast(total, dtype)


def convolve(attrs: Attrs, x: Array, w: Array) -> Array:
    """The convolution by matrices of patches; one product per kernel tap where a group has one channel."""
    kernel, group = w.shape[2:], attrs["group"]
    view = view_windows(x, kernel, attrs)
    rank = len(kernel)
    outputs = view.shape[2 : 2 + rank]
    num_images, per_group = x.shape[0], w.shape[0] // group
    if w.shape[1] == 1 and group > 1:
        y = np.zeros((num_images, group, per_group, *outputs), np.result_type(x, w))
        for tap in taps(kernel):
            weights = at_tap(w[:, 0], tap).reshape((group, per_group) + (1,) * rank)
            y += at_tap(view, tap)[:, :, None] * weights
        return y.reshape((num_images, w.shape[0], *outputs))
    y = np.empty((num_images, group, per_group, *outputs), np.result_type(x, w))
    terms = int(np.prod(w.shape[1:]))
    matrix = w.reshape(group, per_group, terms)
    row_elements = x.shape[1] * int(np.prod(kernel)) * int(np.prod(outputs[1:]))
    rows = max(1, _PATCH_ELEMENTS // max(row_elements, 1))
    order = (0, *range(1 + rank, 1 + 2 * rank), *range(1, 1 + rank))
    for image in range(num_images):
        for first in range(0, outputs[0], rows):
            patches = view[image, :, first : first + rows].transpose(order)
            positions = patches.shape[1 + rank :]
            part = np.matmul(matrix, patches.reshape(group, terms, int(np.prod(positions))))
            y[image, :, :, first : first + rows] = part.reshape((group, per_group, *positions))
    return y.reshape((num_images, w.shape[0], *outputs))


def _conv(attrs: Attrs, x: Array, w: Array, bias: Array | None = None) -> Array:
    y = convolve(attrs, x, w)
    return y if bias is None else y + bias.reshape((1, -1) + (1,) * (x.ndim - 2))


def conv_attrs(rank: int, group: int = 1, **changed: tuple[int, ...]) -> Attrs:
    """Attributes of a convolution: no padding, strides and dilations of one unless given."""
    plain = {"strides": 1, "pads_begin": 0, "pads_end": 0, "dilations": 1}
    attrs: Attrs = {name: (value,) * rank for name, value in plain.items()}
    return attrs | {"group": group} | changed


def _samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)

    def x(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    same: Attrs = {"pads_begin": (1, 1), "pads_end": (1, 1)}
    free = ((0, 0), (0, 2), (0, 3))
    yield Sample((x(2, 5, 9, 11), x(7, 5, 3, 3), x(7)), conv_attrs(2, **same), dynamic=free)
    yield Sample((x(1, 16, 7, 7), x(33, 16, 1, 1), x(33)), conv_attrs(2), dynamic=free)
    yield Sample(
        (x(1, 3, 23, 21), x(16, 3, 7, 7), None),
        conv_attrs(2, strides=(2, 2), pads_begin=(3, 3), pads_end=(3, 3)),
    )
    yield Sample(
        (x(1, 6, 9, 8), x(6, 1, 3, 3), x(6)), conv_attrs(2, group=6, strides=(2, 1), **same), dynamic=free
    )
    yield Sample((x(2, 6, 9, 8), x(12, 1, 5, 5), x(12)), conv_attrs(2, group=6), dynamic=free)
    yield Sample((x(1, 8, 6, 7), x(12, 4, 3, 2), x(12)), conv_attrs(2, group=2, dilations=(2, 3)))
    yield Sample(
        (x(1, 2, 6, 7), x(3, 2, 3, 3), None), conv_attrs(2, pads_begin=(2, 0), pads_end=(0, 1)), dynamic=free
    )
    yield Sample(
        (x(2, 4, 19), x(5, 4, 4), x(5)),
        conv_attrs(1, strides=(3,), pads_begin=(1,), pads_end=(2,)),
        dynamic=((0, 2),),
    )
    yield Sample((x(1, 2, 4, 5, 6), x(3, 2, 2, 3, 2), x(3)), conv_attrs(3, pads_end=(1, 1, 1)))
    yield Sample((x(1, 2, 6, 7), x(3, 2, 2, 2), x(3)), conv_attrs(2, pads_begin=(-1, 0), pads_end=(0, -2)))
    half = [a.astype(np.float16) for a in (x(1, 8, 5, 5), x(4, 8, 3, 3), x(4))]
    yield Sample(tuple(half), conv_attrs(2, **same))


register(OpDef("conv", "contraction", _infer, _conv, define=_define, samples=_samples))
