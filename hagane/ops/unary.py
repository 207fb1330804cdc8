"""Pointwise functions of one operand that are primitives: neg, exp, floor, isnan, not, identity and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.core.symbolic import Expr, emax
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Index, Read, Scalar, fn, lit
from hagane.ops.primitives import apply

SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, -0.0, 0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 1e-30, -88.7, 87.3], np.float32
)
"""Where pointwise functions differ: NaN, infinities, signed zeros, ties of rounding, near overflow."""

Elements = Callable[[Node], tuple[Expr, ...] | None]


def infer_same(node: Node) -> list[Type]:
    """The output has the input's type."""
    return [node.input(0).type]


def infer_float(node: Node) -> list[Type]:
    """The output has the input's type, which must be a float."""
    x = node.input(0)
    if not x.dtype.is_float:
        raise ModelError(f"{node.op} takes floating-point elements, not {x.dtype}")
    return [x.type]


def _infer_numeric(node: Node) -> list[Type]:
    x = node.input(0)
    if not (x.dtype.is_float or x.dtype.is_int):
        raise ModelError(f"{node.op} takes numbers, not {x.dtype}")
    return [x.type]


def _infer_integer(node: Node) -> list[Type]:
    x = node.input(0)
    if not x.dtype.is_int:
        raise ModelError(f"{node.op} takes integers, not {x.dtype}")
    return [x.type]


def _infer_bool(node: Node) -> list[Type]:
    x = node.input(0)
    if x.dtype is not DType.BOOL:
        raise ModelError(f"{node.op} takes bool, not {x.dtype}")
    return [x.type]


def _infer_test(node: Node) -> list[Type]:
    return [Type(DType.BOOL, infer_float(node)[0].shape)]


def float_samples(lo: float = -4.0, hi: float = 4.0) -> Callable[[], Iterable[Sample]]:
    """Floats in a range and the special values; odd sizes, a dynamic dim, a scalar, no elements."""

    def samples() -> Iterable[Sample]:
        yield from samples_with({}, lo, hi)

    return samples


def samples_with(attrs: Attrs, lo: float = -4.0, hi: float = 4.0) -> Iterable[Sample]:
    """`float_samples` with the given attributes."""
    rng = np.random.default_rng(0)
    x = rng.uniform(lo, hi, (3, 5, 37)).astype(np.float32)
    yield Sample((x,), attrs, dynamic=((0, 0), (0, 2)))
    yield Sample((SPECIAL,), attrs)
    yield Sample((x[0].astype(np.float16),), attrs)
    yield Sample((x[:, 0].astype(np.float64),), attrs)
    yield Sample((np.asarray(x[0, 0, 0]),), attrs)
    yield Sample((x[:, :0],), attrs)


def _integer_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    yield Sample((rng.integers(-99, 99, (5, 19)),), dynamic=((0, 1),))
    yield Sample((rng.integers(-128, 128, (3, 33)).astype(np.int8),))
    yield Sample((rng.integers(-99, 99, 7).astype(np.int32),))


def _numeric_samples() -> Iterable[Sample]:
    yield from float_samples()()
    yield from _integer_samples()


def _bool_samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)
    yield Sample((rng.integers(0, 2, (5, 19)).astype(bool),), dynamic=((0, 1),))
    yield Sample((np.zeros((0, 3), bool),))


def _element_wise(rule: Callable[[Expr], Expr | None]) -> Elements:
    def elements(node: Node) -> tuple[Expr, ...] | None:
        known = node.input(0).elements
        if known is None:
            return None
        mapped = [rule(e) for e in known]
        kept = tuple(e for e in mapped if e is not None)
        return kept if len(kept) == len(mapped) else None

    return elements


def _sign(value: Expr) -> Expr | None:
    lo, hi = value.bounds()
    if lo is not None and lo > 0:
        return value * 0 + 1
    if hi is not None and hi < 0:
        return value * 0 - 1
    return value if value == 0 else None


def _not(value: Expr) -> Expr | None:
    return 1 - value if value.is_const else None


def _define(name: str, bool_result: bool) -> Callable[[Node, Read, Index, int], Scalar]:
    def define(node: Node, read: Read, index: Index, output: int) -> Scalar:
        x = read(0, index)
        return fn(name, x, dtype=DType.BOOL if bool_result else x.dtype)

    return define


def _reference(name: str) -> Callable[..., Array]:
    def reference(attrs: Attrs, x: Array) -> Array:
        return apply(name, x)

    return reference


def _unary(
    name: str,
    samples: Callable[[], Iterable[Sample]],
    infer: Callable[[Node], list[Type]] = infer_float,
    elements: Elements | None = None,
) -> None:
    define = _define(name, infer is _infer_test)
    register(OpDef(name, "pointwise", infer, _reference(name), define, elements, samples))


_unary("neg", _numeric_samples, _infer_numeric, _element_wise(lambda e: -e))
_unary("abs", _numeric_samples, _infer_numeric, _element_wise(lambda e: emax(e, -e)))
_unary("sign", _numeric_samples, _infer_numeric, _element_wise(_sign))
_unary("bit_not", _integer_samples, _infer_integer)
_unary("not", _bool_samples, _infer_bool, _element_wise(_not))
_unary("isnan", float_samples(), _infer_test)
for _name in ("reciprocal", "exp", "expm1", "floor", "ceil", "round", "erf", "sigmoid", "softplus"):
    _unary(_name, float_samples())
for _name in ("sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh"):
    _unary(_name, float_samples())
_unary("sqrt", float_samples(-1, 9))
_unary("rsqrt", float_samples(-1, 9))
_unary("log", float_samples(-1, 9))
_unary("log1p", float_samples(-2, 9))
_unary("asin", float_samples(-1.1, 1.1))
_unary("acos", float_samples(-1.1, 1.1))
_unary("atanh", float_samples(-1.1, 1.1))
_unary("acosh", float_samples(0.5, 9))


def _identity_samples() -> Iterable[Sample]:
    yield from _numeric_samples()
    yield from _bool_samples()


register(
    OpDef(
        "identity",
        "pointwise",
        infer_same,
        lambda attrs, x: x,
        define=lambda node, read, index, output: read(0, index),
        elements=lambda node: node.input(0).elements,
        samples=_identity_samples,
    )
)


def _isinf(attrs: Attrs, x: Array) -> Array:
    return np.asarray((np.isposinf(x) & attrs["positive"]) | (np.isneginf(x) & attrs["negative"]))


def _define_isinf(node: Node, read: Read, index: Index, output: int) -> Scalar:
    x = read(0, index)
    wanted = [n for n in ("positive", "negative") if node.attrs[n]]
    tests = [fn("isinf_" + n[:3], x, dtype=DType.BOOL) for n in wanted]
    if len(tests) == 2:
        return fn("or", *tests)
    return tests[0] if tests else lit(DType.BOOL, False)


def _isinf_samples() -> Iterable[Sample]:
    for positive, negative in ((True, True), (True, False), (False, True)):
        yield from list(samples_with({"positive": positive, "negative": negative}))[:3]


register(OpDef("isinf", "pointwise", _infer_test, _isinf, _define_isinf, samples=_isinf_samples))
