"""Arithmetic on constants, done in Python so that the emitted text stays small.

Only what is exact: integers modulo their width, floats rounded once. Nothing here assumes values are no NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hagane.codegen.llvm.types import Type
from hagane.codegen.llvm.value import Value

Number = int | float


def _truncate_divide(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _truncate_remainder(a: int, b: int) -> int:
    return a - _truncate_divide(a, b) * b


_INT_OPS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "sdiv": _truncate_divide,
    "srem": _truncate_remainder,
    "shl": lambda a, b: a << b,
    "ashr": lambda a, b: a >> b,
}
_UNSIGNED_OPS: dict[str, Callable[[int, int], int]] = {
    "udiv": lambda a, b: a // b,
    "urem": lambda a, b: a % b,
    "lshr": lambda a, b: a >> b,
}
_FLOAT_OPS: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "sdiv": lambda a, b: a / b,
}
_COMPARISONS: dict[str, Callable[[Number, Number], bool]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}
# x op c is x: the c of each op
_INT_IDENTITY = {
    "add": 0, "sub": 0, "or": 0, "xor": 0, "shl": 0, "lshr": 0, "ashr": 0, "mul": 1, "udiv": 1, "sdiv": 1,
}  # fmt: skip
# x + 0.0 is absent: it turns -0.0 into 0.0
_FLOAT_IDENTITY = {"mul": 1.0, "sdiv": 1.0}
_COMMUTATIVE = ("add", "mul", "and", "or", "xor")


def fold_binary(op: str, a: Value, b: Value) -> Value | Number | None:
    """The result of the operation if it needs no instruction: a number, or one of the operands."""
    type = a.type
    if a.const is not None and b.const is not None:
        return _fold_constants(op, type, a.const, b.const)
    if type.is_float:
        if b.const is not None and _FLOAT_IDENTITY.get(op) == b.const:
            return a
        return b if op == "mul" and a.const == 1.0 else None
    if b.const is not None and _INT_IDENTITY.get(op) == b.const:
        return a
    if op in _COMMUTATIVE and a.const is not None and _INT_IDENTITY.get(op) == a.const:
        return b
    if op in ("mul", "and") and 0 in (a.const, b.const):
        return 0
    if op in ("urem", "srem") and b.const == 1:
        return 0
    return None


def _fold_constants(op: str, type: Type, a: Number, b: Number) -> Number | None:
    if type.is_float:
        # one rounding of the exact double result is right for f32 and narrower (53 >= 2 * 24 + 2 bits)
        finite = math.isfinite(a) and math.isfinite(b)
        if op not in _FLOAT_OPS or not finite or (op == "sdiv" and b == 0):
            return None
        try:
            return _FLOAT_OPS[op](float(a), float(b))
        except OverflowError:
            return None
    x, y = int(a), int(b)
    if (op.endswith(("div", "rem")) and y == 0) or (op in ("shl", "lshr", "ashr") and not 0 <= y < type.bits):
        return None
    if op in _UNSIGNED_OPS:
        mask = (1 << type.bits) - 1
        return _UNSIGNED_OPS[op](x & mask, y & mask)
    return _INT_OPS[op](x, y)


def fold_compare(name: str, a: Value, b: Value, signed: bool) -> bool | None:
    """The result of comparing two constants; None unless both are known."""
    if a.const is None or b.const is None:
        return None
    x, y = a.const, b.const
    if a.type.is_int and not signed:
        mask = (1 << a.type.bits) - 1
        x, y = int(x) & mask, int(y) & mask
    return _COMPARISONS[name](x, y)
