"""Memory shared by threads, for the generated program's barriers and counters."""

from __future__ import annotations

from hagane.codegen.llvm.control import Control
from hagane.codegen.llvm.types import Type, as_type, i32, void
from hagane.codegen.llvm.value import Operand, Value


class Atomics(Control):
    """Atomic access; orderings are LLVM's: monotonic, acquire, release, acq_rel, seq_cst."""

    def atomic_load(
        self, type: Type | str, base: Value, byte_offset: Operand = 0, ordering: str = "acquire"
    ) -> Value:
        type = as_type(type)
        place = self.ptr(base, byte_offset)
        return self.emit(f"load atomic {type.llvm}, {place.typed} {ordering}, align {type.nbytes}", type)

    def atomic_store(
        self, value: Value, base: Value, byte_offset: Operand = 0, ordering: str = "release"
    ) -> None:
        place = self.ptr(base, byte_offset)
        self.raw(f"store atomic {value.typed}, {place.typed} {ordering}, align {value.type.nbytes}")

    def atomic_update(
        self, op: str, base: Value, value: Value, byte_offset: Operand = 0, ordering: str = "acq_rel"
    ) -> Value:
        """Applies add, sub, and, or, xor, max, min or xchg to memory; returns what was there before."""
        place = self.ptr(base, byte_offset)
        return self.emit(f"atomicrmw {op} {place.typed}, {value.typed} {ordering}", value.type)

    def compare_exchange(
        self, base: Value, expected: Value, desired: Value, byte_offset: Operand = 0
    ) -> tuple[Value, Value]:
        """Stores desired if memory holds expected; returns what was there, and whether it was stored."""
        place, type = self.ptr(base, byte_offset), expected.type
        operands = f"{place.typed}, {expected.typed}, {desired.typed} seq_cst seq_cst"
        pair = self.emit(f"cmpxchg {operands}", type)
        found = self.emit(f"extractvalue {{ {type.llvm}, i1 }} {pair.text}, 0", type)
        return found, self.emit(f"extractvalue {{ {type.llvm}, i1 }} {pair.text}, 1", as_type("i1"))

    def fence(self, ordering: str = "seq_cst") -> None:
        self.raw(f"fence {ordering}")

    def pause(self) -> None:
        """Tells the core that this is a spin loop."""
        if self.module.is_x86:
            self.intrinsic("llvm.x86.sse2.pause", void)
        else:
            self.intrinsic("llvm.aarch64.hint", void, self.const(i32, 1))
