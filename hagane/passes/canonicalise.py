"""canonicalise: one form for what can be written in several ways, and removal of what does nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hagane.core.symbolic import const
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Node, Value, join_locs
from hagane.passes.base import control_graphs
from hagane.passes.fourier_matrix import product_for_dft
from hagane.passes.group_norms import expand_group_norm, norm_between_reshapes
from hagane.passes.one_hot import gather_for_one_hot

Rule = Callable[[Node, Builder], Value | None]


@dataclass(frozen=True)
class Canonicalise:
    """No options."""

    name: str = "canonicalise"

    def run(self, graph: Graph) -> bool:
        changed = False
        names = graph.value_names()
        for inner in control_graphs(graph):
            changed |= self._rewrite(inner, names)
        return changed

    def _rewrite(self, graph: Graph, names: set[str]) -> bool:
        mapping: dict[Value, Value] = {}
        kept: list[Node] = []
        for node in graph.nodes:
            node.inputs = [None if v is None else _final(v, mapping) for v in node.inputs]
            scratch = Graph()
            builder = Builder(scratch, names=names)
            builder.loc = node.loc
            result = _apply(node, builder)
            if result is None:
                kept.append(node)
                continue
            kept += scratch.nodes
            mapping[node.output] = result
        if not mapping:
            return False
        graph.nodes = kept
        graph.replace_uses(mapping)
        return True


def _final(value: Value, mapping: dict[Value, Value]) -> Value:
    while value in mapping:
        value = mapping[value]
    return value


def _apply(node: Node, builder: Builder) -> Value | None:
    for rule in _RULES.get(node.op, ()):
        result = rule(node, builder)
        if result is not None:
            return result
    return None


def _drop_identity(node: Node, builder: Builder) -> Value | None:
    return node.input(0)


def _same_type(node: Node, builder: Builder) -> Value | None:
    """A cast, reshape or broadcast to the type that the value has already."""
    return node.input(0) if node.input(0).type == node.output.type else None


def _reshape_of_reshape(node: Node, builder: Builder) -> Value | None:
    producer = node.input(0).producer
    if producer is not None and producer.op == "reshape":
        builder.loc = join_locs([producer.loc, node.loc])
        return builder.op("reshape", producer.input(0), shape=node.output.shape)
    return None


def _trivial_transpose(node: Node, builder: Builder) -> Value | None:
    """A permutation that moves only extents of 1 is a reshape."""
    perm, shape = node.attrs["perm"], node.input(0).shape
    moved = [axis for axis in perm if shape[axis] != 1]
    if tuple(perm) == tuple(range(len(perm))):
        return node.input(0)
    if moved == sorted(moved):
        return builder.op("reshape", node.input(0), shape=node.output.shape)
    return None


def _transpose_of_transpose(node: Node, builder: Builder) -> Value | None:
    producer = node.input(0).producer
    if producer is not None and producer.op == "transpose":
        builder.loc = join_locs([producer.loc, node.loc])
        inner = producer.attrs["perm"]
        return builder.op(
            "transpose", producer.input(0), perm=tuple(inner[axis] for axis in node.attrs["perm"])
        )
    return None


def _is_number(value: Value, number: float) -> bool:
    """True for a constant that holds just the number; zeros of floats must have its sign."""
    if value.data is None or value.data.size == 0 or not np.all(value.data == number):
        return False
    return (
        number != 0 or not value.dtype.is_float or bool(np.all(np.signbit(value.data) == np.signbit(number)))
    )


def _neutral(number: float, sides: tuple[int, ...]) -> Rule:
    """x op number is x where the shape stays. For floats that is x + -0.0, as -0.0 + 0.0 is 0.0."""

    def rule(node: Node, builder: Builder) -> Value | None:
        for side in sides:
            other = node.input(1 - side)
            if _is_number(node.input(side), number) and other.type == node.output.type:
                return other
        return None

    return rule


def _divide_by_constant(node: Node, builder: Builder) -> Value | None:
    """x / c is x * (1 / c) where 1 / c is exact (a power of two), so nothing changes but the speed."""
    divisor = node.input(1)
    if divisor.data is None or not divisor.dtype.is_float or node.input(0).is_const:
        return None
    wide = np.asarray(divisor.data, np.float64)
    mantissa, exponent = np.frexp(wide)
    if wide.size == 0 or not np.all((np.abs(mantissa) == 0.5) & (np.abs(exponent) < 14)):
        return None
    if not np.all((1 / wide).astype(divisor.dtype.np).astype(np.float64) == 1 / wide):
        return None
    # an op on constants, so that the inverse keeps a recipe: fold-constants computes it
    return builder.op("mul", node.input(0), builder.op("div", builder.scalar_like(divisor, 1), divisor))


def _power(node: Node, builder: Builder) -> Value | None:
    """x ** 1, 2, 3 and -1 by their own functions. Not x ** 0.5: for -inf and -0.0 it isn't sqrt."""
    base, exponent = node.input(0), node.input(1)
    if (
        exponent.data is None
        or exponent.data.size != 1
        or base.type != node.output.type
        or not base.dtype.is_float
    ):
        return None
    match float(exponent.data.reshape(-1)[0]):
        case 1.0:
            return base
        case 2.0:
            return builder.op("mul", base, base)
        case 3.0:
            return builder.op("mul", builder.op("mul", base, base), base)
        case -1.0:
            return builder.op("reciprocal", base)
    return None


