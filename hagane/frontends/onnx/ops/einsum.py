"""Einsum as transposes, products and sums; ellipsis, repeated labels and any number of operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, product
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Value


@dataclass
class Term:
    """A tensor with a label for each axis, no label twice."""

    value: Value
    labels: tuple[str, ...]

    def dim(self, label: str) -> Expr:
        return self.value.shape[self.labels.index(label)]


@converter("Einsum", since=12)
def einsum(ctx: NodeContext) -> Value:
    """Operands are combined from the left; a label goes as soon as nothing else needs it."""
    equation = ctx.attrs.text("equation")
    operand_labels, output = parse(equation, [v.rank for v in ctx.inputs])
    terms = [diagonal(ctx, v, labels) for v, labels in zip(ctx.inputs, operand_labels, strict=True)]
    drop_broadcast_labels(ctx, terms)
    while len(terms) > 1:
        left, right, *rest = terms
        needed = set(output).union(*(t.labels for t in rest))
        terms = [contract(ctx, left, right, needed), *rest]
    result = sum_unneeded(ctx, terms[0], set(output))
    missing = [label for label in output if label not in result.labels]
    if missing:
        raise ModelError(f"the output label {missing[0]!r} of {equation!r} is in no operand")
    return ctx.emit.transpose(result.value, [result.labels.index(label) for label in output])


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Labels of each operand and of the output; the axes of an ellipsis get labels that count from the back.

    Raises: ModelError if the equation makes no sense, ShapeError if it doesn't fit the ranks.
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    operands = left.split(",")
    if len(operands) != len(ranks):
        raise ModelError(f"the equation {equation!r} has {len(operands)} operands, Einsum has {len(ranks)}")
    widest = max(
        (r - len(o.replace("...", "")) for o, r in zip(operands, ranks, strict=True) if "..." in o), default=0
    )
    labels = []
    for operand, rank in zip(operands, ranks, strict=True):
        named = operand.replace("...", "", 1)
        extra = rank - len(named) if "..." in operand else 0
        if (named and not named.isalpha()) or extra < 0 or len(named) + extra != rank:
            raise ShapeError(f"the labels {operand!r} of {equation!r} don't fit an operand of rank {rank}")
        labels.append(_expand(operand, extra))
    if arrow:
        if not right.replace("...", "", 1).isalpha() and right.replace("...", "", 1):
            raise ModelError(f"the output {right!r} of {equation!r} makes no sense")
        output = _expand(right, widest if "..." in right else 0)
    else:
        counts = [label for each in labels for label in each if len(label) == 1]
        single = sorted(label for label in set(counts) if counts.count(label) == 1)
        output = (*_ellipsis(widest), *single)
    if len(set(output)) != len(output):
        raise ModelError(f"the output of {equation!r} names a label twice")
    return labels, output


def _ellipsis(count: int) -> tuple[str, ...]:
    return tuple(f"...{k}" for k in reversed(range(count)))


def _expand(text: str, extra: int) -> tuple[str, ...]:
    before, dots, after = text.partition("...")
    return (*before, *(_ellipsis(extra) if dots else ()), *after)


def diagonal(ctx: NodeContext, value: Value, labels: tuple[str, ...]) -> Term:
    """The term with each repeated label kept once: elements off the diagonal are masked and summed away."""
    while len(set(labels)) != len(labels):
        first = next(k for k, label in enumerate(labels) if label in labels[k + 1 :])
        second = labels.index(labels[first], first + 1)
        positions = []
        for axis in (first, second):
            extent = [value.shape[axis] if k == axis else 1 for k in range(value.rank)]
            positions.append(ctx.op("iota", dtype=DType.I64, shape=tuple(extent), axis=axis))
        on_diagonal = ctx.op("eq", *positions)
        masked = ctx.op("where", on_diagonal, value, ctx.scalar_like(value, 0))
        value = ctx.emit.reduce("sum", masked, (second,), keepdims=False)
        labels = labels[:second] + labels[second + 1 :]
    return Term(value, labels)


def drop_broadcast_labels(ctx: NodeContext, terms: list[Term]) -> None:
    """Where a label is 1 in one term and more in another, the axis of 1 goes."""
    extents: dict[str, list[Expr]] = {}
    for term in terms:
        for label in term.labels:
            extents.setdefault(label, []).append(term.dim(label))
    for label, dims in extents.items():
        fixed = {d.value for d in dims if d.is_const and d != 1}
        if len(fixed) > 1:
            raise ShapeError(
                f"the label {label!r} of Einsum stands for {' and '.join(map(str, sorted(fixed)))}"
            )
    for term in terms:
        ones = [
            label for label in term.labels if term.dim(label) == 1 and any(d != 1 for d in extents[label])
        ]
        if ones:
            term.value = ctx.emit.squeeze(term.value, [term.labels.index(label) for label in ones])
            term.labels = tuple(label for label in term.labels if label not in ones)


def sum_unneeded(ctx: NodeContext, term: Term, needed: set[str]) -> Term:
    """The term summed over all labels that aren't needed."""
    axes = [k for k, label in enumerate(term.labels) if label not in needed]
    value = ctx.emit.reduce("sum", term.value, axes, keepdims=False)
    return Term(value, tuple(label for label in term.labels if label in needed))


def contract(ctx: NodeContext, left: Term, right: Term, needed: set[str]) -> Term:
    """Two terms multiplied, summed over the labels that only they have."""
    left = sum_unneeded(ctx, left, needed | set(right.labels))
    right = sum_unneeded(ctx, right, needed | set(left.labels))
    shared = [label for label in left.labels if label in right.labels]
    summed = [label for label in shared if label not in needed]
    batch = [label for label in shared if label in needed]
    rows = [label for label in left.labels if label not in shared]
    columns = [label for label in right.labels if label not in shared]
    if not summed:
        order = (*batch, *rows, *columns)
        return Term(ctx.op("mul", _aligned(ctx, left, order), _aligned(ctx, right, order)), order)
    a = _matrices(ctx, left, batch, rows, summed)
    b = _matrices(ctx, right, batch, summed, columns)
    result = ctx.op("matmul", a, b)
    dims = [*result.shape[: len(batch)], *(left.dim(n) for n in rows), *(right.dim(n) for n in columns)]
    return Term(ctx.emit.reshape(result, dims), (*batch, *rows, *columns))


def _aligned(ctx: NodeContext, term: Term, order: Sequence[str]) -> Value:
    """The term with its axes in the given order, and axes of 1 for the labels that it lacks."""
    present = [label for label in order if label in term.labels]
    value = ctx.emit.transpose(term.value, [term.labels.index(label) for label in present])
    return ctx.emit.unsqueeze(value, [k for k, label in enumerate(order) if label not in term.labels])


def _matrices(ctx: NodeContext, term: Term, batch: list[str], rows: list[str], columns: list[str]) -> Value:
    """The term as [batch..., rows, columns], the last two merged from several axes each."""
    order = [term.labels.index(label) for label in (*batch, *rows, *columns)]
    value = ctx.emit.transpose(term.value, order)
    merged = [product(term.dim(label) for label in group) for group in (rows, columns)]
    return ctx.emit.reshape(value, (*(term.dim(label) for label in batch), *merged))
