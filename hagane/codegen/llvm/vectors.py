"""Making, rearranging and reducing vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hagane.codegen.llvm.memory import Memory
from hagane.codegen.llvm.types import Type, as_type, i1, i32, i64
from hagane.codegen.llvm.value import Operand, Value


class Vectors(Memory):
    """Operations across lanes."""

    def broadcast(self, scalar: Operand, lanes: int, type: Type | str | None = None) -> Value:
        """The scalar in every lane. A vector of that many lanes is returned as it is."""
        value = self.literal(scalar, as_type(type) if type else i64)
        if value.type.lanes == lanes:
            return value
        if value.type.is_vector:
            raise TypeError(f"{value.type} isn't a scalar")
        vector = value.type.with_lanes(lanes)
        if value.const is not None:
            return self.const(vector, value.const)
        first = self.emit(f"insertelement {vector.llvm} poison, {value.typed}, i64 0", vector)
        return self.emit(
            f"shufflevector {first.typed}, {vector.llvm} poison, <{lanes} x i32> zeroinitializer", vector
        )

    def iota(self, lanes: int, type: Type | str = i64) -> Value:
        """0, 1, 2, ... in the element type."""
        return self.const_vector(as_type(type), range(lanes))

    def mask_below(self, count: Operand, lanes: int) -> Value:
        """The mask of the lanes whose index is below an i64 count; any count, below zero too."""
        count = self.imin(self.imax(self.literal(count, i64), 0), lanes)
        if count.const is not None:
            return self.const_vector(i1, [int(lane < count.const) for lane in range(lanes)])
        if lanes == 1:
            return count.gt(0)
        if self.module.target.vector_bytes == 64 and lanes in (8, 16, 32, 64):
            # two scalar instructions and a move to a mask register, whatever the number of lanes
            ones = self.const(i64, -1)
            bits = (
                ~(ones << count) if lanes < 64 else self.select(count.ge(64), ones, ~(ones << (count & 63)))
            )
            return self.bitcast(self.cast(bits, f"i{lanes}"), i1.with_lanes(lanes))
        return self.iota(lanes, i32).lt(self.broadcast(self.cast(count, i32), lanes))

    def extract(self, vector: Value, lane: Operand) -> Value:
        """One lane."""
        if not vector.type.is_vector:
            return vector
        if vector.const is not None:
            return self.const(vector.type.element, vector.const)
        return self.emit(
            f"extractelement {vector.typed}, {self.literal(lane, i64).typed}", vector.type.element
        )

    def insert(self, vector: Value, lane: Operand, scalar: Operand) -> Value:
        """The vector with one lane replaced."""
        value, index = self.literal(scalar, vector.type.element), self.literal(lane, i64)
        return self.emit(f"insertelement {vector.typed}, {value.typed}, {index.typed}", vector.type)

    def shuffle(self, a: Value, b: Value | None, lanes: Sequence[int]) -> Value:
        """Lanes of a, and counting on from its last, of b; -1 is a lane of no matter."""
        if len(lanes) == 1:
            source = a if lanes[0] < a.type.lanes or b is None else b
            return self.extract(source, lanes[0] % a.type.lanes)
        if not a.type.is_vector:
            raise TypeError("shuffle takes vectors; use broadcast or insert for a scalar")
        second = b if b is not None else self.poison(a.type)
        picks = ", ".join("i32 poison" if lane < 0 else f"i32 {lane}" for lane in lanes)
        mask = f"<{len(lanes)} x i32> <{picks}>"
        return self.emit(f"shufflevector {a.typed}, {second.typed}, {mask}", a.type.with_lanes(len(lanes)))

    def slice(self, vector: Value, start: int, lanes: int) -> Value:
        """Some adjacent lanes."""
        return self.shuffle(vector, None, range(start, start + lanes))

    def concat(self, a: Value, b: Value) -> Value:
        """The lanes of a, then those of b."""
        lanes = a.type.lanes
        if lanes == 1:
            return self.insert(self.insert(self.poison(a.type.with_lanes(2)), 0, a), 1, b)
        return self.shuffle(a, b, range(2 * lanes))

    def transpose(self, rows: Sequence[Value]) -> list[Value]:
        """Transposes a square block of n vectors of n lanes, n a power of two."""
        n = len(rows)
        if n & (n - 1) or any(row.type.lanes != n for row in rows):
            raise ValueError("transpose takes n vectors of n lanes, n a power of two")
        block, step = list(rows), 1
        while step < n:
            # swaps the off-diagonal halves of each 2*step by 2*step block
            low = [lane if not lane & step else n + (lane ^ step) for lane in range(n)]
            high = [lane | step if not lane & step else n + lane for lane in range(n)]
            for row in range(n):
                if not row & step:
                    a, b = block[row], block[row | step]
                    block[row] = self.shuffle(a, b, low)
                    block[row | step] = self.shuffle(a, b, high)
            step *= 2
        return block

    def reduce(self, vector: Value, op: Callable[[Value, Value], Value]) -> Value:
        """Combines all lanes with an associative op, halves first; the number of lanes fixes the order."""
        lanes = vector.type.lanes
        while lanes > 1:
            half = 1 << ((lanes - 1).bit_length() - 1)
            low, rest = self.slice(vector, 0, half), self.slice(vector, half, lanes - half)
            if half == lanes - half:
                vector, lanes = op(low, rest), half
            else:
                return op(self.reduce(low, op), self.reduce(rest, op))
        return vector

    def reduce_sum(self, vector: Value) -> Value:
        return self.reduce(vector, lambda a, b: a + b)

    def reduce_prod(self, vector: Value) -> Value:
        return self.reduce(vector, lambda a, b: a * b)

    def reduce_max(self, vector: Value, signed: bool = True) -> Value:
        """The largest lane; NaN if there is one."""
        return self.reduce(
            vector, self.fmax if vector.type.is_float else lambda a, b: self.imax(a, b, signed)
        )

    def reduce_min(self, vector: Value, signed: bool = True) -> Value:
        """The smallest lane; NaN if there is one."""
        return self.reduce(
            vector, self.fmin if vector.type.is_float else lambda a, b: self.imin(a, b, signed)
        )

    def any(self, mask: Value) -> Value:
        """Whether some lane of the mask is set."""
        return self._reduce_mask("or", mask)

    def all(self, mask: Value) -> Value:
        """Whether every lane of the mask is set."""
        return self._reduce_mask("and", mask)

    def _reduce_mask(self, op: str, mask: Value) -> Value:
        if not mask.type.is_vector:
            return mask
        return self.intrinsic(f"llvm.vector.reduce.{op}.{mask.type.suffix}", i1, mask)
