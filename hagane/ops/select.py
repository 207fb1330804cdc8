"""Ops that choose elements by their values: argmax, argmin, topk, nonzero, compress.

NaN counts as the greatest value in topk, and as the winner in argmax and argmin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import const, to_expr
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Index, Read, Scalar, lit
from hagane.ops.loops import loops
from hagane.ops.shapes import normal_axis


def _infer_arg(node: Node) -> list[Type]:
    x = node.input(0)
    axis = normal_axis(node.attrs["axis"], x.rank)
    if x.rank == 0 or x.shape[axis] == 0:
        raise ShapeError(f"{node.op} needs elements along an axis to choose from, not {x}")
    if not (x.dtype.is_float or x.dtype.is_int):
        raise ModelError(f"{node.op} takes numbers, not {x.dtype}")
    kept = (const(1),) if node.attrs["keepdims"] else ()
    return [Type(DType.I64, (*x.shape[:axis], *kept, *x.shape[axis + 1 :]))]


def _arg_reference(pick: Callable[..., Array]) -> Callable[[Attrs, Array], Array]:
    def reference(attrs: Attrs, x: Array) -> Array:
        axis, keepdims = attrs["axis"], attrs["keepdims"]
        if attrs["select_last"]:
            found = x.shape[axis] - 1 - pick(np.flip(x, axis), axis=axis, keepdims=keepdims)
        else:
            found = pick(x, axis=axis, keepdims=keepdims)
        return np.asarray(found, np.int64)

    return reference


def _define_arg(node: Node, read: Read, index: Index, output: int) -> Scalar:
    x = node.input(0)
    axis = normal_axis(node.attrs["axis"], x.rank)
    after = axis + 1 if node.attrs["keepdims"] else axis
    outer = (*index[:axis], *index[after:])
    nest = loops(outer, [x.shape[axis]])
    if not nest.axes:  # one element to choose from
        return lit(DType.I64, 0)
    body = read(0, (*index[:axis], nest.positions[0], *index[after:]))
    return nest.reduce(node.op + ("-last" if node.attrs["select_last"] else ""), body, DType.I64)


def _arg_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 3, (3, 7, 19)).astype(np.float32)
    for keepdims in (True, False):
        for last in (False, True):
            attrs = {"keepdims": keepdims, "select_last": last}
            yield Sample((x,), {"axis": 1, **attrs}, dynamic=((0, 0), (0, 1)))
            yield Sample((x[0].astype(np.int32),), {"axis": -1, **attrs}, dynamic=((0, 0),))
            yield Sample((x[:, :1],), {"axis": 1, **attrs})
            yield Sample((np.array([1, np.nan, 5, np.nan, 2], np.float32),), {"axis": 0, **attrs})
            yield Sample((np.full((2, 5), -np.inf, np.float32),), {"axis": 1, **attrs})
            yield Sample((x[:0],), {"axis": 1, **attrs})


for _name, _pick in (("argmax", np.argmax), ("argmin", np.argmin)):
    register(
        OpDef(_name, "reduction", _infer_arg, _arg_reference(_pick), define=_define_arg, samples=_arg_samples)
    )


def _infer_topk(node: Node) -> list[Type]:
    x, k = node.input(0), to_expr(node.attrs["k"])
    axis = normal_axis(node.attrs["axis"], x.rank)
    if x.rank == 0 or (k.is_const and x.shape[axis].is_const and not 0 <= k.value <= x.shape[axis].value):
        raise ShapeError(f"topk can't choose {k} elements along axis {axis} of {x}")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return [Type(x.dtype, shape), Type(DType.I64, shape)]


def _topk(attrs: Attrs, x: Array) -> tuple[Array, Array]:
    """The order is by value, then by position; also for sorted=False, where any order would do."""
    axis = attrs["axis"] % x.ndim
    if attrs["largest"]:
        backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        order = x.shape[axis] - 1 - np.flip(backwards, axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    chosen = np.take(order, np.arange(attrs["k"]), axis=axis)
    return np.take_along_axis(x, chosen, axis=axis), chosen.astype(np.int64)


def _topk_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    x = rng.permutation(3 * 37 * 5).reshape(3, 37, 5).astype(np.float32)
    ties = rng.integers(-3, 3, (4, 33))
    for largest in (True, False):
        attrs = {"largest": largest, "sorted": True}
        yield Sample((x,), {"k": 5, "axis": 1, **attrs}, dynamic=((0, 0), (0, 1)))
        yield Sample((x[..., 0].astype(np.float16),), {"k": 37, "axis": -1, **attrs}, dynamic=((0, 0),))
        yield Sample((ties,), {"k": 9, "axis": 1, **attrs})
        yield Sample((ties.astype(np.uint8),), {"k": 2, "axis": 0, **attrs})
        yield Sample((np.array([1, np.inf, -np.inf, 0, -0.0], np.float32),), {"k": 4, "axis": 0, **attrs})
        yield Sample((x,), {"k": 0, "axis": 1, **attrs})
        yield Sample((x[:0],), {"k": 3, "axis": 1, **attrs})
    yield Sample((x,), {"k": 1, "axis": 2, "largest": True, "sorted": False})


register(OpDef("topk", "select", _infer_topk, _topk, samples=_topk_samples))


def _infer_nonzero(node: Node) -> list[Type]:
    x = node.input(0)
    return [Type(DType.I64, (const(max(1, x.rank)), to_expr(node.attrs["count"])))]


def _nonzero(attrs: Attrs, x: Array) -> Array:
    return np.array(np.nonzero(np.atleast_1d(x)), np.int64)


def _nonzero_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    x = rng.integers(-1, 2, (3, 5, 19))
    for array in (
        x,
        x[0].astype(np.float32),
        x > 0,
        x[:0],
        np.zeros((3, 4), bool),
        np.asarray(5),
        np.asarray(0),
    ):
        count = int(np.count_nonzero(array))
        yield Sample((array,), {"count": count}, dynamic=((0, 0),) if array.ndim else ())


register(OpDef("nonzero", "select", _infer_nonzero, _nonzero, samples=_nonzero_samples))


def _infer_compress(node: Node) -> list[Type]:
    x, condition, axis = node.input(0), node.input(1), node.attrs["axis"]
    if condition.dtype is not DType.BOOL or condition.rank != 1:
        raise ShapeError(f"the condition must be a list of bool, not {condition}")
    count = to_expr(node.attrs["count"])
    if axis is None:
        return [Type(x.dtype, (count,))]
    axis = normal_axis(axis, x.rank)
    return [Type(x.dtype, (*x.shape[:axis], count, *x.shape[axis + 1 :]))]


def _compress(attrs: Attrs, x: Array, condition: Array) -> Array:
    return np.compress(condition, x, attrs["axis"])


def _compress_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 7, 5)).astype(np.float32)
    for axis, length in ((1, 7), (-1, 3), (None, 105), (None, 20), (0, 3)):
        condition = rng.integers(0, 2, length).astype(bool)
        attrs = {"axis": axis, "count": int(condition.sum())}
        yield Sample((x, condition), attrs, dynamic=((0, 0), (1, 0)))
    yield Sample((x.astype(np.int64), np.zeros(5, bool)), {"axis": 2, "count": 0})


register(OpDef("compress", "select", _infer_compress, _compress, samples=_compress_samples))
