"""Tensor expressions: what one element of an output is, as a DAG of scalars over loads of the inputs.

Both code generators start from this form. Index arithmetic is `Expr` over the axes' symbols; a loaded integer
enters it through `LetIndex`. Nodes are shared by identity: a memo over (value, index) makes the DAG, so
emitters memoise by `id`. Everything has exact semantics: NaN and infinities propagate as ONNX says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr, Sym

Index = tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Scalar:
    """One element's worth of computation."""

    dtype: DType


@dataclass(frozen=True, eq=False)
class Lit(Scalar):
    """A literal, already rounded to the dtype."""

    value: float | int | bool


@dataclass(frozen=True, eq=False)
class IndexValue(Scalar):
    """An integer expression over axes and dims as a value (i64)."""

    expr: Expr


@dataclass(frozen=True, eq=False)
class Load(Scalar):
    """An element of region operand `operand` at a logical index, which is in bounds where it is evaluated."""

    operand: int
    index: Index


@dataclass(frozen=True, eq=False)
class Fn(Scalar):
    """A pointwise function by name; ops.primitives has the list. A `cast` goes to the dtype of this node."""

    name: str
    args: tuple[Scalar, ...]


@dataclass(frozen=True, eq=False)
class Guard(Scalar):
    """`value` where the bool scalar `cond` holds, else `other`; only the chosen one's loads happen."""

    cond: Scalar
    value: Scalar
    other: Scalar


@dataclass(frozen=True, eq=False)
class LetIndex(Scalar):
    """Binds an integer scalar in [0, bound) to symbol `name` for the index expressions of `body`."""

    name: str
    value: Scalar
    body: Scalar


@dataclass(frozen=True)
class Axis:
    """A loop: symbol from 0 to extent (exclusive)."""

    sym: Sym
    extent: Expr


@dataclass(frozen=True, eq=False)
class Reduce(Scalar):
    """op over all axes of `body`: sum, prod, max, min, any, all, argmax, argmin.

    argmax and argmin give the first winner; with the suffix -last the last one.
    NaN wins in max and min. An empty range gives the op's identity.
    """

    op: str
    axes: tuple[Axis, ...]
    body: Scalar


@dataclass(frozen=True, eq=False)
class Acc(Scalar):
    """The result of a region's anchor at the element being written: the accumulator in an epilogue."""


Read = Callable[[int, Index], Scalar]
"""read(k, index): the element of a node's input k at an index, loaded or computed in place."""


def lit(dtype: DType, value: float | int | bool) -> Lit:
    """A literal of the dtype."""
    if dtype is DType.BOOL:
        return Lit(dtype, bool(value))
    return Lit(dtype, float(value) if dtype.is_float else int(value))


def fn(name: str, *args: Scalar, dtype: DType | None = None) -> Fn:
    """A function application; the result has the first argument's dtype unless given."""
    return Fn(dtype or args[0].dtype, name, args)


def cast(value: Scalar, dtype: DType) -> Scalar:
    """value as dtype: floats to ints truncate, anything to bool is != 0."""
    return value if value.dtype is dtype else Fn(dtype, "cast", (value,))


def below(a: Expr, b: Expr) -> Scalar:
    """The condition a < b on integer expressions."""
    return Fn(DType.BOOL, "lt", (IndexValue(DType.I64, a), IndexValue(DType.I64, b)))


def at_least(a: Expr, b: Expr) -> Scalar:
    """The condition a >= b on integer expressions."""
    return Fn(DType.BOOL, "ge", (IndexValue(DType.I64, a), IndexValue(DType.I64, b)))


def both(*conditions: Scalar) -> Scalar:
    """The conjunction of conditions."""
    result = conditions[0]
    for condition in conditions[1:]:
        result = Fn(DType.BOOL, "and", (result, condition))
    return result


def children(scalar: Scalar) -> tuple[Scalar, ...]:
    """Direct operands of a scalar."""
    match scalar:
        case Fn(args=args):
            return args
        case Guard(cond=cond, value=value, other=other):
            return (cond, value, other)
        case LetIndex(value=value, body=body):
            return (value, body)
        case Reduce(body=body):
            return (body,)
    return ()
