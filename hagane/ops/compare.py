"""Broadcasting comparisons to bool: eq, ne, lt, le, gt, ge. A NaN is unequal to all and below none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.core.symbolic import Expr, const, provably_nonneg
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Index, Read, Scalar, fn
from hagane.ops.primitives import apply
from hagane.ops.shapes import broadcast_elements, broadcast_shapes, read_broadcast, require_same
from hagane.ops.unary import SPECIAL

Decision = Callable[[Expr, Expr], bool | None]


def _infer(node: Node) -> list[Type]:
    a, b = node.input(0), node.input(1)
    require_same(a, b)
    if a.dtype is DType.STRING or (a.dtype is DType.BOOL and node.op not in ("eq", "ne")):
        raise ModelError(f"{node.op} doesn't compare {a.dtype}")
    return [Type(DType.BOOL, broadcast_shapes(a.shape, b.shape))]


def _less(a: Expr, b: Expr) -> bool | None:
    """a < b, if the symbols' ranges decide it."""
    if provably_nonneg(b - a - 1):
        return True
    return False if provably_nonneg(a - b) else None


def _equal(a: Expr, b: Expr) -> bool | None:
    if a == b:
        return True
    return False if _less(a, b) or _less(b, a) else None


def _negated(decision: Decision) -> Decision:
    def negated(a: Expr, b: Expr) -> bool | None:
        decided = decision(a, b)
        return None if decided is None else not decided

    return negated


def _swapped(decision: Decision) -> Decision:
    return lambda a, b: decision(b, a)


DECISIONS: dict[str, Decision] = {
    "eq": _equal,
    "ne": _negated(_equal),
    "lt": _less,
    "ge": _negated(_less),
    "gt": _swapped(_less),
    "le": _negated(_swapped(_less)),
}
"""Each comparison of dims, where it can be decided before run time."""


def _elements(decision: Decision) -> Callable[[Node], tuple[Expr, ...] | None]:
    def elements(node: Node) -> tuple[Expr, ...] | None:
        pairs = broadcast_elements(node)
        if pairs is None:
            return None
        decided = [decision(a, b) for a, b in pairs]
        return None if None in decided else tuple(const(int(bool(d))) for d in decided)

    return elements


def _samples(bools: bool) -> Callable[[], Iterable[Sample]]:
    def samples() -> Iterable[Sample]:
        rng = np.random.default_rng(0)
        i = rng.integers(-3, 3, (3, 1, 37))
        j = rng.integers(-3, 3, (5, 37))
        yield Sample((i, j), dynamic=((0, 0), (0, 2), (1, 1)))
        yield Sample((i.astype(np.float32), j.astype(np.float32)), dynamic=((1, 0),))
        yield Sample((i.astype(np.int8), j[:1, :1].astype(np.int8)))
        yield Sample((SPECIAL[:, None], SPECIAL[None]))
        yield Sample((j[0], j[1]))
        yield Sample((np.asarray(3), np.asarray(4)))
        yield Sample((i[:0], i[:1]))
        if bools:
            yield Sample((i > 0, j > 0))

    return samples


def _compare(name: str) -> None:
    def reference(attrs: Attrs, a: Array, b: Array) -> Array:
        return apply(name, a, b)

    def define(node: Node, read: Read, index: Index, output: int) -> Scalar:
        operands = (read_broadcast(node, read, k, index) for k in range(2))
        return fn(name, *operands, dtype=DType.BOOL)

    elements, samples = _elements(DECISIONS[name]), _samples(name in ("eq", "ne"))
    register(OpDef(name, "pointwise", _infer, reference, define, elements, samples))


for _name in DECISIONS:
    _compare(_name)
