"""fold-scales: scales and shifts after a convolution with constant weights go into its weights and bias.

Batch norms arrive here as a scale and a shift. The new weights are ops on constants, which fold-constants
computes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.symbolic import const
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Node, Shape, Value, join_locs
from hagane.passes.base import control_graphs


@dataclass(frozen=True)
class FoldScales:
    """No options."""

    name: str = "fold-scales"

    def run(self, graph: Graph) -> bool:
        changed = False
        names = graph.value_names()
        for inner in control_graphs(graph):
            while self._fold_one_round(inner, names):
                changed = True
        return changed

    def _fold_one_round(self, graph: Graph, names: set[str]) -> bool:
        users, own, outputs = graph.users(), set(graph.nodes), set(graph.outputs)
        mapping: dict[Value, Value] = {}
        kept: list[Node] = []
        for node in graph.nodes:
            node.inputs = [None if v is None else mapping.get(v, v) for v in node.inputs]
            match = _match(node, users, own, outputs)
            if match is None:
                kept.append(node)
                continue
            conv, factor = match
            scratch = Graph()
            builder = Builder(scratch, names=names)
            builder.loc = join_locs([conv.loc, node.loc])
            if node.op == "mul":
                folded = _scaled(conv, factor, builder)
            else:
                folded = _shifted(conv, factor, builder, negate=node.op == "sub")
            kept += scratch.nodes
            mapping[node.output] = folded
        if not mapping:
            return False
        graph.nodes = kept
        graph.replace_uses(mapping)
        return True


def _match(
    node: Node, users: dict[Value, list[Node]], own: set[Node], outputs: set[Value]
) -> tuple[Node, Value] | None:
    """A convolution that only this node reads, and the constant with one number per channel that it meets.

    The convolution must be one of the graph's own nodes: one outside a loop would be repeated in it.
    """
    if node.op not in ("mul", "add", "sub"):
        return None
    for side in (0, 1) if node.op != "sub" else (0,):
        conv, other = node.input(side).producer, node.input(1 - side)
        if conv is None or conv.op not in ("conv", "conv_transpose") or conv not in own or not other.is_const:
            continue
        if (
            len(users.get(conv.output, [])) != 1
            or conv.output in outputs
            or node.output.type != conv.output.type
        ):
            continue
        if not _per_channel(other.shape, conv.output.shape):
            continue
        weights, bias = conv.input(1), conv.optional(2)
        if bias is not None and not _follows_from_constants(bias, own):
            continue  # to change it would take a launch; as an epilogue the scale costs nothing
        if node.op != "mul" or (_follows_from_constants(weights, own) and _keeps_range(weights, other)):
            return conv, other
    return None


def _follows_from_constants(value: Value, own: set[Node]) -> bool:
    """True for constants and for what earlier rounds made of them."""
    if value.is_const:
        return True
    if value.producer is None or value.producer not in own:
        return False
    return all(v is None or _follows_from_constants(v, own) for v in value.producer.inputs)


def _keeps_range(weights: Value, factor: Value) -> bool:
    """False if products in a type of narrow range might overflow, or lose digits as subnormal numbers."""
    if weights.dtype is not DType.F16:
        return True
    if weights.data is None or factor.data is None:
        return False
    limits = np.finfo(np.float16)
    most, least = float(limits.max), 2**10 * float(limits.smallest_normal)
    magnitudes = [np.abs(np.asarray(v.data, np.float64)) for v in (weights, factor)]
    if not all(np.all(np.isfinite(m)) for m in magnitudes):
        return False
    largest, scale = (float(np.max(m, initial=0)) for m in magnitudes)
    smallest_scale = float(np.min(magnitudes[1], initial=scale, where=magnitudes[1] > 0))
    # weights that are small beside the largest one may lose digits: they hardly count in the sum
    return largest * scale <= most and largest * smallest_scale >= least


def _per_channel(shape: Shape, out_shape: Shape) -> bool:
    """True for one number in all, or one per channel (axis 1 of the output) and no other axis."""
    channel_axis = len(shape) - len(out_shape) + 1
    return all(d == 1 or (axis == channel_axis and d == out_shape[1]) for axis, d in enumerate(shape))


def _channels(factor: Value, conv: Node, builder: Builder) -> Value:
    """The constant as one number per channel: shape [M]."""
    channels = conv.output.shape[1]
    if factor.shape and any(d == channels for d in factor.shape) and channels != 1:
        return builder.op("reshape", factor, shape=(channels,))
    flat = builder.op("reshape", factor, shape=(const(1),))
    return builder.op("broadcast_to", flat, shape=(channels,))


def _scaled(conv: Node, factor: Value, builder: Builder) -> Value:
    per_channel = _channels(factor, conv, builder)
    weights, bias = conv.input(1), conv.optional(2)
    rest = (const(1),) * (weights.rank - 1)
    if conv.op == "conv":
        spread = builder.op("reshape", per_channel, shape=(weights.shape[0], *rest))
    elif conv.attrs["group"] == 1:
        spread = builder.op("reshape", per_channel, shape=(const(1), weights.shape[1], *rest[1:]))
    else:  # weights [C, M / group, ...]: the channels of a group follow its input channels
        spread = _grouped_transposed(per_channel, weights, conv.attrs["group"], builder)
    scaled_bias = None if bias is None else builder.op("mul", bias, per_channel)
    return builder.op(conv.op, conv.input(0), builder.op("mul", weights, spread), scaled_bias, **conv.attrs)


def _grouped_transposed(per_channel: Value, weights: Value, group: int, builder: Builder) -> Value:
    inner, per_group = weights.shape[0] // group, weights.shape[1]
    spread = builder.op("reshape", per_channel, shape=(const(group), const(1), per_group))
    spread = builder.op("broadcast_to", spread, shape=(const(group), inner, per_group))
    ones = (const(1),) * (weights.rank - 2)
    return builder.op("reshape", spread, shape=(weights.shape[0], per_group, *ones))


def _shifted(conv: Node, shift: Value, builder: Builder, negate: bool) -> Value:
    per_channel = _channels(shift, conv, builder)
    if negate:
        per_channel = builder.op("neg", per_channel)
    bias = conv.optional(2)
    total = per_channel if bias is None else builder.op("add", bias, per_channel)
    return builder.op(conv.op, conv.input(0), conv.input(1), total, **conv.attrs)
