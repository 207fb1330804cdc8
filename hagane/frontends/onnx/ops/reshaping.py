"""Ops about shapes: Shape, Size, Reshape, Flatten, Squeeze, Unsqueeze, Expand, Transpose; and constants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, const, product
from hagane.core.symbolic_rules import provably_nonneg
from hagane.frontends.onnx.agreement import broadcast_pairs
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.registry import converter
from hagane.frontends.onnx.scope import Entry
from hagane.ir.graph import Value
from hagane.ops.shapes import broadcast_shapes


@converter("Identity")
def identity(ctx: NodeContext) -> Sequence[Entry | None]:
    """Leaves no trace in the graph."""
    ctx.expect_inputs(1, 1)
    return [ctx.entry(0)]


@converter("Dropout", since=7)
def dropout(ctx: NodeContext) -> list[Value]:
    """Does nothing outside of training; the mask is all true."""
    ctx.attrs.ignore("ratio", "seed")
    x = ctx.input(0)
    ratio, training = ctx.const_value(1), ctx.const_value(2)
    may_train = ctx.optional(2) is not None and (training is None or bool(training.any()))
    if may_train and (ratio is None or float(ratio.reshape(())) != 0.0):
        raise ModelError(
            "Dropout in training mode is only supported with a ratio of 0 that is known at import",
            next_step="export it for inference",
        )
    if not ctx.has_output(1):
        return [x]
    mask_type = DType.BOOL if ctx.opset >= 10 else x.dtype
    return [x, ctx.emit.filled(ctx.emit.scalar(1, mask_type), x.shape)]


@converter("Shape")
def shape(ctx: NodeContext) -> Value:
    """Dims from start to end, both counted from the back if negative and clamped."""
    x = ctx.input(0)
    start, end = ctx.attrs.integer("start", 0), ctx.attrs.integer("end", x.rank)
    return ctx.emit.dims(x.shape[slice(start, end)], name="shape")


@converter("Size")
def size(ctx: NodeContext) -> Value:
    """The number of elements."""
    return ctx.emit.reshape(ctx.emit.dims([product(ctx.input(0).shape)]), ())


@converter("Reshape", since=5)
def reshape(ctx: NodeContext) -> Value:
    """0 keeps a dim (unless allowzero), -1 takes what is left."""
    ctx.expect_inputs(2, 2)
    x, keep_zero = ctx.input(0), ctx.attrs.flag("allowzero", False)
    known = ctx.elements(1)
    if known is None:
        known = ctx.emit.bound_elements(_resolved(ctx, x, ctx.input(1), keep_zero), f"{ctx.name}_dim")
    if known is None:
        raise ModelError(
            "the shape of Reshape is a tensor of unknown length, so the result's rank is unknown"
        )
    return ctx.emit.reshape(x, resolve_shape(x, known, keep_zero))


def resolve_shape(x: Value, wanted: Sequence[Expr], keep_zero: bool) -> tuple[Expr, ...]:
    """The dims that a Reshape asks for. Raises: ShapeError."""
    dims = list(wanted)
    free = [k for k, d in enumerate(dims) if d == -1]
    if len(free) > 1 or any(d.is_const and d.value < -1 for d in dims):
        raise ShapeError(f"[{', '.join(map(str, wanted))}] is no shape to reshape to")
    for k, d in enumerate(dims):
        if d == 0 and not keep_zero:
            if k >= x.rank:
                raise ShapeError(f"dim {k} of the new shape is copied from {x.type}, which has no such dim")
            dims[k] = x.shape[k]
    if not free:
        return tuple(dims)
    rest = product(d for k, d in enumerate(dims) if k != free[0])
    total = product(x.shape)
    if rest == 0:
        raise ShapeError("the dim -1 can't be found beside a dim of zero")
    if total.is_const and rest.is_const and total.value % rest.value:
        raise ShapeError(f"{x.type} has {total} elements, which {rest} doesn't divide")
    dims[free[0]] = cancelled_quotient(x.shape, [d for k, d in enumerate(dims) if k != free[0]])
    return tuple(dims)


def cancelled_quotient(above: Sequence[Expr], below: Sequence[Expr]) -> Expr:
    """The quotient of two products of dims that is known to be whole: equal factors cancel first."""
    left, right = list(above), []
    for d in below:
        if d in left:
            left.remove(d)
        else:
            right.append(d)
    return product(left) // product(right)


def _resolved(ctx: NodeContext, x: Value, wanted: Value, keep_zero: bool) -> Value:
    """A shape that is computed at run time, with 0 and -1 resolved there too."""
    dims = ctx.emit.cast(wanted, DType.I64)
    if dims.rank != 1 or not dims.shape[0].is_const:
        return dims
    count = dims.shape[0].value
    if not keep_zero and count:
        own = ctx.emit.dims([x.shape[k] if k < x.rank else const(0) for k in range(count)])
        dims = ctx.op("where", ctx.op("eq", dims, ctx.scalar_like(dims, 0)), own, dims)
    total = ctx.emit.reshape(ctx.emit.dims([product(x.shape)]), ())
    negative = ctx.op("eq", dims, ctx.scalar_like(dims, -1))
    others = ctx.op("where", negative, ctx.scalar_like(dims, 1), dims)
    rest = ctx.emit.reduce("prod", others, (0,), keepdims=False)
    left = ctx.op("div", total, ctx.op("max", rest, ctx.scalar_like(dims, 1)))
    return ctx.op("where", negative, left, dims)


@converter("Flatten")
def flatten(ctx: NodeContext) -> Value:
    """Two dims: those before the axis and those from it on."""
    x, number = ctx.input(0), ctx.attrs.integer("axis", 1)
    axis = x.rank if number == x.rank else ctx.axis(number, x.rank)
    return ctx.emit.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))


def axes_argument(ctx: NodeContext, position: int, since: int) -> tuple[int, ...] | None:
    """Axes given as an attribute or, from opset `since` on, as an input; None if they are left out."""
    if ctx.opset < since:
        return ctx.attrs.ints("axes")
    return None if ctx.optional(position) is None else ctx.known_ints(position, "axes")


@converter("Squeeze")
def squeeze(ctx: NodeContext) -> Value:
    """Without axes all dims of 1 go. Dynamic dims stay, unless declared ranks of outputs contradict."""
    x = ctx.input(0)
    given = axes_argument(ctx, 1, 13)
    if given is None:
        axes = tuple(k for k, d in enumerate(x.shape) if d == 1)
        unclear = tuple(k for k, d in enumerate(x.shape) if not d.is_const and not provably_nonneg(d - 2))
        if unclear:
            ctx.importer.has_open_squeeze = True
            axes = tuple(sorted(axes + unclear)) if ctx.importer.drops_dynamic_ones else axes
    else:
        axes = ctx.axes(given, x.rank)
    for axis in axes:
        if x.shape[axis].is_const and x.shape[axis] != 1:
            raise ShapeError(f"Squeeze removes axis {axis} of {x.type}, which isn't 1")
    ctx.emit.require_equal([(x.shape[a], 1) for a in axes], f"{ctx.name} removes a dim that must be 1")
    return ctx.emit.squeeze(x, axes)


@converter("Unsqueeze")
def unsqueeze(ctx: NodeContext) -> Value:
    """Axes count in the result."""
    x = ctx.input(0)
    given = axes_argument(ctx, 1, 13)
    if given is None:
        raise ModelError("Unsqueeze needs its axes")
    return ctx.emit.unsqueeze(x, ctx.axes(given, x.rank + len(given)))


@converter("Expand", since=8)
def expand(ctx: NodeContext) -> Value:
    """Broadcast in both directions."""
    ctx.expect_inputs(2, 2)
    x, wanted = ctx.input(0), ctx.sizes(1, "shape")
    shape = broadcast_shapes(x.shape, wanted)
    ctx.emit.require_equal(tuple(broadcast_pairs([x.shape, wanted])), f"{ctx.name} can't expand {x.type}")
    return ctx.emit.broadcast_to(x, shape)


@converter("Transpose")
def transpose(ctx: NodeContext) -> Value:
    """Reverses the axes by default."""
    x = ctx.input(0)
    perm = ctx.attrs.ints("perm")
    if perm is None:
        perm = tuple(reversed(range(x.rank)))
    if sorted(perm) != list(range(x.rank)):
        raise ShapeError(f"perm={list(perm)} is no permutation of the {x.rank} axes of {x.type}")
    return ctx.emit.transpose(x, perm)


@converter("Constant")
def constant(ctx: NodeContext) -> Value:
    """Exactly one of the value attributes."""
    attrs = ctx.attrs
    found = [n for n in _CONSTANTS if n in attrs]
    if len(found) != 1:
        raise ModelError(f"Constant has {len(found)} of its value attributes; it needs exactly one")
    name = found[0]
    if name == "value":
        array = attrs.tensor(name)
    elif name == "sparse_value":
        array = attrs.sparse_tensor(name)
    elif name == "value_int":
        array = np.array(attrs.integer(name), np.int64)
    elif name == "value_ints":
        array = np.array(attrs.ints(name), np.int64)
    elif name == "value_float":
        array = np.array(attrs.number(name), np.float32)
    elif name == "value_floats":
        array = np.array(attrs.floats(name), np.float32)
    elif name == "value_string":
        array = np.array(attrs.text(name), dtype=object)
    else:
        array = np.array(attrs.strings(name), dtype=object)
    return ctx.emit.const(array, name=ctx.proto.output[0])


_CONSTANTS = (
    "value", "sparse_value", "value_int", "value_ints", "value_float", "value_floats", "value_string",
    "value_strings",
)  # fmt: skip
