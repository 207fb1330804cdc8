"""The part of Function that every other part builds on: instruction text, names, literals, calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from hagane.codegen.llvm.types import Type, as_type, float_text, ptr, round_float
from hagane.codegen.llvm.value import Operand, Value, Var

if TYPE_CHECKING:
    from hagane.codegen.llvm.function import Function
    from hagane.codegen.llvm.module import Module


class Emitter:
    """Collects the lines of one function's body."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.lines: list[str] = []
        self.slots: list[str] = []
        self._num_names = 0
        self._float_flags = "contract "

    @property
    def _function(self) -> Function:
        # every Emitter is the base of a Function; values refer to the whole of it
        return cast("Function", self)

    def new_name(self, stem: str = "v") -> str:
        self._num_names += 1
        return f"{stem}{self._num_names}"

    def emit(self, text: str, type: Type) -> Value:
        """Appends an instruction that yields a value."""
        name = "%" + self.new_name()
        self.lines.append(f"  {name} = {text}")
        return Value(self._function, name, type)

    def raw(self, text: str) -> None:
        """Appends an instruction that yields nothing."""
        self.lines.append("  " + text)

    def place(self, label: str) -> None:
        """Starts a basic block; the block before it must have ended with a branch."""
        self.lines.append(f"{label}:")

    def new_slot(self, type: Type, count: int = 1, align: int | None = None) -> str:
        """Reserves stack memory in the entry block and returns its pointer's name."""
        name = "%" + self.new_name("slot")
        many = f", i64 {count}" if count != 1 else ""
        self.slots.append(f"  {name} = alloca {type.llvm}{many}" + (f", align {align}" if align else ""))
        return name

    @contextlib.contextmanager
    def exact(self) -> Iterator[None]:
        """Within it, products and sums are never contracted to a fused multiply-add."""
        before = self._float_flags
        self._float_flags = ""
        try:
            yield
        finally:
            self._float_flags = before

    def const(self, type: Type | str, value: int | float | bool) -> Value:
        """A constant; for a vector type, of equal lanes."""
        type = as_type(type)
        if type.is_float:
            number: int | float = round_float(float(value), type.kind)
            text = float_text(number, type.kind)
        elif type.is_int:
            if int(value) != value:
                raise TypeError(f"{value!r} is no constant of type {type}")
            number = _wrap(int(value), type.bits)
            text = str(number)
        elif type == ptr and value == 0:
            return Value(self._function, "null", type)
        else:
            raise TypeError(f"{value!r} is no constant of type {type}")
        if type.is_vector:
            text = (
                "zeroinitializer" if text in ("0", "0x" + "0" * 16) else f"splat ({type.element.llvm} {text})"
            )
        return Value(self._function, text, type, number)

    def const_vector(self, element: Type | str, values: Sequence[int | float]) -> Value:
        """A vector constant of given lanes."""
        type = as_type(element).with_lanes(len(values))
        lanes = [self.const(type.element, value) for value in values]
        if len(lanes) == 1 or len({lane.text for lane in lanes}) == 1:
            return self.const(type, values[0])
        return Value(self._function, "<" + ", ".join(lane.typed for lane in lanes) + ">", type)

    def poison(self, type: Type) -> Value:
        return Value(self._function, "poison", type)

    def literal(self, value: Operand, type: Type | str) -> Value:
        """The operand as a value: a Python number becomes a constant of the type, a Var its current value."""
        if isinstance(value, Value):
            return value
        if isinstance(value, Var):
            return value.value
        return self.const(type, value)

    def pair(self, a: Operand, b: Operand) -> tuple[Value, Value]:
        """Two operands of one type; at least one must be a value. A scalar meets a vector by broadcast."""
        if isinstance(a, Var):
            a = a.value
        if isinstance(b, Var):
            b = b.value
        if isinstance(a, Value):
            b = self.literal(b, a.type)
        elif isinstance(b, Value):
            a = self.literal(a, b.type)
        else:
            raise TypeError("one operand at least must be a value of the kernel")
        if a.type != b.type and a.type.kind == b.type.kind:
            if not a.type.is_vector:
                a = self._function.broadcast(a, b.type.lanes)
            elif not b.type.is_vector:
                b = self._function.broadcast(b, a.type.lanes)
        if a.type != b.type:
            raise TypeError(f"operands have different types: {a.type} and {b.type}")
        return a, b

    def intrinsic(self, name: str, result: Type | str, *args: Value, flags: str = "") -> Value:
        """Calls an LLVM intrinsic by its full name, such as "llvm.fma.v16f32"."""
        result = as_type(result)
        self.module.declare(name, result, [arg.type for arg in args])
        text = f"call {flags}{result.llvm} @{name}({', '.join(arg.typed for arg in args)})"
        if result.kind == "void":
            self.raw(text)
            return Value(self._function, "", result)
        return self.emit(text, result)

    def call(self, callee: Function | str, *args: Operand) -> Value:
        """Calls a function of the module, or a declared one by its name."""
        name = callee if isinstance(callee, str) else callee.name
        result, types = self.module.signature(name)
        if len(types) != len(args):
            raise TypeError(f"{name} takes {len(types)} arguments, not {len(args)}")
        values = [self.literal(arg, type) for arg, type in zip(args, types, strict=True)]
        for value, type in zip(values, types, strict=True):
            if value.type != type:
                raise TypeError(f"{name} wants {type} where {value.type} is passed")
        return self._call_text(f"@{name}", result, values)

    def call_pointer(self, callee: Value, result: Type | str, *args: Value) -> Value:
        """Calls through a pointer to a function."""
        return self._call_text(callee.text, as_type(result), args)

    def _call_text(self, callee: str, result: Type, args: Sequence[Value]) -> Value:
        text = f"call {result.llvm} {callee}({', '.join(arg.typed for arg in args)})"
        if result.kind == "void":
            self.raw(text)
            return Value(self._function, "", result)
        return self.emit(text, result)

    def address_of(self, symbol: Function | str) -> Value:
        """The address of a function or a constant of the module."""
        return Value(self._function, "@" + (symbol if isinstance(symbol, str) else symbol.name), ptr)


def _wrap(value: int, bits: int) -> int:
    """The value modulo 2**bits, as LLVM prints it: signed, but for i1, which is 0 or 1."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value
