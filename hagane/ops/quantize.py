"""Quantisation: y = saturate(round(x / scale) + zero_point), x = (y - zero_point) * scale.

scale and zero_point have one element for all of x, one per position of `axis`, or one per `block` positions.
Arithmetic is in f32, as ONNX says: a division in float64 would decide ties differently.
"""

from __future__ import annotations

from collections.abc import Iterable

import ml_dtypes
import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.symbolic import const
from hagane.ir.graph import Array, Node, Type, Value
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Guard, Index, Read, Scalar, cast, fn, lit
from hagane.ops.loops import loops
from hagane.ops.shapes import broadcast_index, broadcast_shapes, normal_axis

F32 = DType.F32


def value_range(dtype: DType) -> tuple[float, float]:
    """The least and the greatest number of a quantised type."""
    if dtype.is_float:
        greatest = float(ml_dtypes.finfo(dtype.np).max)  # type: ignore[no-untyped-call]
        return -greatest, greatest
    if dtype.is_signed:
        return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1
    return 0, 2**dtype.bits - 1


def _check_parameters(node: Node) -> None:
    """Raises: ShapeError unless scale and zero point fit x, axis and block."""
    x, block = node.input(0), node.attrs.get("block")
    for position in (1, 2):
        value = node.optional(position)
        if value is None or _is_single(value):
            continue
        axis = normal_axis(node.attrs["axis"], x.rank)
        if block:
            if value.rank != x.rank:
                raise ShapeError(f"{node.op} in blocks wants a scale of the rank of {x}, not {value}")
        elif value.rank == 1:
            a, b = value.shape[0], x.shape[axis]
            if a.is_const and b.is_const and a != b:
                raise ShapeError(f"{node.op} along axis {axis} of {x} wants {b} scales, not {value}")
        elif broadcast_shapes(x.shape, value.shape) != x.shape:
            raise ShapeError(f"{node.op} can't broadcast {value} to {x}")


def _is_single(value: Value) -> bool:
    return value.rank == 0 or (value.rank == 1 and value.shape[0] == 1)


