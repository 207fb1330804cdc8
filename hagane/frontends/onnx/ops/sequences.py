"""Sequences and optionals whose make-up is known at import: they are resolved there and leave no trace."""

from __future__ import annotations

from collections.abc import Sequence

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.core.symbolic import IntLike
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.ops.pieces import equal_parts, split_by
from hagane.frontends.onnx.registry import converter
from hagane.frontends.onnx.scope import Entry, OptionalEntry, SequenceEntry
from hagane.ir.graph import Value


def sequence_of(ctx: NodeContext, position: int) -> tuple[Value, ...]:
    """The items of an input that is a sequence. Raises: ModelError."""
    entry = ctx.entry(position)
    if isinstance(entry, OptionalEntry):
        entry = entry.item
    if not isinstance(entry, SequenceEntry):
        raise ModelError(f"input {position} of {ctx.op_type} should be a sequence")
    return entry.items


def item_position(ctx: NodeContext, position: int, length: int, most: int) -> int:
    """A position in a sequence, from the back if negative. Raises: ModelError."""
    numbers = ctx.known_ints(position, "position")
    if len(numbers) != 1 or not -length <= numbers[0] <= most:
        raise ModelError(f"{ctx.op_type} uses position {list(numbers)} of a sequence of {length}")
    return numbers[0] + length if numbers[0] < 0 else numbers[0]


@converter("SequenceConstruct")
def construct(ctx: NodeContext) -> SequenceEntry:
    """A sequence of all inputs."""
    return SequenceEntry(tuple(ctx.inputs))


@converter("SequenceEmpty")
def empty(ctx: NodeContext) -> SequenceEntry:
    """A sequence of nothing."""
    ctx.attrs.ignore("dtype")
    return SequenceEntry(())


@converter("SequenceAt")
def at(ctx: NodeContext) -> Value:
    """One item."""
    items = sequence_of(ctx, 0)
    return items[item_position(ctx, 1, len(items), len(items) - 1)]


@converter("SequenceInsert")
def insert(ctx: NodeContext) -> SequenceEntry:
    """A sequence with one item more, at the end by default."""
    items = list(sequence_of(ctx, 0))
    where = len(items) if ctx.optional(2) is None else item_position(ctx, 2, len(items), len(items))
    items.insert(where, ctx.input(1))
    return SequenceEntry(tuple(items))


@converter("SequenceErase")
def erase(ctx: NodeContext) -> SequenceEntry:
    """A sequence with one item less, the last by default."""
    items = list(sequence_of(ctx, 0))
    if not items:
        raise ModelError("SequenceErase has an empty sequence")
    where = -1 if ctx.optional(1) is None else item_position(ctx, 1, len(items), len(items) - 1)
    del items[where]
    return SequenceEntry(tuple(items))


@converter("SequenceLength")
def length(ctx: NodeContext) -> Value:
    """The number of items."""
    return ctx.emit.scalar(len(sequence_of(ctx, 0)), DType.I64)


@converter("ConcatFromSequence")
def concat(ctx: NodeContext) -> Value:
    """The items one after another, along a new axis with new_axis."""
    items = list(sequence_of(ctx, 0))
    if not items:
        raise ModelError("ConcatFromSequence has an empty sequence")
    stacked = ctx.attrs.flag("new_axis", False)
    axis = ctx.axis(ctx.attrs.integer("axis"), items[0].rank + stacked)
    if stacked:
        items = [ctx.emit.unsqueeze(v, (axis,)) for v in items]
    return ctx.emit.concat(items, axis)


@converter("SplitToSequence")
def split(ctx: NodeContext) -> SequenceEntry:
    """Parts of the given sizes, or of one size each; without sizes single slices, axis kept with keepdims."""
    x = ctx.input(0)
    axis, keepdims = ctx.axis(ctx.attrs.integer("axis", 0), x.rank), ctx.attrs.flag("keepdims", True)
    extent = x.shape[axis]
    if not extent.is_const:
        raise ModelError(f"SplitToSequence needs to know at import how many parts {x.type} has")
    sizes: Sequence[IntLike]
    if ctx.optional(1) is None:
        parts = split_by(ctx, x, axis, equal_parts(x, axis, extent.value, uneven=False))
        return SequenceEntry(tuple(parts if keepdims else (ctx.emit.squeeze(p, (axis,)) for p in parts)))
    given = ctx.known(1, "sizes")
    if given.ndim == 0:
        step = int(given)
        if step < 1:
            raise ModelError(f"SplitToSequence has the part size {step}")
        sizes = [min(step, extent.value - k) for k in range(0, extent.value, step)]
    else:
        sizes = [int(v) for v in given]
    return SequenceEntry(tuple(split_by(ctx, x, axis, sizes)))


@converter("Optional")
def optional(ctx: NodeContext) -> OptionalEntry:
    """An optional that holds the input, or nothing."""
    ctx.attrs.ignore("type")
    entry = ctx.entry(0)
    if isinstance(entry, OptionalEntry):
        raise ModelError("Optional of an optional is not supported")
    return OptionalEntry(entry)


@converter("OptionalHasElement")
def has_element(ctx: NodeContext) -> Value:
    """Known at import."""
    entry = ctx.entry(0)
    present = entry.item is not None if isinstance(entry, OptionalEntry) else entry is not None
    return ctx.emit.scalar(present, DType.BOOL)


@converter("OptionalGetElement")
def get_element(ctx: NodeContext) -> Sequence[Entry | None]:
    """What the optional holds; a tensor or sequence passes through."""
    entry = ctx.entry(0)
    found = entry.item if isinstance(entry, OptionalEntry) else entry
    if found is None:
        raise ModelError("OptionalGetElement has an empty optional")
    return [found]
