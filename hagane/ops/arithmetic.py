"""Broadcasting binary arithmetic: add, sub, mul, div, pow, mod, fmod, min, max, and `where`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, const, emax, emin, provably_nonneg
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import OpDef, Sample, register
from hagane.ir.scalar import Guard, Index, Read, Scalar, fn
from hagane.ops.primitives import apply
from hagane.ops.shapes import broadcast_shapes, read_broadcast, require_same

SymbolicRule = Callable[[Expr, Expr], Expr | None]


def _infer(node: Node) -> list[Type]:
    a, b = node.input(0), node.input(1)
    require_same(a, b)
    if a.dtype is DType.BOOL and node.op not in ("min", "max"):
        raise ModelError(
            f"{node.op} takes numbers, not bool",
            next_step="cast them to a numeric type first, or use and, or, xor",
        )
    return [Type(a.dtype, broadcast_shapes(a.shape, b.shape))]


def _define(name: str) -> Callable[[Node, Read, Index, int], Scalar]:
    def define(node: Node, read: Read, index: Index, output: int) -> Scalar:
        return fn(name, read_broadcast(node, read, 0, index), read_broadcast(node, read, 1, index))

    return define


def _elements(rule: SymbolicRule | None) -> Callable[[Node], tuple[Expr, ...] | None] | None:
    if rule is None:
        return None

    def elements(node: Node) -> tuple[Expr, ...] | None:
        a, b = node.input(0).elements, node.input(1).elements
        if a is None or b is None or 0 in (len(a), len(b)):
            return None
        length = max(len(a), len(b))
        if len(a) not in (1, length) or len(b) not in (1, length):
            return None
        known = [rule(a[i % len(a)], b[i % len(b)]) for i in range(length)]
        kept = tuple(e for e in known if e is not None)
        return kept if len(kept) == length else None

    return elements


def _samples(integers_only: bool = False) -> Callable[[], Iterable[Sample]]:
    def samples() -> Iterable[Sample]:
        rng = np.random.default_rng(0)
        x = rng.uniform(0.5, 3, (3, 1, 37)).astype(np.float32)
        y = rng.uniform(-2, 3, (5, 37)).astype(np.float32)
        i = rng.integers(1, 9, (4, 19))
        if not integers_only:
            yield Sample((x, y), dynamic=((0, 0), (0, 2), (1, 1)))
            yield Sample((x, np.asarray(1.5, np.float32)))
            yield Sample((x.astype(np.float64), y.astype(np.float64)))
        yield Sample((i, i[::-1, :1].copy()))
        yield Sample((i.astype(np.int32), i.astype(np.int32)))

    return samples


def _wrapped(a: Array, result: Array) -> Array:
    return result.astype(a.dtype)


def _binary(
    name: str,
    reference: Callable[..., Array],
    symbolic: SymbolicRule | None = None,
    integers_only: bool = False,
) -> None:
    register(
        OpDef(
            name,
            "pointwise",
            _infer,
            reference,
            define=_define(name),
            elements=_elements(symbolic),
            samples=_samples(integers_only),
        )
    )


def _truncated_div(a: Expr, b: Expr) -> Expr | None:
    """C's division: floor division where both are surely non-negative; unknown for other expressions."""
    if b == 0:
        return None
    if a.is_const and b.is_const:
        magnitude = abs(a.value) // abs(b.value)
        return const(magnitude if (a.value < 0) == (b.value < 0) else -magnitude)
    return a // b if provably_nonneg(a) and provably_nonneg(b) else None


def _modulo(a: Expr, b: Expr) -> Expr | None:
    return None if b == 0 else a % b


_binary("add", lambda attrs, a, b: _wrapped(a, a + b), lambda a, b: a + b)
_binary("sub", lambda attrs, a, b: _wrapped(a, a - b), lambda a, b: a - b)
_binary("mul", lambda attrs, a, b: _wrapped(a, a * b), lambda a, b: a * b)
_binary("div", lambda attrs, a, b: apply("div", a, b), _truncated_div)
_binary("min", lambda attrs, a, b: np.minimum(a, b), emin)
_binary("max", lambda attrs, a, b: np.maximum(a, b), emax)
_binary("mod", lambda attrs, a, b: np.mod(a, b), _modulo)  # sign of the divisor, as Python's %
_binary("fmod", lambda attrs, a, b: np.fmod(a, b))  # sign of the dividend, as C's fmod


def _infer_pow(node: Node) -> list[Type]:
    base, exponent = node.input(0), node.input(1)
    return [Type(base.dtype, broadcast_shapes(base.shape, exponent.shape))]


def _pow(attrs: dict[str, Any], a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return _wrapped(a, np.power(a.astype(np.float64), b) if a.dtype.kind != "f" else np.power(a, b))


register(OpDef("pow", "pointwise", _infer_pow, _pow, define=_define("pow"), samples=_samples()))


def _infer_where(node: Node) -> list[Type]:
    cond, a, b = node.input(0), node.input(1), node.input(2)
    if cond.dtype is not DType.BOOL:
        raise ShapeError(f"the condition must be bool, not {cond.dtype}")
    require_same(a, b)
    return [Type(a.dtype, broadcast_shapes(cond.shape, a.shape, b.shape))]


def _define_where(node: Node, read: Read, index: Index, output: int) -> Scalar:
    cond, a, b = (read_broadcast(node, read, k, index) for k in range(3))
    return Guard(a.dtype, cond, a, b)


def _where_elements(node: Node) -> tuple[Expr, ...] | None:
    cond, a, b = (node.input(k).elements for k in range(3))
    if cond is None or a is None or b is None or not all(c.is_const for c in cond):
        return None
    if 0 in (len(cond), len(a), len(b)):
        return None
    length = max(len(cond), len(a), len(b))
    picked = [(cond[i % len(cond)], a[i % len(a)], b[i % len(b)]) for i in range(length)]
    return tuple(x if c != 0 else y for c, x, y in picked)


def _where_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    cond = rng.integers(0, 2, (4, 1, 37)).astype(bool)
    x = rng.standard_normal((5, 37)).astype(np.float32)
    yield Sample((cond, x, np.asarray(-1, np.float32)), dynamic=((0, 0), (0, 2), (1, 1)))
    yield Sample((cond, x.astype(np.int64), x.astype(np.int64) * 2))


register(
    OpDef(
        "where",
        "pointwise",
        _infer_where,
        lambda attrs, cond, a, b: np.where(cond, a, b),
        define=_define_where,
        elements=_where_elements,
        samples=_where_samples,
    )
)
