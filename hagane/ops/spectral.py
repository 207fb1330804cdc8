"""dft: the discrete Fourier transform along one axis, as a sum over sines and cosines.

x[..., C] holds real (C = 1) or complex (C = 2) numbers; so does the result. attrs: axis, inverse, onesided,
length (None: the axis's extent), to which x is cut or padded with zeros. onesided keeps the first
length // 2 + 1 frequencies; with inverse it takes those and gives real numbers. Where the length is constant,
canonicalise makes it a product with a constant matrix, which is much faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, const, emin, to_expr
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Guard, Index, IndexValue, Read, Scalar, cast, fn, lit
from hagane.ops.loops import loops
from hagane.ops.shapes import normal_axis


def _length(attrs: Attrs, extent: Expr) -> Expr:
    if attrs.get("length") is not None:
        return to_expr(attrs["length"])
    return (extent - 1) * 2 if attrs["inverse"] and attrs["onesided"] else extent


def _infer(node: Node) -> list[Type]:
    x, attrs = node.input(0), node.attrs
    if not x.dtype.is_float or x.rank < 2:
        raise ShapeError(f"dft takes floats [..., 1 or 2], not {x}")
    axis = normal_axis(attrs["axis"], x.rank)
    if axis == x.rank - 1 or x.shape[-1] not in (const(1), const(2)):
        raise ShapeError(f"dft takes [..., 1 or 2] and an axis before the last one, not axis {axis} of {x}")
    real_result = attrs["inverse"] and attrs["onesided"]
    length = _length(attrs, x.shape[axis])
    shape = [*x.shape[:-1], const(1 if real_result else 2)]
    shape[axis] = length // 2 + 1 if attrs["onesided"] and not attrs["inverse"] else length
    return [Type(x.dtype, tuple(shape))]


def _define(node: Node, read: Read, index: Index, output: int) -> Scalar:
    """Sum of re*cos(t) + im*sin(t); a quarter turn added to t gives the imaginary part.

    In f64: the terms of a frequency that isn't there cancel, and in f32 they would leave 1e-7 of what is.
    """
    x, attrs = node.input(0), node.attrs
    axis, inverse = normal_axis(attrs["axis"], x.rank), attrs["inverse"]
    wide = DType.F64
    length = _length(attrs, x.shape[axis])
    one_sided_input = inverse and attrs["onesided"]
    used = emin(x.shape[axis], length // 2 + 1 if one_sided_input else length)
    nest = loops((*index, length), [used])
    (k,) = nest.positions

    def part(component: int) -> Scalar:
        at = tuple(k if a == axis else e for a, e in enumerate(index[:-1]))
        return cast(read(0, (*at, const(component))), wide)

    def number(value: Expr) -> Scalar:
        return cast(IndexValue(DType.I64, value), wide)

    steps = k * index[axis] % length * 4
    quarters = (-steps if inverse else steps) + index[-1] * length
    angle = fn("mul", fn("div", number(quarters), number(length * 4)), lit(wide, 2 * math.pi))
    term = fn("mul", part(0), fn("cos", angle))
    if x.shape[-1] == 2:
        term = fn("add", term, fn("mul", part(1), fn("sin", angle)))
    if one_sided_input:  # all but the first and the middle frequency stand for two
        single = fn("eq", IndexValue(DType.I64, k * 2 % length), lit(DType.I64, 0), dtype=DType.BOOL)
        term = fn("mul", term, Guard(wide, single, lit(wide, 1), lit(wide, 2)))
    total = nest.reduce("sum", term)
    return cast(fn("div", total, number(length)) if inverse else total, x.dtype)


def _dft(attrs: Attrs, x: Array) -> Array:
    axis, inverse, onesided = attrs["axis"] % x.ndim, attrs["inverse"], attrs["onesided"]
    length = _length(attrs, const(x.shape[axis])).value
    values = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]
    if inverse and onesided:
        return np.fft.irfft(values, length, axis)[..., None]
    result = np.fft.ifft(values, length, axis) if inverse else np.fft.fft(values, length, axis)
    if onesided:
        result = result.take(range(length // 2 + 1), axis)
    return np.stack([result.real, result.imag], axis=-1)


def _samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)

    def x(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float64)

    attrs: Attrs = {"axis": 1, "inverse": False, "onesided": False, "length": None}
    yield Sample((x(2, 12, 1),), attrs, dynamic=((0, 0), (0, 1)))
    yield Sample((x(2, 9, 2),), attrs, dynamic=((0, 1),))
    yield Sample((x(2, 9, 3, 2),), attrs | {"inverse": True, "axis": -3})
    yield Sample((x(2, 12, 1),), attrs | {"onesided": True}, dynamic=((0, 1),))
    yield Sample((x(2, 12, 1),), attrs | {"length": 8, "onesided": True})
    yield Sample((x(2, 5, 2),), attrs | {"length": 9})
    yield Sample((x(2, 7, 2),), attrs | {"inverse": True, "onesided": True}, dynamic=((0, 1),))
    yield Sample((x(2, 7, 2),), attrs | {"inverse": True, "onesided": True, "length": 11})


register(OpDef("dft", "reduction", _infer, _dft, define=_define, samples=_samples))
