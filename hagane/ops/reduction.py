"""Reductions over axes: sum, mean, max, min, prod, any, all. No axes means that nothing is reduced.

Integers wrap, NaN wins in max and min, an empty range gives the operation's identity (NaN for a float mean).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, const, emax, emin, product
from hagane.ir.graph import Array, Node, Shape, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Index, Read, Scalar, cast, fn
from hagane.ops.loops import accumulator, count, loops_over
from hagane.ops.shapes import normal_axis


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The reduced axes, counted from the front and in order. Raises: ShapeError."""
    rank = node.input(0).rank
    axes = sorted(normal_axis(a, rank) for a in node.attrs["axes"])
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{node.op} names an axis twice: axes={node.attrs['axes']} of rank {rank}")
    return tuple(axes)


def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """The shape after reducing the axes, which stay as ones with keepdims."""
    if keepdims:
        return tuple(const(1) if a in axes else d for a, d in enumerate(shape))
    return tuple(d for a, d in enumerate(shape) if a not in axes)


def full_index(node: Node, index: Index, axes: tuple[int, ...]) -> Index:
    """The input index for an index into the reduced output; 0 in the reduced axes."""
    rank = node.input(0).rank
    if node.attrs["keepdims"]:
        return tuple(const(0) if a in axes else e for a, e in enumerate(index))
    kept = iter(index)
    return tuple(const(0) if a in axes else next(kept) for a in range(rank))


def _infer(node: Node) -> list[Type]:
    x = node.input(0)
    return [Type(x.dtype, reduced_shape(x.shape, reduced_axes(node), node.attrs["keepdims"]))]


def _infer_bool(node: Node) -> list[Type]:
    if node.input(0).dtype is not DType.BOOL:
        raise ShapeError(f"{node.op} takes bool, not {node.input(0).dtype}")
    return _infer(node)


_BOOLEAN = {"max": "any", "min": "all", "sum": "any", "prod": "all"}


def _define(op: str) -> Callable[[Node, Read, Index, int], Scalar]:
    def define(node: Node, read: Read, index: Index, output: int) -> Scalar:
        x = node.input(0)
        axes = reduced_axes(node)
        nest, inside = loops_over(full_index(node, index, axes), x.shape, axes)
        if x.dtype is DType.BOOL:
            return nest.reduce(_BOOLEAN.get(op, op), read(0, inside))
        wide = accumulator(x.dtype) if op in ("sum", "prod", "mean") else x.dtype
        total = nest.reduce("sum" if op == "mean" else op, cast(read(0, inside), wide))
        if op == "mean" and nest.axes:
            total = fn("div", total, count([x.shape[a] for a in axes], wide))
        return cast(total, x.dtype)

    return define


SymbolicRule = Callable[[Iterable[Expr]], Expr]


def _sum_dims(dims: Iterable[Expr]) -> Expr:
    return sum(dims, const(0))


def _elements(rule: SymbolicRule | None) -> Callable[[Node], tuple[Expr, ...] | None] | None:
    if rule is None:
        return None

    def elements(node: Node) -> tuple[Expr, ...] | None:
        known = node.input(0).elements
        if known is None or not node.input(0).dtype.is_int:
            return None
        if not reduced_axes(node):
            return known
        return (rule(known),) if known or rule in (_sum_dims, product) else None

    return elements


def _limit(x: Array, largest: bool) -> Any:
    """The largest or smallest value of x's type."""
    if x.dtype.kind == "f":
        return np.inf if largest else -np.inf
    if x.dtype.kind == "b":
        return largest
    info = np.iinfo(x.dtype)
    return info.max if largest else info.min


def _mean(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    number = int(np.prod([x.shape[a] for a in axes]))
    if not axes:
        return x
    if x.dtype.kind == "f":
        with np.errstate(all="ignore"):
            return np.asarray(np.sum(x, axis=axes, keepdims=keepdims) / np.float64(number))
    total = np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype)
    return np.asarray(np.trunc(total / max(number, 1))).astype(x.dtype)


def _reference(op: str) -> Callable[..., Array]:
    def reference(attrs: Attrs, x: Array) -> Array:
        axes, keepdims = tuple(a % max(x.ndim, 1) for a in attrs["axes"]), bool(attrs["keepdims"])
        if not axes:
            return x
        match op:
            case "sum" | "prod":
                function = np.sum if op == "sum" else np.prod
                result = function(
                    x, axis=axes, keepdims=keepdims, dtype=None if x.dtype.kind == "b" else x.dtype
                )
                return np.asarray(result).astype(x.dtype)
            case "mean":
                return _mean(x, axes, keepdims)
            case "max":
                return np.asarray(np.max(x, axis=axes, keepdims=keepdims, initial=_limit(x, largest=False)))
            case "min":
                return np.asarray(np.min(x, axis=axes, keepdims=keepdims, initial=_limit(x, largest=True)))
            case "any":
                return np.asarray(np.any(x, axis=axes, keepdims=keepdims))
            case _:
                return np.asarray(np.all(x, axis=axes, keepdims=keepdims))

    return reference


def _samples(integers: bool) -> Callable[[], Iterable[Sample]]:
    def samples() -> Iterable[Sample]:
        rng = np.random.default_rng(0)
        x = rng.uniform(0.5, 1.5, (3, 5, 37)).astype(np.float32)
        yield Sample((x,), {"axes": (2,), "keepdims": True}, dynamic=((0, 0), (0, 2)))
        yield Sample((x,), {"axes": (-1, 0), "keepdims": False}, dynamic=((0, 0), (0, 1), (0, 2)))
        yield Sample((x,), {"axes": (1,), "keepdims": False}, dynamic=((0, 1),))
        yield Sample((x,), {"axes": (0, 1, 2), "keepdims": False}, dynamic=((0, 1),))
        yield Sample((x,), {"axes": (), "keepdims": True})
        yield Sample((x.astype(np.float64),), {"axes": (0, 2), "keepdims": True})
        yield Sample((x.astype(np.float16),), {"axes": (1, 2), "keepdims": False}, dynamic=((0, 0),))
        yield Sample((rng.standard_normal((1, 300)).astype(np.float32),), {"axes": (1,), "keepdims": False})
        if integers:
            i = rng.integers(-5, 9, (4, 19))
            yield Sample((i,), {"axes": (1,), "keepdims": False}, dynamic=((0, 1),))
            yield Sample((i.astype(np.int32),), {"axes": (0,), "keepdims": True})
            yield Sample((np.array([2, 3, 7]),), {"axes": (0,), "keepdims": False})

    return samples


def _bool_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (4, 5, 7)) < 0.7
    yield Sample((x,), {"axes": (2,), "keepdims": True}, dynamic=((0, 0), (0, 2)))
    yield Sample((x,), {"axes": (0, 1), "keepdims": False})
    yield Sample((x,), {"axes": (0, 1, 2), "keepdims": False})


def _numeric(op: str, symbolic: SymbolicRule | None = None) -> None:
    register(
        OpDef(
            f"reduce_{op}",
            "reduction",
            _infer,
            _reference(op),
            define=_define(op),
            elements=_elements(symbolic),
            samples=_samples(integers=op != "mean"),
        )
    )


_numeric("sum", _sum_dims)
_numeric("mean")
_numeric("max", lambda dims: emax(*dims))
_numeric("min", lambda dims: emin(*dims))
_numeric("prod", product)

for _op in ("any", "all"):
    register(
        OpDef(
            f"reduce_{_op}",
            "reduction",
            _infer_bool,
            _reference(_op),
            define=_define(_op),
            samples=_bool_samples,
        )
    )
