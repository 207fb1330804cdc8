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
from hagane.ir.scalar import Index, Read, Scalar, cast, fn, lit
from hagane.ops.primitives import cast_array
from hagane.ops.shapes import broadcast_index, broadcast_shapes, normal_axis

F32 = DType.F32


def value_range(dtype: DType) -> tuple[int, int]:
    """The least and the greatest number of a quantised integer type."""
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


def _define_quantize(node: Node, read: Read, index: Index, output: int) -> Scalar:
    to = node.attrs["to"]
    scale = cast(read(1, _parameter_index(node, 1, index)), F32)
    result: Scalar = fn("div", cast(read(0, index), F32), scale)
    if not to.is_float:
        result = fn("round", result)
    if node.optional(2) is not None:
        result = fn("add", result, cast(read(2, _parameter_index(node, 2, index)), F32))
    if not to.is_float:  # a cast to float8 or float4 saturates by itself
        least, greatest = value_range(to)
        result = fn("min", fn("max", result, lit(F32, least)), lit(F32, greatest))
    return cast(result, to)


def _quantize(attrs: Attrs, x: Array, scale: Array, zero_point: Array | None = None) -> Array:
    to: DType = attrs["to"]
    result = x.astype(np.float32) / _spread(attrs, x, scale).astype(np.float32)
    if not to.is_float:
        result = np.rint(result)
    if zero_point is not None:
        result = result + _spread(attrs, x, zero_point).astype(np.float32)
    if to.is_float:
        return cast_array(result, to).astype(np.float64)
    return np.clip(result, *value_range(to)).astype(np.int32).astype(to.np)


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
    yield Sample((x, _one(8, np.float32), None), i8 | {"to": DType.F8E5M2})
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
