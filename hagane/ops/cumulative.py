"""Running sums and products along an axis: cumsum, cumprod."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hagane.core.errors import ModelError
from hagane.core.symbolic import Expr, const
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Guard, Index, Read, Scalar, at_least, below, cast, lit
from hagane.ops.loops import accumulator, loops
from hagane.ops.shapes import normal_axis

_START = {"cumsum": 0, "cumprod": 1}


def _infer(node: Node) -> list[Type]:
    x = node.input(0)
    normal_axis(node.attrs["axis"], x.rank)
    if not (x.dtype.is_float or x.dtype.is_int):
        raise ModelError(f"{node.op} takes numbers, not {x.dtype}")
    return [x.type]


def _accumulated(op: str, attrs: Attrs, x: Array) -> Array:
    axis, reverse = attrs["axis"], attrs["reverse"]
    ordered = np.flip(x, axis) if reverse else x
    with np.errstate(all="ignore"):
        running = (np.cumsum if op == "cumsum" else np.cumprod)(ordered, axis=axis, dtype=x.dtype)
    if attrs["exclusive"]:
        running = np.roll(running, 1, axis=axis)
        first = [slice(None)] * x.ndim
        first[axis] = slice(0, 1)
        running[tuple(first)] = _START[op]
    return np.asarray(np.flip(running, axis) if reverse else running)


def _define(node: Node, read: Read, index: Index, output: int) -> Scalar:
    x, exclusive = node.input(0), node.attrs["exclusive"]
    axis = normal_axis(node.attrs["axis"], x.rank)
    wide = accumulator(x.dtype)
    nest = loops(index, [x.shape[axis]])
    k, here = nest.positions[0], index[axis]
    if node.attrs["reverse"]:
        counted = below(here, k) if exclusive else at_least(k, here)
    else:
        counted = below(k, here) if exclusive else at_least(here, k)
    term = cast(read(0, (*index[:axis], k, *index[axis + 1 :])), wide)
    start = lit(wide, _START[node.op])
    return cast(nest.reduce(node.op.removeprefix("cum"), Guard(wide, counted, term, start)), x.dtype)


def _elements(node: Node) -> tuple[Expr, ...] | None:
    known = node.input(0).elements
    if known is None:
        return None
    ordered = known[::-1] if node.attrs["reverse"] else known
    running, total = [], const(_START[node.op])
    for value in ordered:
        following = total + value if node.op == "cumsum" else total * value
        running.append(total if node.attrs["exclusive"] else following)
        total = following
    return tuple(running[::-1] if node.attrs["reverse"] else running)


def _samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 7, 19)).astype(np.float32)
    for exclusive in (False, True):
        for reverse in (False, True):
            attrs = {"exclusive": exclusive, "reverse": reverse}
            yield Sample((x,), {"axis": 1, **attrs}, dynamic=((0, 1), (0, 2)))
            yield Sample((x[0],), {"axis": -1, **attrs}, dynamic=((0, 0),))
            yield Sample((rng.integers(-9, 9, 7),), {"axis": 0, **attrs})
            yield Sample((x[:, :1],), {"axis": 1, **attrs})
    plain = {"axis": 0, "exclusive": False, "reverse": False}
    yield Sample((np.array([1, np.inf, 2, -np.inf, 3], np.float32),), plain)
    yield Sample((x[:, :0],), plain)


def _cumulative(op: str) -> None:
    def reference(attrs: Attrs, x: Array) -> Array:
        return _accumulated(op, attrs, x)

    register(OpDef(op, "scan", _infer, reference, _define, _elements, _samples))


_cumulative("cumsum")
_cumulative("cumprod")
