"""Loads, stores, gathers and scatters. Offsets are in bytes: a Python int or an i64 value.

Memory holds a boolean as one byte that is 0 or 1; loading and storing i1 converts.
"""

from __future__ import annotations

from hagane.codegen.llvm.casts import Casts
from hagane.codegen.llvm.types import Type, as_type, i8, i32, i64, ptr, void
from hagane.codegen.llvm.value import Operand, Value, Var


class Memory(Casts):
    """Access to memory through pointers."""

    def ptr(self, base: Value, byte_offset: Operand = 0) -> Value:
        """The pointer moved by some bytes."""
        offset = self.literal(byte_offset, i64)
        if offset.const == 0:
            return base
        if offset.type != i64:
            raise TypeError(f"a byte offset is an i64, not {offset.type}")
        return self.emit(f"getelementptr i8, {base.typed}, {offset.typed}", ptr)

    def load(
        self, type: Type | str, base: Value, byte_offset: Operand = 0, align: int | None = None
    ) -> Value:
        """Loads a scalar or a vector; align is in bytes, by default that of an element."""
        type = as_type(type)
        if type.kind == "i1":
            return self.load(type.with_kind("i8"), base, byte_offset).ne(0)
        if type.kind == "bf16":  # LLVM expands memory operations on bf16 into library calls on some targets
            return self.bitcast(self.load(type.as_int, base, byte_offset, align), type)
        place = self.ptr(base, byte_offset)
        return self.emit(f"load {type.llvm}, {place.typed}, align {align or type.element_bytes}", type)

    def store(
        self,
        value: Value,
        base: Value,
        byte_offset: Operand = 0,
        align: int | None = None,
        nontemporal: bool = False,
    ) -> None:
        """Stores a value. nontemporal writes around the cache; it wants the full alignment of the vector."""
        if value.type.kind == "i1":
            value = self.cast(value, i8)
        if value.type.kind == "bf16":
            value = self.bitcast(value, value.type.as_int)
        place = self.ptr(base, byte_offset)
        hint = ", !nontemporal !3" if nontemporal else ""
        self.raw(f"store {value.typed}, {place.typed}, align {align or value.type.element_bytes}{hint}")

    def masked_load(
        self, type: Type | str, base: Value, mask: Value, byte_offset: Operand = 0, fill: int | float = 0
    ) -> Value:
        """Loads the lanes whose mask is set; the others become fill, and their memory isn't touched."""
        type = as_type(type)
        if type.kind == "i1":
            return self.masked_load(type.with_kind("i8"), base, mask, byte_offset, fill).ne(0)
        if type.kind == "bf16" and fill == 0:
            return self.bitcast(self.masked_load(type.as_int, base, mask, byte_offset), type)
        place = self.ptr(base, byte_offset)
        rest = self.const(type, fill)
        if not type.is_vector:
            result = Var(self._function, type, rest)
            with self._function.if_(mask):
                result.set(self.load(type, place))
            return result.value
        name = f"llvm.masked.load.{type.suffix}.p0"
        self.module.declare(name, type, [ptr, mask.type, type])
        where = f"ptr align {type.element_bytes} {place.text}"
        return self.emit(f"call {type.llvm} @{name}({where}, {mask.typed}, {rest.typed})", type)

    def masked_store(self, value: Value, base: Value, mask: Value, byte_offset: Operand = 0) -> None:
        """Stores the lanes whose mask is set."""
        if value.type.kind == "i1":
            value = self.cast(value, i8)
        if value.type.kind == "bf16":
            value = self.bitcast(value, value.type.as_int)
        place = self.ptr(base, byte_offset)
        if not value.type.is_vector:
            with self._function.if_(mask):
                self.store(value, place)
            return
        name = f"llvm.masked.store.{value.type.suffix}.p0"
        self.module.declare(name, void, [value.type, ptr, mask.type])
        where = f"ptr align {value.type.element_bytes} {place.text}"
        self.raw(f"call void @{name}({value.typed}, {where}, {mask.typed})")

    def gather(
        self,
        element: Type | str,
        base: Value,
        byte_offsets: Value,
        mask: Value | None = None,
        fill: int | float = 0,
    ) -> Value:
        """Loads one element per lane, each from its own offset: a vector of i64, or of signed i32."""
        element, lanes = as_type(element), byte_offsets.type.lanes
        if not byte_offsets.type.is_vector:
            offset = self.cast(byte_offsets, i64)
            if mask is None:
                return self.load(element, base, offset)
            return self.masked_load(element, base, mask, offset, fill)
        if element.kind == "i1":
            return self.gather("i8", base, byte_offsets, mask, fill).ne(0)
        if element.kind == "bf16" and fill == 0:
            bits = self.gather("i16", base, byte_offsets, mask)
            return self.bitcast(bits, element.with_lanes(lanes))
        type = element.with_lanes(lanes)
        places = self._places(base, byte_offsets)
        mask = mask if mask is not None else self.const(f"{lanes}xi1", 1)
        rest = self.const(type, fill)
        name = f"llvm.masked.gather.{type.suffix}.{places.type.suffix}"
        self.module.declare(name, type, [places.type, mask.type, type])
        where = f"{places.type.llvm} align {type.element_bytes} {places.text}"
        return self.emit(f"call {type.llvm} @{name}({where}, {mask.typed}, {rest.typed})", type)

    def scatter(self, value: Value, base: Value, byte_offsets: Value, mask: Value | None = None) -> None:
        """Stores one element per lane, each at its own offset; where offsets meet, the highest lane wins."""
        if value.type.kind == "i1":
            value = self.cast(value, i8)
        if value.type.kind == "bf16":
            value = self.bitcast(value, value.type.as_int)
        if not value.type.is_vector:
            offset = self.cast(byte_offsets, i64)
            if mask is None:
                self.store(value, base, offset)
            else:
                self.masked_store(value, base, mask, offset)
            return
        if not byte_offsets.type.is_vector:
            byte_offsets = self._function.broadcast(byte_offsets, value.type.lanes)
        places = self._places(base, byte_offsets)
        mask = mask if mask is not None else self.const(f"{value.type.lanes}xi1", 1)
        name = f"llvm.masked.scatter.{value.type.suffix}.{places.type.suffix}"
        self.module.declare(name, void, [value.type, places.type, mask.type])
        where = f"{places.type.llvm} align {value.type.element_bytes} {places.text}"
        self.raw(f"call void @{name}({value.typed}, {where}, {mask.typed})")

    def _places(self, base: Value, byte_offsets: Value) -> Value:
        if byte_offsets.type.kind not in ("i32", "i64"):
            raise TypeError(f"offsets are i32 or i64, not {byte_offsets.type}")
        return self.emit(
            f"getelementptr i8, {base.typed}, {byte_offsets.typed}", ptr.with_lanes(byte_offsets.type.lanes)
        )

    def load_broadcast(self, element: Type | str, lanes: int, base: Value, byte_offset: Operand = 0) -> Value:
        """Loads one element into every lane."""
        return self._function.broadcast(self.load(element, base, byte_offset), lanes)

    def stack(self, nbytes: int, align: int = 64) -> Value:
        """Stack memory that lives until the function returns, wherever in it this is called."""
        return Value(self._function, self.new_slot(i8, nbytes, align), ptr)

    def prefetch(self, base: Value, byte_offset: Operand = 0, locality: int = 3, write: bool = False) -> None:
        """Asks for a cache line; locality 3 is the first-level cache, 0 is read once."""
        place = self.ptr(base, byte_offset)
        args = [self.const(i32, int(write)), self.const(i32, locality), self.const(i32, 1)]
        self.intrinsic("llvm.prefetch.p0", void, place, *args)

    def copy(self, target: Value, source: Value, nbytes: Operand) -> None:
        """Copies bytes; the places don't overlap. A large or unknown size becomes a call of memcpy."""
        size = self.literal(nbytes, i64)
        self.intrinsic("llvm.memcpy.p0.p0.i64", void, target, source, size, self.const("i1", 0))

    def fill(self, target: Value, byte: Operand, nbytes: Operand) -> None:
        """Sets bytes; a large or unknown size becomes a call of memset."""
        value, size = self.literal(byte, i8), self.literal(nbytes, i64)
        self.intrinsic("llvm.memset.p0.i64", void, target, value, size, self.const("i1", 0))