def _parameter_index(node: Node, position: int, index: Index) -> Index:
    x, value = node.input(0), node.input(position)
    if _is_single(value):
        return (const(0),) * value.rank
    axis, block = normal_axis(node.attrs["axis"], x.rank), node.attrs.get("block")
    if block:
        return tuple(e // block if a == axis else e for a, e in enumerate(index))
    return (index[axis],) if value.rank == 1 else broadcast_index(value.shape, x.shape, index)


def _spread(attrs: Attrs, x: Array, parameter: Array) -> Array:
    """A scale or zero point in a shape that broadcasts against x."""
    if parameter.size == 1 and parameter.ndim < 2:
        return parameter.reshape(())
    axis = attrs["axis"] % x.ndim
    if attrs.get("block"):
        return np.repeat(parameter, attrs["block"], axis=axis).take(range(x.shape[axis]), axis=axis)
    if parameter.ndim == 1:
        return parameter.reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    return parameter


# ---- quantize


def _infer_quantize(node: Node) -> list[Type]:
    _check_parameters(node)
    return [Type(node.attrs["to"], node.input(0).shape)]


def _rounded(quotient: Scalar, zero_point: Scalar | None, to: DType, saturate: bool = True) -> Scalar:
    """A quotient in f32 as a number of the quantised type."""
    if not to.is_float:
        quotient = fn("round", quotient)
    if zero_point is not None:
        quotient = fn("add", quotient, cast(zero_point, F32))
    if saturate or not to.is_float:
        least, greatest = value_range(to)
        quotient = fn("min", fn("max", quotient, lit(F32, least)), lit(F32, greatest))
    return cast(quotient, to)


def _define_quantize(node: Node, read: Read, index: Index, output: int) -> Scalar:
    scale = cast(read(1, _parameter_index(node, 1, index)), F32)
    zero_point = None if node.optional(2) is None else read(2, _parameter_index(node, 2, index))
    quotient = fn("div", cast(read(0, index), F32), scale)
    return _rounded(quotient, zero_point, node.attrs["to"], node.attrs.get("saturate", True))


def _round_array(quotient: Array, zero_point: Array | None, to: DType, saturate: bool = True) -> Array:
    if not to.is_float:
        quotient = np.rint(quotient)
    if zero_point is not None:
        quotient = quotient + zero_point.astype(np.float32)
    if saturate or not to.is_float:
        quotient = np.clip(quotient, *value_range(to))
    if to.is_float:
        return quotient.astype(np.float32).astype(to.np).astype(np.float64)
    return quotient.astype(np.int32).astype(to.np)


def _quantize(attrs: Attrs, x: Array, scale: Array, zero_point: Array | None = None) -> Array:
    quotient = x.astype(np.float32) / _spread(attrs, x, scale).astype(np.float32)
    shifted = None if zero_point is None else _spread(attrs, x, zero_point)
    return _round_array(quotient, shifted, attrs["to"], attrs.get("saturate", True))


# ---- dequantize


def _infer_dequantize(node: Node) -> list[Type]:
    _check_parameters(node)
    to = node.attrs["to"]
    if not to.is_float:
        raise ShapeError(f"dequantize gives floats, not {to}")
    return [Type(to, node.input(0).shape)]


def _define_dequantize(node: Node, read: Read, index: Index, output: int) -> Scalar:
    x, element = node.input(0), read(0, index)
    if node.optional(2) is not None:
        middle = F32 if x.dtype.is_float else DType.I32
        zero_point = read(2, _parameter_index(node, 2, index))
        element = fn("sub", cast(element, middle), cast(zero_point, middle))
    scale = read(1, _parameter_index(node, 1, index))
    return cast(fn("mul", cast(element, F32), cast(scale, F32)), node.attrs["to"])


def _dequantize(attrs: Attrs, x: Array, scale: Array, zero_point: Array | None = None) -> Array:
    value = x.astype(np.float64)
    if zero_point is not None:
        value = value - _spread(attrs, x, zero_point).astype(np.float64)
    return np.asarray(value * _spread(attrs, x, scale))


# ---- dynamic_quantize: u8 over the range of x widened to hold 0 -> y, scale f32[], zero point u8[]


def _infer_dynamic(node: Node) -> list[Type]:
    x = node.input(0)
    if not x.dtype.is_float:
        raise ShapeError(f"dynamic_quantize takes floats, not {x}")
    return [Type(DType.U8, x.shape), Type(F32, ()), Type(DType.U8, ())]


def _define_dynamic(node: Node, read: Read, index: Index, output: int) -> Scalar:
    x, zero = node.input(0), lit(F32, 0)
    over_max, over_min = loops(index, x.shape, "m"), loops(index, x.shape, "k")
    greatest = fn("max", over_max.reduce("max", cast(read(0, over_max.positions), F32)), zero)
    least = fn("min", over_min.reduce("min", cast(read(0, over_min.positions), F32)), zero)
    is_flat = fn("eq", greatest, least, dtype=DType.BOOL)
    step = fn("div", fn("sub", greatest, least), lit(F32, 255))
    scale = Guard(F32, is_flat, lit(F32, 1), step)
    if output == 1:
        return scale
    zero_point = _rounded(fn("neg", fn("div", least, scale)), None, DType.U8)
    if output == 2:
        return zero_point
    return _rounded(fn("div", cast(read(0, index), F32), scale), zero_point, DType.U8)


def _dynamic(attrs: Attrs, x: Array) -> tuple[Array, ...]:
    narrow = x.astype(np.float32)
    greatest, least = narrow.max(initial=0), narrow.min(initial=0)
    scale = np.float32(1) if greatest == least else (greatest - least) / np.float32(255)
    zero_point = _round_array(np.asarray(-least / scale), None, DType.U8)
    y = _round_array(narrow / scale, zero_point, DType.U8)
    return y, np.asarray(scale, np.float64), zero_point


# ---- samples


def _one(value: float, kind: type[np.generic]) -> Array:
    return np.asarray(value, kind)


def _quantize_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-40, 40, (3, 5, 37)).astype(np.float32)
    scales = (2.0 ** rng.integers(-3, 1, 5)).astype(np.float32)
    i8, u8 = {"axis": 1, "to": DType.I8, "block": None}, {"axis": 1, "to": DType.U8, "block": None}
    yield Sample((x, _one(0.25, np.float32), _one(128, np.uint8)), u8, dynamic=((0, 0), (0, 2)))
    yield Sample((x, _one(0.3, np.float32), _one(-3, np.int8)), i8, dynamic=((0, 0), (0, 2)))
    yield Sample((x, scales, rng.integers(-9, 9, 5).astype(np.int8)), i8, dynamic=((0, 0), (0, 2)))
    yield Sample((x, scales[:3], None), i8 | {"axis": -3, "to": DType.I16})
    yield Sample((x.astype(np.float16), _one(0.5, np.float16), None), i8)
    yield Sample((np.arange(20, dtype=np.int32), _one(0.5, np.float32), _one(3, np.uint8)), u8 | {"axis": 0})
    blocks = (2.0 ** rng.integers(-2, 3, (3, 5, 5))).astype(np.float32)
    yield Sample((x, blocks, None), {"axis": 2, "to": DType.I4, "block": 8}, dynamic=((0, 0), (0, 1)))
    yield Sample((100 * x, _one(2, np.float32), None), i8 | {"to": DType.F8E4M3})
    yield Sample((x, _one(8, np.float32), None), i8 | {"to": DType.F8E5M2, "saturate": False})
    yield Sample((x, np.ones(1, np.float32), np.zeros(1, np.uint8)), u8)


