"""softmax and log_softmax along one axis, with the maximum taken out first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from hagane.core.errors import ShapeError
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Index, Read, Scalar, cast, fn
from hagane.ops.loops import accumulator, loops_over
from hagane.ops.shapes import normal_axis


def _infer(node: Node) -> list[Type]:
    x = node.input(0)
    normal_axis(node.attrs["axis"], x.rank)
    if not x.dtype.is_float:
        raise ShapeError(f"{node.op} takes floats, not {x.dtype}")
    return [x.type]


def _define(log: bool) -> Callable[[Node, Read, Index, int], Scalar]:
    def define(node: Node, read: Read, index: Index, output: int) -> Scalar:
        x = node.input(0)
        if x.rank == 0:
            return fn("sub" if log else "div", read(0, ()), read(0, ()))
        axis = normal_axis(node.attrs["axis"], x.rank)
        wide = accumulator(x.dtype)
        over_max, at_max = loops_over(index, x.shape, [axis], "m")
        largest = over_max.reduce("max", cast(read(0, at_max), wide))
        over_sum, at_sum = loops_over(index, x.shape, [axis], "k")
        total = over_sum.reduce("sum", fn("exp", fn("sub", cast(read(0, at_sum), wide), largest)))
        centred = fn("sub", cast(read(0, index), wide), largest)
        if log:
            return cast(fn("sub", centred, fn("log", total)), x.dtype)
        return cast(fn("mul", fn("exp", centred), fn("reciprocal", total)), x.dtype)

    return define


def _softmax(attrs: Attrs, x: Array) -> Array:
    if x.ndim == 0:
        return np.asarray(x / x)
    if x.size == 0:
        return x
    with np.errstate(invalid="ignore"):
        powers = np.exp(x - x.max(axis=attrs["axis"], keepdims=True))
    return np.asarray(powers / powers.sum(axis=attrs["axis"], keepdims=True))


def _log_softmax(attrs: Attrs, x: Array) -> Array:
    if x.ndim == 0:
        return np.asarray(x - x)
    if x.size == 0:
        return x
    with np.errstate(invalid="ignore"):
        centred = x - x.max(axis=attrs["axis"], keepdims=True)
    return np.asarray(centred - np.log(np.exp(centred).sum(axis=attrs["axis"], keepdims=True)))


def _samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    x = 3 * rng.standard_normal((3, 5, 37)).astype(np.float32)
    yield Sample((x,), {"axis": -1}, dynamic=((0, 0), (0, 2)))
    yield Sample((x,), {"axis": 1}, dynamic=((0, 1),))
    yield Sample((x,), {"axis": 0})
    yield Sample((x + 500,), {"axis": 2})
    yield Sample((x.astype(np.float16),), {"axis": 2}, dynamic=((0, 1),))
    yield Sample((x.astype(np.float64),), {"axis": 2})
    yield Sample((x[0, 0],), {"axis": 0}, dynamic=((0, 0),))
    yield Sample((x[:, :1, :1],), {"axis": 1})


register(OpDef("softmax", "normalisation", _infer, _softmax, define=_define(log=False), samples=_samples))
register(
    OpDef("log_softmax", "normalisation", _infer, _log_softmax, define=_define(log=True), samples=_samples)
)
