"""Rules of canonicalise for norms over groups of channels, which keep the channels' own axis.

Exporters write a group norm as an instance norm between two reshapes. Without the reshapes a tensor of
blocked channels stays as it is: the statistics of channels are taken first, then those of groups from them.
"""

from __future__ import annotations

from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr, const
from hagane.ir.builder import Builder
from hagane.ir.graph import Node, Value


def norm_between_reshapes(node: Node, builder: Builder) -> Value | None:
    """reshape(instance_norm(reshape(x, [N, groups, ...])), x's shape) as a norm of x itself."""
    norm = node.input(0).producer
    if norm is None or norm.op != "instance_norm":
        return None
    before = norm.input(0).producer
    if before is None or before.op != "reshape" or norm.input(0).rank < 3:
        return None
    x, grouped = before.input(0), norm.input(0).shape
    if x.shape != node.output.shape or x.rank < 3 or x.dtype is not DType.F32:
        return None
    channels, groups = x.shape[1], grouped[1]
    if x.shape[0] != grouped[0] or not (channels.is_const and groups.is_const):
        return None
    if groups.value < 1 or channels.value % groups.value:
        return None
    size = channels.value // groups.value
    scale, bias = (_repeated(norm.input(k), size, builder) for k in (1, 2))
    return builder.op("group_norm", x, scale, bias, groups=groups.value, eps=norm.attrs["eps"])


def _repeated(value: Value, times: int, builder: Builder) -> Value:
    """Each number `times` times in a row."""
    count = value.shape[0]
    column = builder.op("reshape", value, shape=(count, const(1)))
    spread = builder.op("broadcast_to", column, shape=(count, const(times)))
    return builder.op("reshape", spread, shape=(count * times,))


def expand_group_norm(node: Node, builder: Builder) -> Value | None:
    """A group norm by its definition, from means over positions; one channel a group is an instance norm."""
    x, groups = node.input(0), int(node.attrs["groups"])
    if x.rank < 3 or x.dtype is not DType.F32 or not x.shape[1].is_const:
        return None
    eps = builder.scalar_like(x, node.attrs["eps"])
    if groups == x.shape[1]:
        return builder.op("instance_norm", *node.inputs, eps=node.attrs["eps"])
    mean = _group_means(x, groups, builder)
    # the other way round than below: as one value with two readers it would be written to memory
    opposite = builder.op("sub", mean, x)
    variance = _group_means(builder.op("mul", opposite, opposite), groups, builder)
    deviation = builder.op("sqrt", builder.op("add", variance, eps))
    value = builder.op("mul", builder.op("sub", x, mean), builder.op("reciprocal", deviation))
    per_channel = (x.shape[1], *_ones(x))
    for position, op in ((1, "mul"), (2, "add")):
        parameter = node.optional(position)
        if parameter is not None:
            value = builder.op(op, value, builder.op("reshape", parameter, shape=per_channel))
    return value


def _ones(x: Value) -> tuple[Expr, ...]:
    return (const(1),) * (x.rank - 2)


def _group_means(value: Value, groups: int, builder: Builder) -> Value:
    """The mean over positions and the channels of a group, for each channel: [N, C, 1, ...]."""
    batch, channels = value.shape[:2]
    size = channels // groups
    means = builder.op("reduce_mean", value, axes=tuple(range(2, value.rank)), keepdims=True)
    grouped = builder.op("reshape", means, shape=(batch, const(groups), size))
    mean = builder.op("reduce_mean", grouped, axes=(2,), keepdims=True)
    spread = builder.op("broadcast_to", mean, shape=grouped.shape)
    return builder.op("reshape", spread, shape=(batch, channels, *_ones(value)))
