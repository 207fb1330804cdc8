"""Activations, composed of primitive functions: relu, gelu, silu, elu and their relatives, and clip.

Parameters enter unrounded, as the model's attributes give them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hagane.core.dtypes import DType, from_numpy
from hagane.core.errors import ModelError
from hagane.core.symbolic import Expr, emax, emin
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Guard, Index, Read, Scalar, fn, lit
from hagane.ops.primitives import apply
from hagane.ops.unary import infer_float, samples_with

Composed = Callable[[Scalar, Attrs], Scalar]
Limit = float | int | None


def _greater(x: Scalar, limit: float) -> Scalar:
    return fn("gt", x, lit(x.dtype, limit), dtype=DType.BOOL)


def _times(x: Scalar, factor: float) -> Scalar:
    return fn("mul", x, lit(x.dtype, factor))


def _plus(x: Scalar, term: float) -> Scalar:
    return fn("add", x, lit(x.dtype, term))


def _limits(dtype: DType, lo: Limit, hi: Limit) -> tuple[Limit, Limit]:
    """The limits, brought into the range of an integer type."""
    if not dtype.is_int:
        return lo, hi
    least, most = -(1 << dtype.bits - 1) if dtype.is_signed else 0, (1 << dtype.bits - dtype.is_signed) - 1
    low, high = (None if v is None else min(max(int(v), least), most) for v in (lo, hi))
    return low, high


def _clamped(x: Scalar, lo: Limit, hi: Limit) -> Scalar:
    lo, hi = _limits(x.dtype, lo, hi)
    if lo is not None:
        x = fn("max", x, lit(x.dtype, lo))
    if hi is not None:
        x = fn("min", x, lit(x.dtype, hi))
    return x


def _gelu(x: Scalar, attrs: Attrs) -> Scalar:
    if attrs["approx"] == "tanh":
        cube = fn("mul", fn("mul", x, x), x)
        inner = fn("tanh", _times(fn("add", x, _times(cube, 0.044715)), math.sqrt(2 / math.pi)))
    else:
        inner = fn("erf", _times(x, math.sqrt(0.5)))
    return fn("mul", _times(x, 0.5), _plus(inner, 1))


def _gelu_reference(attrs: Attrs, x: Array) -> Array:
    if attrs["approx"] == "tanh":
        return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
    return np.asarray(0.5 * x * (1 + apply("erf", x * math.sqrt(0.5))))


def _leaky_relu(x: Scalar, attrs: Attrs) -> Scalar:
    negative = fn("lt", x, lit(x.dtype, 0), dtype=DType.BOOL)
    return Guard(x.dtype, negative, _times(x, attrs["alpha"]), x)


def _elu(x: Scalar, attrs: Attrs) -> Scalar:
    negative = fn("lt", x, lit(x.dtype, 0), dtype=DType.BOOL)
    return Guard(x.dtype, negative, _times(fn("expm1", x), attrs["alpha"]), x)


def _selu(x: Scalar, attrs: Attrs) -> Scalar:
    grown = _times(fn("expm1", x), attrs["alpha"])
    return _times(Guard(x.dtype, _greater(x, 0), x, grown), attrs["gamma"])


def _celu(x: Scalar, attrs: Attrs) -> Scalar:
    alpha = attrs["alpha"]
    grown = _times(fn("expm1", fn("div", x, lit(x.dtype, alpha))), alpha)
    return fn("add", _clamped(x, 0, None), _clamped(grown, None, 0))


def _hard_sigmoid(x: Scalar, attrs: Attrs) -> Scalar:
    return _clamped(_plus(_times(x, attrs["alpha"]), attrs["beta"]), 0, 1)


def _hard_swish(x: Scalar, attrs: Attrs) -> Scalar:
    return fn("mul", x, _hard_sigmoid(x, {"alpha": 1 / 6, "beta": 0.5}))


def _thresholded_relu(x: Scalar, attrs: Attrs) -> Scalar:
    return Guard(x.dtype, _greater(x, attrs["alpha"]), x, lit(x.dtype, 0))


def _swish(x: Scalar, attrs: Attrs) -> Scalar:
    return fn("mul", x, fn("sigmoid", _times(x, attrs["alpha"])))


def _silu(x: Scalar, attrs: Attrs) -> Scalar:
    return fn("mul", x, fn("sigmoid", x))


def _mish(x: Scalar, attrs: Attrs) -> Scalar:
    return fn("mul", x, fn("tanh", fn("softplus", x)))


def _softsign(x: Scalar, attrs: Attrs) -> Scalar:
    return fn("div", x, _plus(fn("abs", x), 1))


def _activation(
    name: str,
    composed: Composed,
    reference: Callable[[Attrs, Array], Any],
    *attrs: Attrs,
    infer: Callable[[Node], list[Type]] = infer_float,
    elements: Callable[[Node], tuple[Expr, ...] | None] | None = None,
    more: Callable[[], Iterable[Sample]] = tuple,
) -> None:
    def define(node: Node, read: Read, index: Index, output: int) -> Scalar:
        return composed(read(0, index), node.attrs)

    def checked(given: Attrs, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(reference(given, x))

    def samples() -> Iterable[Sample]:
        for given in attrs or ({},):
            yield from samples_with(given)
        yield from more()

    register(OpDef(name, "pointwise", infer, checked, define, elements, samples))


def _infer_ordered(node: Node) -> list[Type]:
    x = node.input(0)
    if not (x.dtype.is_float or x.dtype.is_int):
        raise ModelError(f"{node.op} takes numbers, not {x.dtype}")
    return [x.type]


def _relu_elements(node: Node) -> tuple[Expr, ...] | None:
    known = node.input(0).elements
    return None if known is None else tuple(emax(e, 0) for e in known)


def _clip_elements(node: Node) -> tuple[Expr, ...] | None:
    known, lo, hi = node.input(0).elements, node.attrs["lo"], node.attrs["hi"]
    if known is None:
        return None
    raised = known if lo is None else tuple(emax(e, int(lo)) for e in known)
    return raised if hi is None else tuple(emin(e, int(hi)) for e in raised)


def _integers(*attrs: Attrs) -> Callable[[], Iterable[Sample]]:
    def samples() -> Iterable[Sample]:
        i = np.random.default_rng(0).integers(-99, 99, (5, 19))
        for given in attrs:
            yield Sample((i,), given, dynamic=((0, 1),))
            yield Sample((i[0].astype(np.int8),), given)

    return samples


def _clip(attrs: Attrs, x: Array) -> Array:
    lo, hi = _limits(from_numpy(x.dtype), attrs["lo"], attrs["hi"])
    if lo is not None:
        x = np.maximum(x, np.asarray(lo, x.dtype))
    return x if hi is None else np.minimum(x, np.asarray(hi, x.dtype))


def _selu_reference(a: Attrs, x: Array) -> Any:
    return a["gamma"] * np.where(x > 0, x, a["alpha"] * np.expm1(x))


def _celu_reference(a: Attrs, x: Array) -> Any:
    return np.maximum(x, 0) + np.minimum(a["alpha"] * np.expm1(x / a["alpha"]), 0)


_activation(
    "relu",
    lambda x, attrs: _clamped(x, 0, None),
    lambda a, x: np.maximum(x, x.dtype.type(0)),
    infer=_infer_ordered,
    elements=_relu_elements,
    more=_integers({}),
)
_activation(
    "clip",
    lambda x, attrs: _clamped(x, attrs["lo"], attrs["hi"]),
    _clip,
    {"lo": 0.0, "hi": 6.0},
    {"lo": None, "hi": 1.5},
    {"lo": 1.0, "hi": -1.0},
    infer=_infer_ordered,
    elements=_clip_elements,
    more=_integers({"lo": -3, "hi": 44}, {"lo": 0, "hi": None}, {"lo": -300, "hi": 300}),
)
_activation("gelu", _gelu, _gelu_reference, {"approx": "none"}, {"approx": "tanh"})
_activation("silu", _silu, lambda a, x: x * apply("sigmoid", x))
_activation("swish", _swish, lambda a, x: x * apply("sigmoid", a["alpha"] * x), {"alpha": 1.702})
_activation("mish", _mish, lambda a, x: x * np.tanh(np.logaddexp(0, x)))
_activation("softsign", _softsign, lambda a, x: x / (1 + np.abs(x)))
_activation("hard_swish", _hard_swish, lambda a, x: x * np.clip(x / 6 + 0.5, 0, 1))
_activation(
    "hard_sigmoid",
    _hard_sigmoid,
    lambda a, x: np.clip(a["alpha"] * x + a["beta"], 0, 1),
    {"alpha": 0.2, "beta": 0.5},
    {"alpha": -0.5, "beta": 0.6},
)
_activation(
    "leaky_relu",
    _leaky_relu,
    lambda a, x: np.where(x < 0, a["alpha"] * x, x),
    {"alpha": 0.01},
    {"alpha": -2.0},
)
_activation(
    "elu", _elu, lambda a, x: np.where(x < 0, a["alpha"] * np.expm1(x), x), {"alpha": 1.0}, {"alpha": 0.3}
)
_activation("selu", _selu, _selu_reference, {"alpha": 1.6732632, "gamma": 1.0507009})
_activation("celu", _celu, _celu_reference, {"alpha": 1.0}, {"alpha": 2.5})
_activation(
    "thresholded_relu",
    _thresholded_relu,
    lambda a, x: np.where(x > a["alpha"], x, 0),
    {"alpha": 1.0},
    {"alpha": -1.0},
)
