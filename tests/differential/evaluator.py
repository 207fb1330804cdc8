"""Evaluates tensor expressions with NumPy over all output elements at once, checking each fact they rely on.

Arrays have an axis for the flattened output and one per enclosing reduction loop. A load outside its operand,
a symbol outside its stated range, an unknown function or a type clash fails the evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.symbolic import Call, Expr, Sym
from hagane.ir.graph import Node
from hagane.ir.registry import op_def
from hagane.ir.scalar import (
    Fn,
    Guard,
    Index,
    IndexValue,
    LetIndex,
    Lit,
    Load,
    Reduce,
    Scalar,
)
from hagane.ops.primitives import COMPARISONS, PRIMITIVES, apply

Array = np.ndarray[Any, Any]
Env = dict[str, Array]

_FREE_TYPED = {"pow", "shift_left", "shift_right", "cast"}
_REDUCTIONS = {
    "sum": np.add.reduce,
    "prod": np.multiply.reduce,
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
    "any": np.logical_or.reduce,
    "all": np.logical_and.reduce,
}


def evaluate_scalar(scalar: Scalar, operands: list[Array | None], env: Mapping[str, int | Array]) -> Array:
    """The scalar for every element; env holds dims as ints and axis symbols as arrays of one length."""
    length = max((v.size for v in env.values() if isinstance(v, np.ndarray)), default=1)
    arrays = {name: np.broadcast_to(np.asarray(v, np.int64), (length,)) for name, v in env.items()}
    value = _Evaluation(operands).value(scalar, arrays, np.ones(length, bool), {})
    return np.broadcast_to(value, (length,))


def evaluate_define(
    node: Node, operands: list[Array | None], dims: Mapping[str, int], output: int = 0
) -> Array:
    """An output of a node by its definition, given the values of the symbols in its shapes."""
    define = op_def(node.op).define
    assert define is not None
    type_ = node.outputs[output].type
    extents = tuple(d.evaluate(dims) for d in type_.shape)
    index = axis_symbols(type_.shape)
    scalar = define(node, lambda k, at: Load(node.input(k).dtype, k, at), index, output)
    assert scalar.dtype is type_.dtype, (
        f"{node.op} defines {scalar.dtype} elements, its type is {type_.dtype}"
    )
    env: dict[str, int | Array] = dict(dims)
    for axis, grid in enumerate(np.indices(extents, np.int64)):
        env[f"i{axis}"] = grid.reshape(-1)
    if np.prod(extents, dtype=np.int64) == 0:
        return np.zeros(extents, np.float64 if type_.dtype.is_float else type_.dtype.np)
    return evaluate_scalar(scalar, operands, env).reshape(extents)


def axis_symbols(shape: tuple[Expr, ...]) -> Index:
    """One symbol per output axis, as code generators make them."""
    return tuple(
        Expr([((Sym(f"i{axis}", 0, None, 1, dim),), 1)]) if dim != 1 else Expr([])
        for axis, dim in enumerate(shape)
    )


class _Evaluation:
    def __init__(self, operands: list[Array | None]) -> None:
        self.operands = operands

    def value(self, scalar: Scalar, env: Env, active: Array, memo: dict[int, Array]) -> Array:
        """The scalar where active; elsewhere anything."""
        found = memo.get(id(scalar))
        if found is None:
            found = memo[id(scalar)] = self._value(scalar, env, active, memo)
        return found

    def _value(self, scalar: Scalar, env: Env, active: Array, memo: dict[int, Array]) -> Array:
        match scalar:
            case Lit(dtype=dtype, value=value):
                return _as_type(np.asarray(value), dtype)
            case IndexValue(dtype=dtype, expr=expr):
                assert dtype is DType.I64
                return self.expression(expr, env, active)
            case Load():
                return self._load(scalar, env, active)
            case Fn():
                return self._function(scalar, [self.value(a, env, active, memo) for a in scalar.args])
            case Guard(cond=cond, value=value, other=other):
                assert cond.dtype is DType.BOOL and value.dtype is other.dtype is scalar.dtype
                holds = np.broadcast_to(self.value(cond, env, active, memo), active.shape)
                yes = self.value(value, env, active & holds, dict(memo))
                no = self.value(other, env, active & ~holds, dict(memo))
                return np.where(holds, yes, no)
            case LetIndex(name=name, value=value, body=body):
                assert value.dtype is DType.I64 and body.dtype is scalar.dtype
                bound = np.broadcast_to(self.value(value, env, active, memo), active.shape)
                return self.value(body, {**env, name: bound}, active, {})
            case Reduce():
                return self._reduce(scalar, env, active)
        raise AssertionError(f"unknown scalar {scalar}")

    def _load(self, scalar: Load, env: Env, active: Array) -> Array:
        operand = self.operands[scalar.operand]
        assert operand is not None, "reads an absent operand"
        assert len(scalar.index) == operand.ndim, f"{len(scalar.index)} positions for {operand.ndim} axes"
        at = []
        for axis, expr in enumerate(scalar.index):
            position = np.broadcast_to(self.expression(expr, env, active), active.shape)
            bad = active & ((position < 0) | (position >= operand.shape[axis]))
            assert not bad.any(), (
                f"reads {position[bad][:3]} of axis {axis} with extent {operand.shape[axis]}"
            )
            at.append(np.where(active, position, 0))
        if operand.size == 0:
            assert not active.any()
            return np.zeros(active.shape, operand.dtype)
        return np.broadcast_to(operand[tuple(at)], active.shape)

    def _function(self, scalar: Fn, args: list[Array]) -> Array:
        name, dtype = scalar.name, scalar.dtype
        assert name in PRIMITIVES, f"{name} is no primitive"
        if name not in _FREE_TYPED:
            assert len({a.dtype for a in scalar.args}) == 1, f"{name} of {[a.dtype for a in scalar.args]}"
        if name in COMPARISONS:
            assert dtype is DType.BOOL, f"{name} gives bool, not {dtype}"
        elif name != "cast":
            assert dtype is scalar.args[0].dtype, f"{name} of {scalar.args[0].dtype} gives {dtype}"
        source = scalar.args[0].dtype
        if name == "cast" and dtype.is_float and source.is_float and dtype.bits >= source.bits:
            return args[0]  # widening keeps the value; references compute in float64 throughout
        return _as_type(apply(name, *args, dtype=dtype), dtype)

    def _reduce(self, scalar: Reduce, env: Env, active: Array) -> Array:
        number = len(scalar.axes)
        extents = [int(self._constant(axis.extent, env, active)) for axis in scalar.axes]
        inner = {name: v.reshape(v.shape + (1,) * number) for name, v in env.items()}
        full = (*active.shape, *extents)
        for k, axis in enumerate(scalar.axes):
            shape = [1] * len(full)
            shape[active.ndim + k] = extents[k]
            inner[axis.sym.name] = np.arange(extents[k]).reshape(shape)
        reached = np.broadcast_to(active.reshape(active.shape + (1,) * number), full)
        body = np.broadcast_to(self.value(scalar.body, inner, reached, {}), full)
        flat = body.reshape(*active.shape, -1)
        name = scalar.op
        if name.startswith("arg"):
            pick = np.argmax if name.startswith("argmax") else np.argmin
            assert scalar.dtype is DType.I64
            if name.endswith("-last"):
                return flat.shape[-1] - 1 - pick(flat[..., ::-1], axis=-1)
            return pick(flat, axis=-1)
        assert scalar.dtype is scalar.body.dtype
        if name in ("max", "min") and flat.shape[-1] == 0:
            return np.full(active.shape, _extreme(scalar.dtype, lowest=name == "max"))
        with np.errstate(all="ignore"):
            return _as_type(_REDUCTIONS[name](flat, axis=-1), scalar.dtype)

    def _constant(self, expr: Expr, env: Env, active: Array) -> int:
        values = np.unique(self.expression(expr, env, active))
        assert values.size == 1, f"extent {expr} varies"
        return int(values[0])

    def expression(self, expr: Expr, env: Env, active: Array) -> Array:
        """The integer expression's value; checks the facts of each symbol where active."""
        total = np.zeros((), np.int64)
        for monomial, coefficient in expr.terms:
            term = np.asarray(coefficient, np.int64)
            for atom in monomial:
                term = term * self._atom(atom, env, active)
            total = total + term
        return total

    def _atom(self, atom: Sym | Call, env: Env, active: Array) -> Array:
        if isinstance(atom, Sym):
            return self._symbol(atom, env, active)
        args = [self.expression(a, env, active) for a in atom.args]
        if atom.op in ("floordiv", "mod"):
            assert not np.any(active & (args[1] == 0)), f"{atom} divides by zero"
            safe = np.where(args[1] == 0, 1, args[1])
            return args[0] // safe if atom.op == "floordiv" else args[0] % safe
        result = args[0]
        for other in args[1:]:
            result = np.minimum(result, other) if atom.op == "min" else np.maximum(result, other)
        return result

    def _symbol(self, atom: Sym, env: Env, active: Array) -> Array:
        value = env[atom.name]
        limit = np.inf if atom.hi is None else atom.hi
        if atom.bound is not None:
            limit = np.minimum(limit, self.expression(atom.bound, env, active) - 1)
        bad = active & ((value < atom.lo) | (value > limit) | (value % atom.multiple != 0))
        assert not bad.any(), f"{atom.name} breaks its stated range"
        return value


def _as_type(value: Array, dtype: DType) -> Array:
    """Floats are kept in float64, after rounding where the value came from a cast."""
    return np.asarray(value).astype(np.float64 if dtype.is_float else dtype.np)


def _extreme(dtype: DType, lowest: bool) -> float | int:
    if dtype.is_float:
        return -np.inf if lowest else np.inf
    limits = np.iinfo(dtype.np)
    return int(limits.min if lowest else limits.max)
