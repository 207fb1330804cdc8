"""Dot-product instructions: groups of 2 or 4 narrow lanes multiplied and added to one wide lane."""

from __future__ import annotations

from hagane.codegen.llvm.atomics import Atomics
from hagane.codegen.llvm.types import Type, f32, i8, i16, i32
from hagane.codegen.llvm.value import Value


class Dot(Atomics):
    """Native where the target has the instruction and the vectors fill a register; else emulated exactly."""

    def dot_bf16(self, acc: Value, a: Value, b: Value) -> Value:
        """acc: f32[n] plus, per lane, the sum of 2 products of a, b: bf16[2n]. Native flushes denormals."""
        lanes = acc.type.lanes
        if "bf16" in self.module.target.features and lanes in (4, 8, 16):
            return self.intrinsic(f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}", acc.type, acc, a, b)
        for half in (0, 1):
            left, right = (self._half_of_pairs(x, half, f32.with_lanes(lanes)) for x in (a, b))
            acc = self.fma(left, right, acc)
        return acc

    def dot_u8s8(self, acc: Value, a: Value, b: Value) -> Value:
        """acc: i32[n] plus, per lane, the sum of 4 products of a: u8[4n] and b: i8[4n]. Never saturates."""
        lanes, features = acc.type.lanes, self.module.target.features
        native = ("vnni" in features and lanes in (4, 8, 16)) or ("avxvnni" in features and lanes in (4, 8))
        if native:
            return self.intrinsic(f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", acc.type, acc, a, b)
        pairs = i16.with_lanes(2 * lanes)
        a, b = self.bitcast(a, pairs), self.bitcast(b, pairs)
        even = self._dot_i16(a & 0xFF, (b << 8).ashr(8), acc.type)
        return acc + (even + self._dot_i16(a >> 8, b.ashr(8), acc.type))

    def _half_of_pairs(self, value: Value, half: int, type: Type) -> Value:
        """The even or the odd bf16 lanes, widened to f32 in place."""
        bits = self.bitcast(value, i32.with_lanes(type.lanes))
        return self.bitcast(bits & -65536 if half else bits << 16, type)

    def _dot_i16(self, a: Value, b: Value, result: Type) -> Value:
        names = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}
        name = names.get(result.lanes)
        if self.module.is_x86 and name and result.nbytes <= self.module.target.vector_bytes:
            return self.intrinsic(f"llvm.x86.{name}", result, a, b)
        x, y = self.bitcast(a, result), self.bitcast(b, result)
        low = (x << 16).ashr(16) * (y << 16).ashr(16)
        return low + x.ashr(16) * y.ashr(16)

    def pack_u8s8_group(self, group: Value, lanes: int) -> Value:
        """Four bytes, loaded as one i32, in each group of 4 lanes: the broadcast operand of dot_u8s8."""
        return self.bitcast(self.broadcast(group, lanes), i8.with_lanes(4 * lanes))
