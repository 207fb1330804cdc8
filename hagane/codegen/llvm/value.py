"""Typed values with operators, and mutable locals.

`+ - *` work on any number; `/` divides floats, and integers as C does (towards zero). `//`, `%` and `>>`
treat integers as unsigned, which is what indices want; floor_div and floor_mod of Function take negative
numerators. A Python number is a literal of the other operand's type. Comparisons are methods: `==` is
identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, Union

from hagane.codegen.llvm.types import Type

if TYPE_CHECKING:
    from hagane.codegen.llvm.function import Function

Operand: TypeAlias = Union["Value", "Var", int, float]


class Value:
    """One SSA value. const holds the Python number if the value (or each lane of it) is a known constant."""

    __slots__ = ("const", "f", "text", "type")

    def __init__(self, f: Function, text: str, type: Type, const: int | float | None = None) -> None:
        self.f = f
        self.text = text
        self.type = type
        self.const = const

    @property
    def typed(self) -> str:
        """Type and name, as an LLVM operand."""
        return f"{self.type.llvm} {self.text}"

    def __repr__(self) -> str:
        return f"Value({self.typed})"

    def __bool__(self) -> bool:
        raise TypeError("a value of the kernel has no truth value in Python; use if_, if_else or select")

    def __add__(self, other: Operand) -> Value:
        return self.f.binary("add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.f.binary("add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.f.binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.f.binary("sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.f.binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.f.binary("mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self.f.binary("sdiv", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.f.binary("sdiv", other, self)

    def __floordiv__(self, other: Operand) -> Value:
        return self.f.binary("udiv", self, other)

    def __rfloordiv__(self, other: Operand) -> Value:
        return self.f.binary("udiv", other, self)

    def __mod__(self, other: Operand) -> Value:
        return self.f.binary("urem", self, other)

    def __rmod__(self, other: Operand) -> Value:
        return self.f.binary("urem", other, self)

    def __and__(self, other: Operand) -> Value:
        return self.f.binary("and", self, other)

    def __or__(self, other: Operand) -> Value:
        return self.f.binary("or", self, other)

    def __xor__(self, other: Operand) -> Value:
        return self.f.binary("xor", self, other)

    def __lshift__(self, other: Operand) -> Value:
        return self.f.binary("shl", self, other)

    def __rshift__(self, other: Operand) -> Value:
        return self.f.binary("lshr", self, other)

    def __neg__(self) -> Value:
        return self.f.neg(self)

    def __invert__(self) -> Value:
        return self.f.binary("xor", self, -1)

    def ashr(self, other: Operand) -> Value:
        """Shift right that copies the sign."""
        return self.f.binary("ashr", self, other)

    def srem(self, other: Operand) -> Value:
        """Remainder with the sign of the numerator, as in C."""
        return self.f.binary("srem", self, other)

    def lt(self, other: Operand) -> Value:
        """Less than; integers signed, false if an operand is NaN."""
        return self.f.compare("lt", self, other)

    def le(self, other: Operand) -> Value:
        return self.f.compare("le", self, other)

    def gt(self, other: Operand) -> Value:
        return self.f.compare("gt", self, other)

    def ge(self, other: Operand) -> Value:
        return self.f.compare("ge", self, other)

    def eq(self, other: Operand) -> Value:
        return self.f.compare("eq", self, other)

    def ne(self, other: Operand) -> Value:
        """Not equal; true if an operand is NaN."""
        return self.f.compare("ne", self, other)

    def ult(self, other: Operand) -> Value:
        """Less than, integers unsigned."""
        return self.f.compare("lt", self, other, signed=False)

    def ule(self, other: Operand) -> Value:
        return self.f.compare("le", self, other, signed=False)

    def ugt(self, other: Operand) -> Value:
        return self.f.compare("gt", self, other, signed=False)

    def uge(self, other: Operand) -> Value:
        return self.f.compare("ge", self, other, signed=False)


class Var:
    """A mutable local: `x = Var(f, f32, 0.0)`, `x.value`, `x.set(x.value + 1)`; it becomes a register."""

    __slots__ = ("f", "slot", "type")

    def __init__(self, f: Function, type: Type, init: Operand | None = None) -> None:
        self.f = f
        self.type = type
        self.slot = f.new_slot(type)
        if init is not None:
            self.set(init)

    @property
    def value(self) -> Value:
        return self.f.emit(f"load {self.type.llvm}, ptr {self.slot}", self.type)

    def set(self, value: Operand) -> None:
        value = self.f.literal(value, self.type)
        if value.type != self.type:
            raise TypeError(f"a variable of type {self.type} can't hold {value.type}")
        self.f.raw(f"store {value.typed}, ptr {self.slot}")
