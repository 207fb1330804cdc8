"""Arithmetic, comparison and selection.

Floats follow IEEE 754 with NaN and infinities kept; the only freedom given to LLVM is to fuse a product and
a sum.
"""

from __future__ import annotations

from hagane.codegen.llvm.emitter import Emitter
from hagane.codegen.llvm.fold import fold_binary, fold_compare
from hagane.codegen.llvm.types import i1
from hagane.codegen.llvm.value import Operand, Value, Var

_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "sdiv": "fdiv"}
_FLOAT_PREDICATES = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}


class Arithmetic(Emitter):
    """Operations of one instruction or a few."""

    def binary(self, op: str, a: Operand, b: Operand) -> Value:
        """Applies add, sub, mul, sdiv (floats too), udiv, srem, urem, and, or, xor, shl, lshr or ashr."""
        a, b = self.pair(a, b)
        type = a.type
        if type.is_float:
            if op not in _FLOAT_OPS:
                raise TypeError(f"{op} takes integers, not {type} (fmod and floor_mod of floats are in math)")
            if type.kind == "bf16":
                raise TypeError("bf16 is a storage type: cast to f32 to compute")
        elif not type.is_int:
            raise TypeError(f"no arithmetic on {type}; use ptr() to move a pointer")
        folded = fold_binary(op, a, b)
        if isinstance(folded, Value):
            return folded
        if folded is not None:
            return self.const(type, folded)
        name = _FLOAT_OPS[op] + " " + self._float_flags if type.is_float else op + " "
        return self.emit(f"{name}{type.llvm} {a.text}, {b.text}", type)

    def compare(self, name: str, a: Operand, b: Operand, signed: bool = True) -> Value:
        """Applies lt, le, gt, ge, eq or ne; on floats, false if an operand is NaN (ne: true)."""
        a, b = self.pair(a, b)
        result = i1.with_lanes(a.type.lanes)
        known = fold_compare(name, a, b, signed)
        if known is not None:
            return self.const(result, known)
        if a.type.is_float:
            text = f"fcmp {_FLOAT_PREDICATES[name]}"
        else:
            text = "icmp " + (name if name in ("eq", "ne") else ("s" if signed else "u") + name)
        return self.emit(f"{text} {a.type.llvm} {a.text}, {b.text}", result)

    def is_nan(self, value: Value) -> Value:
        return self.emit(
            f"fcmp uno {value.type.llvm} {value.text}, {value.text}", i1.with_lanes(value.type.lanes)
        )

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        """Where the condition holds a, elsewhere b; per lane if the condition is a vector."""
        if condition.const is not None and (isinstance(a, Value | Var) and isinstance(b, Value | Var)):
            return self.literal(a if condition.const else b, i1)
        a, b = self.pair(a, b)
        if condition.type.is_vector and not a.type.is_vector:
            a = self._function.broadcast(a, condition.type.lanes)
            b = self._function.broadcast(b, condition.type.lanes)
        return self.emit(f"select {condition.typed}, {a.typed}, {b.typed}", a.type)

    def fma(self, a: Operand, b: Operand, c: Operand) -> Value:
        """a * b + c rounded once."""
        values = [x.value if isinstance(x, Var) else x for x in (a, b, c)]
        known = [x for x in values if isinstance(x, Value)]
        if not known:
            raise TypeError("one operand at least must be a value of the kernel")
        type = max((x.type for x in known), key=lambda t: t.lanes)
        if not type.is_float or type.kind == "bf16":
            raise TypeError(f"fma takes f16, f32 or f64, not {type}")
        args = [self._function.broadcast(self.literal(x, type.element), type.lanes) for x in values]
        return self.intrinsic(f"llvm.fma.{type.suffix}", type, *args)

    def neg(self, a: Value) -> Value:
        if a.const is not None and (a.type.is_float or a.const == 0):
            return self.const(a.type, -a.const)
        return self.emit(f"fneg {a.typed}", a.type) if a.type.is_float else self.binary("sub", 0, a)

    def abs(self, a: Value) -> Value:
        if a.type.is_float:
            return self.intrinsic(f"llvm.fabs.{a.type.suffix}", a.type, a)
        return self.intrinsic(f"llvm.abs.{a.type.suffix}", a.type, a, self.const(i1, 0))

    def sqrt(self, a: Value) -> Value:
        return self._unary_float("sqrt", a)

    def floor(self, a: Value) -> Value:
        return self._unary_float("floor", a)

    def ceil(self, a: Value) -> Value:
        return self._unary_float("ceil", a)

    def trunc(self, a: Value) -> Value:
        """Rounds towards zero, as a float."""
        return self._unary_float("trunc", a)

    def round_half_even(self, a: Value) -> Value:
        """Rounds to the nearest integer, ties to even, as a float."""
        return self._unary_float("roundeven", a)

    def copysign(self, magnitude: Operand, sign: Value) -> Value:
        """The magnitude with the sign bit of the other."""
        magnitude, sign = self.pair(magnitude, sign)
        return self.intrinsic(f"llvm.copysign.{sign.type.suffix}", sign.type, magnitude, sign)

    def _unary_float(self, name: str, a: Value) -> Value:
        if not a.type.is_float:
            raise TypeError(f"{name} takes floats, not {a.type}")
        return self.intrinsic(f"llvm.{name}.{a.type.suffix}", a.type, a)

    def fmax(self, a: Operand, b: Operand) -> Value:
        """The larger float; NaN if one is NaN, as ONNX's Max and Relu."""
        return self._propagating("maximum", "gt", a, b)

    def fmin(self, a: Operand, b: Operand) -> Value:
        """The smaller float; NaN if one is NaN."""
        return self._propagating("minimum", "lt", a, b)

    def fmax_fast(self, a: Operand, b: Operand) -> Value:
        """The larger float in one instruction; whether a NaN comes through is not defined."""
        return self._native("maximum", "gt", a, b)

    def fmin_fast(self, a: Operand, b: Operand) -> Value:
        """The smaller float in one instruction; whether a NaN comes through is not defined."""
        return self._native("minimum", "lt", a, b)

    def _propagating(self, name: str, predicate: str, a: Operand, b: Operand) -> Value:
        a, b = self.pair(a, b)
        if b.const is not None:
            a, b = b, a
        if a.const is not None and a.const == a.const and self.module.is_x86:
            # maxps and minps return their second operand if one is NaN: with a number first they do it all
            return self._native(name, predicate, a, b)
        return self._extremum(name, a, b)

    def _native(self, name: str, predicate: str, a: Operand, b: Operand) -> Value:
        a, b = self.pair(a, b)
        if not self.module.is_x86:
            return self._extremum(name, a, b)
        chosen = self.compare(predicate, a, b)
        return self.emit(f"select {chosen.typed}, {a.typed}, {b.typed}", a.type)

    def _extremum(self, name: str, a: Value, b: Value) -> Value:
        # nsz: which zero wins is left open, which saves two instructions on x86
        return self.intrinsic(f"llvm.{name}.{a.type.suffix}", a.type, a, b, flags="nsz ")

    def imax(self, a: Operand, b: Operand, signed: bool = True) -> Value:
        """The larger integer."""
        return self._int_extremum("max", "gt", a, b, signed)

    def imin(self, a: Operand, b: Operand, signed: bool = True) -> Value:
        """The smaller integer."""
        return self._int_extremum("min", "lt", a, b, signed)

    def _int_extremum(self, name: str, predicate: str, a: Operand, b: Operand, signed: bool) -> Value:
        a, b = self.pair(a, b)
        known = fold_compare(predicate, a, b, signed)
        if known is not None:
            return a if known else b
        full = f"llvm.{'s' if signed else 'u'}{name}.{a.type.suffix}"
        return self.intrinsic(full, a.type, a, b)

    def floor_div(self, a: Value, b: Operand) -> Value:
        """Signed integer quotient rounded down; the numerator may be negative, and so may the divisor."""
        a, b = self.pair(a, b)
        if a.const is not None and b.const:
            return self.const(a.type, int(a.const) // int(b.const))
        quotient = self.binary("sdiv", a, b)
        return quotient - self._function.cast(self._rounds_down(a, b), a.type.element, signed=False)

    def floor_mod(self, a: Value, b: Operand) -> Value:
        """Signed integer remainder with the sign of the divisor, as Python's %."""
        a, b = self.pair(a, b)
        if a.const is not None and b.const:
            return self.const(a.type, int(a.const) % int(b.const))
        remainder = self.binary("srem", a, b)
        return self.select(self._rounds_down(a, b), remainder + b, remainder)

    def _rounds_down(self, a: Value, b: Value) -> Value:
        remainder = self.binary("srem", a, b)
        return remainder.ne(0) & (remainder ^ b).lt(0)