def _slice_all(node: Node, builder: Builder) -> Value | None:
    whole = all(s == 0 for s in node.attrs["starts"]) and all(s == 1 for s in node.attrs["steps"])
    return node.input(0) if whole and node.input(0).type == node.output.type else None


def _single_concat(node: Node, builder: Builder) -> Value | None:
    return node.input(0) if len(node.inputs) == 1 else None


def _batch_norm(node: Node, builder: Builder) -> Value | None:
    """Inference-time batch norm with constant statistics is a scale and a shift per channel."""
    x, scale, bias, mean, var = (node.input(k) for k in range(5))
    constants = (scale, bias, mean, var)
    if not all(v.is_const and v.dtype is x.dtype for v in constants):
        return None
    eps = builder.const(np.asarray(node.attrs["eps"], scale.dtype.np))
    factor = builder.op("div", scale, builder.op("sqrt", builder.op("add", var, eps)))
    shift = builder.op("sub", bias, builder.op("mul", mean, factor))
    per_channel = (scale.shape[0], *(const(1) for _ in range(x.rank - 2)))
    factor, shift = (builder.op("reshape", v, shape=per_channel) for v in (factor, shift))
    return builder.op("add", builder.op("mul", x, factor), shift)


def _pad_into_conv(node: Node, builder: Builder) -> Value | None:
    """Zeros around the input of a convolution are its own padding."""
    pad = node.input(0).producer
    if pad is None or pad.op != "pad" or pad.attrs["mode"] != "constant":
        return None
    fill = pad.optional(1)
    if fill is not None and not _is_number(fill, 0.0):
        return None
    sides = []
    for mine, its in (("before", "pads_begin"), ("after", "pads_end")):
        amounts, own = pad.attrs[mine], node.attrs[its]
        known = [const(0) + a for a in (*amounts, *own)]
        if not all(a.is_const and a.value >= 0 for a in known) or any(a != 0 for a in known[:2]):
            return None
        sides.append(tuple(int((const(0) + a + b).value) for a, b in zip(amounts[2:], own, strict=True)))
    attrs = {**node.attrs, "pads_begin": sides[0], "pads_end": sides[1]}
    return builder.op("conv", pad.input(0), *node.inputs[1:], **attrs)


def _conv_of_columns(node: Node, builder: Builder) -> Value | None:
    """Along the height of tensors of width 1: one spatial axis instead, as kernels run along the last one."""
    x, weight = node.input(0), node.input(1)
    if x.rank != 4 or x.shape[2] == 1 or not x.shape[3] == weight.shape[3] == node.output.shape[3] == 1:
        return None
    if node.attrs["pads_begin"][1] != 0 or node.attrs["pads_end"][1] != 0:
        return None
    attrs: dict[str, Any] = {k: a if k == "group" else a[:1] for k, a in node.attrs.items()}
    x, weight = (builder.op("reshape", v, shape=v.shape[:3]) for v in (x, weight))
    y = builder.op("conv", x, weight, node.optional(2), **attrs)
    return builder.op("reshape", y, shape=node.output.shape)


def _keep_reduced_axes(node: Node, builder: Builder) -> Value | None:
    """A reduction keeps its axes; sink-reshapes finds out where they can be dropped best."""
    if node.attrs["keepdims"]:
        return None
    kept = builder.op(node.op, *node.inputs, **{**node.attrs, "keepdims": True})
    return builder.op("reshape", kept, shape=node.output.shape)


_REDUCTIONS = ("sum", "mean", "max", "min", "prod", "any", "all")
_RULES: dict[str, tuple[Rule, ...]] = {
    "identity": (_drop_identity,),
    "cast": (_same_type,),
    "reshape": (_same_type, _reshape_of_reshape, norm_between_reshapes),
    "broadcast_to": (_same_type,),
    "transpose": (_trivial_transpose, _transpose_of_transpose),
    "add": (_neutral(-0.0, (0, 1)),),
    "sub": (_neutral(0.0, (1,)),),
    "mul": (_neutral(1.0, (0, 1)),),
    "div": (_neutral(1.0, (1,)), _divide_by_constant),
    "pow": (_power,),
    "slice": (_slice_all,),
    "concat": (_single_concat,),
    "batch_norm": (_batch_norm,),
    "conv": (_pad_into_conv, _conv_of_columns),
    "group_norm": (expand_group_norm,),
    "matmul": (gather_for_one_hot,),
    "dft": (product_for_dft,),
    **{f"reduce_{name}": (_keep_reduced_axes,) for name in _REDUCTIONS},
}
