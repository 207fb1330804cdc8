"""Broadcasting logic on bool (and, or, xor) and on bits of integers (bit_and, bit_or, bit_xor, shifts)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.core.symbolic import Expr, const
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Index, Read, Scalar, fn
from hagane.ops.primitives import apply
from hagane.ops.shapes import broadcast_elements, broadcast_shapes, read_broadcast, require_same


def _infer_bool(node: Node) -> list[Type]:
    a, b = node.input(0), node.input(1)
    if not a.dtype is b.dtype is DType.BOOL:
        raise ModelError(f"{node.op} takes bool, not {a} and {b}")
    return [Type(DType.BOOL, broadcast_shapes(a.shape, b.shape))]


def _infer_bits(node: Node) -> list[Type]:
    a, b = node.input(0), node.input(1)
    require_same(a, b)
    if not a.dtype.is_int:
        raise ModelError(f"{node.op} takes integers, not {a.dtype}")
    return [Type(a.dtype, broadcast_shapes(a.shape, b.shape))]


def _elements(name: str) -> Callable[[Node], tuple[Expr, ...] | None]:
    """Decided where one side alone decides (false and x), or both are known."""

    def decide(a: Expr, b: Expr) -> Expr | None:
        for one, other in ((a, b), (b, a)):
            if name != "xor" and one.is_const:
                return other if bool(one.value) is (name == "and") else one
        return const(a.value ^ b.value) if a.is_const and b.is_const else None

    def elements(node: Node) -> tuple[Expr, ...] | None:
        decided = [decide(a, b) for a, b in broadcast_elements(node) or ()]
        kept = tuple(d for d in decided if d is not None)
        return kept if decided and len(kept) == len(decided) else None

    return elements


def _bool_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (3, 1, 19)).astype(bool), rng.integers(0, 2, (5, 19)).astype(bool)
    yield Sample((a, b), dynamic=((0, 0), (0, 2), (1, 1)))
    yield Sample((a[0, 0], b[0]))
    yield Sample((a, np.asarray(True)))
    yield Sample((a[:0], b))


def _bit_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-999, 999, (3, 1, 19)), rng.integers(-999, 999, (5, 19))
    yield Sample((a, b), dynamic=((0, 0), (1, 1)))
    yield Sample((a.astype(np.int32), b.astype(np.int32)))
    yield Sample((a.astype(np.uint8), b.astype(np.uint8)))


def _shift_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    for dtype in (np.uint8, np.uint16, np.uint32, np.uint64):
        a, b = rng.integers(0, 255, (3, 1, 19)), rng.integers(0, 8, (5, 19))
        yield Sample((a.astype(dtype), b.astype(dtype)), dynamic=((0, 0),))
    yield Sample((np.full(4, 200, np.uint8), np.array([0, 7, 8, 200], np.uint8)))
    yield Sample((np.array([5, 7, 100]), np.array([3, 0, 2])))


def _binary(
    name: str,
    infer: Callable[[Node], list[Type]],
    samples: Callable[[], Iterable[Sample]],
    elements: Callable[[Node], tuple[Expr, ...] | None] | None = None,
) -> None:
    def reference(attrs: Attrs, a: Array, b: Array) -> Array:
        return apply(name, a, b)

    def define(node: Node, read: Read, index: Index, output: int) -> Scalar:
        return fn(name, read_broadcast(node, read, 0, index), read_broadcast(node, read, 1, index))

    register(OpDef(name, "pointwise", infer, reference, define, elements, samples))


for _name in ("and", "or", "xor"):
    _binary(_name, _infer_bool, _bool_samples, _elements(_name))
for _name in ("bit_and", "bit_or", "bit_xor"):
    _binary(_name, _infer_bits, _bit_samples)
for _name in ("shift_left", "shift_right"):
    _binary(_name, _infer_bits, _shift_samples)