def _dequantize_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (3, 5, 37)).astype(np.int8)
    scales = rng.uniform(0.1, 2, 5).astype(np.float32)
    attrs = {"axis": 1, "to": F32, "block": None}
    yield Sample((x, _one(0.3, np.float32), _one(-7, np.int8)), attrs, dynamic=((0, 0), (0, 2)))
    yield Sample(
        (x.view(np.uint8), scales, rng.integers(0, 255, 5).astype(np.uint8)), attrs, dynamic=((0, 2),)
    )
    yield Sample((x, scales, None), attrs)
    yield Sample((rng.integers(-9999, 9999, (4, 19)).astype(np.int32), _one(0.01, np.float32), None), attrs)
    yield Sample((x, _one(0.25, np.float16), _one(3, np.int8)), attrs | {"to": DType.F16})
    blocks = rng.uniform(0.1, 2, (3, 5, 5)).astype(np.float32)
    nibbles = rng.integers(0, 16, (3, 5, 37)).astype(ml_dtypes.uint4)
    zeros = rng.integers(0, 16, (3, 5, 5)).astype(ml_dtypes.uint4)
    yield Sample((nibbles, blocks, zeros), attrs | {"axis": -1, "block": 8}, dynamic=((0, 0), (0, 1)))
    yield Sample((x.astype(np.float32).astype(ml_dtypes.float8_e4m3fn), _one(0.5, np.float32), None), attrs)


def _dynamic_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    x = rng.integers(-200, 310, (4, 33)).astype(np.float32)
    x[0, :2] = (-200, 310)  # a scale of 2: the same ties however it is divided
    yield Sample((x,), dynamic=((0, 0), (0, 1)))
    yield Sample((np.zeros((3, 5), np.float32),))
    yield Sample((np.linspace(0, 255, 18, dtype=np.float32),), dynamic=((0, 0),))
    yield Sample((np.linspace(-255, -1, 18, dtype=np.float32),))


register(
    OpDef(
        "quantize",
        "pointwise",
        _infer_quantize,
        _quantize,
        define=_define_quantize,
        samples=_quantize_samples,
    )
)
register(
    OpDef(
        "dequantize",
        "pointwise",
        _infer_dequantize,
        _dequantize,
        define=_define_dequantize,
        samples=_dequantize_samples,
    )
)
register(
    OpDef(
        "dynamic_quantize",
        "normalisation",
        _infer_dynamic,
        _dynamic,
        define=_define_dynamic,
        samples=_dynamic_samples,
    )
)
