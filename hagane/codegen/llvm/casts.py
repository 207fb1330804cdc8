"""Conversions between number types, the narrow floats among them."""

from __future__ import annotations

from hagane.codegen.llvm.arith import Arithmetic
from hagane.codegen.llvm.types import Type, as_type, bf16, f32, f64, i16, i32
from hagane.codegen.llvm.value import Value


class Casts(Arithmetic):
    """Value-preserving casts and bit casts."""

    def cast(self, value: Value, type: Type | str, signed: bool = True, saturate: bool = False) -> Value:
        """Converts each lane to the element type given; the number of lanes stays.

        signed says how integers of either side are read; i1 counts as 0 and 1. Float to integer truncates
        towards zero, and without saturate its result is arbitrary out of range. Narrowing floats rounds to
        nearest even, once, from any type. To i1: whether the value differs from zero.
        """
        source, target = value.type, as_type(type).with_lanes(value.type.lanes)
        if source == target:
            return value
        if target.kind == "i1":
            return value.ne(0)
        if source.is_int and target.is_int:
            return self._int_to_int(value, target, signed)
        if source.is_int:
            return self._int_to_float(value, target, signed)
        if target.is_int:
            return self._float_to_int(value, target, signed, saturate)
        return self._float_to_float(value, target)

    def bitcast(self, value: Value, type: Type | str) -> Value:
        """The same bits as another type of the same total width."""
        type = as_type(type)
        if type == value.type:
            return value
        if type.bits * type.lanes != value.type.bits * value.type.lanes:
            raise TypeError(f"{value.type} and {type} differ in width")
        return self.emit(f"bitcast {value.typed} to {type.llvm}", type)

    def float_bits(self, value: Value) -> Value:
        """The bit pattern of a float, as integers of its width."""
        return self.bitcast(value, value.type.as_int)

    def narrow_bf16_native(self, value: Value) -> Value:
        """f32 to bf16 in one instruction if the target has one; it flushes denormals, which cast() keeps."""
        lanes = value.type.lanes
        if "bf16" in self.module.target.features and lanes == 16:
            return self.intrinsic("llvm.x86.avx512bf16.cvtneps2bf16.512", bf16.with_lanes(16), value)
        return self.cast(value, bf16)

    def _convert(self, op: str, value: Value, target: Type) -> Value:
        return self.emit(f"{op} {value.typed} to {target.llvm}", target)

    def _int_to_int(self, value: Value, target: Type, signed: bool) -> Value:
        signed = signed and value.type.kind != "i1"
        if value.const is not None:
            mask = (1 << value.type.bits) - 1
            return self.const(target, int(value.const) if signed else int(value.const) & mask)
        if target.bits < value.type.bits:
            return self._convert("trunc", value, target)
        return self._convert("sext" if signed else "zext", value, target)

    def _int_to_float(self, value: Value, target: Type, signed: bool) -> Value:
        if target.kind in ("f16", "bf16"):
            # f32 holds all of f16's range exactly; bf16's is wider, so that an i32 goes through f64
            wide = f64 if target.kind == "bf16" and value.type.bits > 16 else f32
            return self.cast(self.cast(value, wide, signed), target)
        return self._convert("sitofp" if signed and value.type.kind != "i1" else "uitofp", value, target)

    def _float_to_int(self, value: Value, target: Type, signed: bool, saturate: bool) -> Value:
        if value.type.bits == 16:
            value = self.cast(value, f32)
        if saturate:
            name = f"llvm.fpto{'s' if signed else 'u'}i.sat.{target.suffix}.{value.type.suffix}"
            return self.intrinsic(name, target, value)
        if target.bits < 32:
            # through i32 the result is that of NumPy: modulo the width
            return self.cast(self._convert("fptosi", value, i32.with_lanes(target.lanes)), target)
        return self._convert("fptosi" if signed else "fptoui", value, target)

    def _float_to_float(self, value: Value, target: Type) -> Value:
        source = value.type
        if source.kind == "bf16":
            wide = self.cast(self.bitcast(value, source.as_int), i32, signed=False) << 16
            return self.cast(self.bitcast(wide, f32.with_lanes(source.lanes)), target)
        if source.kind == "f16" and target.kind != "f32":
            return self.cast(self.cast(value, f32), target)
        if source.kind == "f64" and target.bits == 16:
            return self.cast(self.round_to_odd(value), target)
        if target.kind == "bf16":
            return self._round_to_bf16(value)
        return self._convert("fptrunc" if target.bits < source.bits else "fpext", value, target)

    def _round_to_bf16(self, value: Value) -> Value:
        """f32 to bf16 in integer arithmetic, to nearest even; NaN stays NaN."""
        lanes = value.type.lanes
        bits = self.float_bits(value)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        quiet = (bits >> 16) | 0x40
        narrow = self.cast(self.select(self.is_nan(value), quiet, rounded), i16)
        return self.bitcast(narrow, bf16.with_lanes(lanes))

    def round_to_odd(self, value: Value) -> Value:
        """f64 to the f32 of odd mantissa beside it unless exact, so that narrowing again rounds correctly."""
        single = self._convert("fptrunc", value, f32.with_lanes(value.type.lanes))
        error = value - self.cast(single, f64)
        bits = self.float_bits(single)
        inexact = error.ne(0.0) & self.compare("eq", error, error)
        outwards = error.gt(0.0) ^ value.lt(0.0)
        stepped = self.select(outwards, bits + 1, bits - 1)
        odd = self.select(inexact & (bits & 1).eq(0), stepped, bits)
        return self.bitcast(odd, single.type)
