"""Writes tensor expressions as kernel code: scalars, or vectors along one symbol.

In vector mode a symbol runs over the lanes. An index that doesn't follow it is a scalar load, one that
follows it with stride 1 a vector load, any other a gather. f16 and bf16 are computed in f32 and rounded when
stored or cast; booleans are i1 in registers and bytes in memory; `narrow` has float8 and all below 8 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hagane.codegen.llvm import Function, Type, Value, Var
from hagane.core.dtypes import DType
from hagane.core.errors import InternalError
from hagane.core.symbolic import Expr
from hagane.ir.graph import Value as Tensor
from hagane.ir.layout import offset_of
from hagane.ir.scalar import Acc, Fn, Guard, IndexValue, LetIndex, Lit, Load, Reduce, Scalar, children
from hagane.kernels.llvm import narrow
from hagane.kernels.llvm.affine import linear_coefficient, mentioned
from hagane.kernels.llvm.frame import Scope
from hagane.kernels.llvm.functions import apply_function

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMPUTE = {
    DType.F64: "f64", DType.F32: "f32", DType.F16: "f32", DType.BF16: "f32", DType.BOOL: "i1",
    DType.I64: "i64", DType.U64: "i64", DType.I32: "i32", DType.U32: "i32",
    DType.I16: "i16", DType.U16: "i16", DType.I8: "i8", DType.U8: "i8",
    **narrow.REGISTERS,
}  # fmt: skip
MOST_RUNS = 3  # of neighbours in the lanes of a load that isn't a gather
_MEMORY = {DType.F16: "f16", DType.BF16: "bf16", **dict.fromkeys(narrow.REGISTERS, "i8")}


def compute_type(dtype: DType, lanes: int = 1) -> Type:
    """The register type in which values of a dtype are computed.

    Raises: InternalError for types without kernels.
    """
    kind = _COMPUTE.get(dtype)
    if kind is None:
        raise InternalError(f"no CPU kernels compute on {dtype}")
    return Type(kind, lanes)


def memory_type(dtype: DType, lanes: int = 1) -> Type:
    """The type in which values of a dtype lie in memory (i1 stands for a byte)."""
    return Type(_MEMORY[dtype], lanes) if dtype in _MEMORY else compute_type(dtype, lanes)


@dataclass(frozen=True)
class Place:
    """A tensor in memory: its pointer, and the tensor for dtype, shape and layout."""

    pointer: Value
    tensor: Tensor

    def offset(self, index: tuple[Expr, ...]) -> Expr:
        """Element offset of a logical index."""
        return offset_of(self.tensor.layout, self.tensor.shape, index)


class ScalarEmitter:
    """Emits scalars in one function.

    vector: name of the symbol that runs over `lanes` lanes, starting at the scope's value of it; None for
    scalar code. mask: lanes that count (i1 vector); loads touch no memory for the others. acc: the value of
    `Acc` leaves. offsets: element offsets of loads, by id, that replace those from their index.
    """

    def __init__(
        self,
        f: Function,
        operands: Sequence[Place],
        scope: Scope,
        *,
        vector: str | None = None,
        lanes: int = 1,
        mask: Value | None = None,
        acc: Value | None = None,
        offsets: dict[int, Expr] | None = None,
        preset: dict[int, Value] | None = None,
    ) -> None:
        self.f = f
        self.operands = operands
        self.scope = scope
        self.vector = vector
        self.lanes = lanes if vector else 1
        self.mask = mask
        self.acc = acc
        self.offsets = offsets or {}
        self._memo: list[dict[int, Value]] = [dict(preset or {}), {}]
        # the layer of the memo in which a symbol got its value
        self._bound_at: dict[str, int] = {vector: 1} if vector else {}
        self._keep: list[Scalar] = []  # ids stay unique while the emitter lives
        self._lane_symbols = {vector} if vector else set()

    def emit(self, scalar: Scalar) -> Value:
        """The value of a scalar: a vector if it varies over the lanes, else a scalar."""
        key = id(scalar)
        for layer in reversed(self._memo):
            if key in layer:
                return layer[key]
        value = self._emit(scalar)
        self._memo[-1][key] = value
        self._keep.append(scalar)
        return value

    def offset(self, load: Load) -> Expr:
        """The element offset of a load."""
        offset = self.offsets.get(id(load))
        return offset if offset is not None else self.operands[load.operand].offset(load.index)

    def known(self) -> dict[int, Value]:
        """All values emitted so far that are visible here, by the scalar's id."""
        return {key: value for layer in self._memo for key, value in layer.items()}

    def store(self, value: Value, place: Place, offset: Expr) -> None:
        """Stores at an element offset that is linear in the vector symbol; scatters if its stride isn't 1."""
        dtype = place.tensor.dtype
        converted = self._to_memory(value, dtype)
        size = dtype.itemsize
        if self.vector is None:
            self.f.store(converted, place.pointer, self.scope.expr(offset) * size)
            return
        if not converted.type.is_vector:
            converted = self.f.broadcast(converted, self.lanes)
        stride = linear_coefficient(offset, self.vector)
        base = self.scope.expr(offset) * size
        if stride is not None and stride == 1:
            if self.mask is None:
                self.f.store(converted, place.pointer, base)
            else:
                self.f.masked_store(converted, place.pointer, self.mask, base)
            return
        self._scatter(converted, place, offset, size)

    def _scatter(self, value: Value, place: Place, offset: Expr, size: int) -> None:
        places = self._lane_expr(offset) * size
        if value.type.kind == "i1":
            value = self.f.cast(value, "i8")
        self.f.scatter(value, place.pointer, places, self.mask)

    def _to_memory(self, value: Value, dtype: DType) -> Value:
        if dtype in narrow.REGISTERS:
            return narrow.encode(self.f, value, dtype)
        kind = memory_type(dtype).kind
        if value.type.kind == kind:
            return value
        return self.f.cast(value, kind, signed=dtype.is_signed)

    def _emit(self, scalar: Scalar) -> Value:
        match scalar:
            case Lit(dtype=dtype, value=number):
                return self.f.const(compute_type(dtype), number)
            case IndexValue(expr=expr):
                return self._lane_expr(expr)
            case Load():
                return self._load(scalar)
            case Fn(name=name, args=args):
                return apply_function(self.f, name, scalar, [self.emit(a) for a in args])
            case Guard():
                return self._guard(scalar)
            case LetIndex():
                return self._let(scalar)
            case Reduce():
                return self._reduce(scalar)
            case Acc():
                if self.acc is None:
                    raise InternalError("an accumulator is read outside an epilogue")
                return self.acc
        raise InternalError(f"no code for {type(scalar).__name__}")

    def _expr_varies(self, expr: Expr) -> bool:
        return bool(self._lane_symbols) and not self._lane_symbols.isdisjoint(mentioned(expr))

    def _lane_expr(self, expr: Expr) -> Value:
        """The expression over the lanes: a vector if it varies, else a scalar."""
        if not self._expr_varies(expr):
            return self.scope.expr(expr)
        lanes = self.scope.child()
        if self.vector is not None:
            first = self.scope.lookup(self.vector)
            lanes.bind(self.vector, self.f.iota(self.lanes) + first)
        return lanes.expr(expr)

    def _load(self, load: Load) -> Value:
        place = self.operands[load.operand]
        offset = self.offset(load)
        dtype, size = load.dtype, load.dtype.itemsize
        if not self._expr_varies(offset):
            return self._from_memory(self._uniform_load(place, offset, size), dtype)
        stride = None
        kind = memory_type(dtype, self.lanes)
        if self.vector is not None and self._lane_symbols.isdisjoint(mentioned(offset) - {self.vector}):
            stride = linear_coefficient(offset, self.vector)
            runs = self._runs(offset) if stride is None else []
            if runs:
                return self._from_memory(self._load_runs(place, runs, kind), dtype)
        if stride is not None and stride == 1:
            base = self.scope.expr(offset) * size
            if self.mask is None:
                return self._from_memory(self.f.load(kind, place.pointer, base), dtype)
            return self._from_memory(self.f.masked_load(kind, place.pointer, self.mask, base), dtype)
        return self._from_memory(self._gather(place, self._lane_expr(offset) * size, kind), dtype)

    def _runs(self, offset: Expr) -> list[tuple[int, int, Expr]]:
        """(first lane, end, offset of lane 0) of the neighbours that the lanes read, if that is a few runs.

        Blocked channels that don't begin at a block's first lane are two.
        """
        assert self.vector is not None
        if self.lanes == 1 or self.scope.lookup(self.vector).const != 0:
            return []
        places = [offset.substitute({self.vector: lane}) for lane in range(self.lanes)]
        ends = [k + 1 for k in range(self.lanes - 1) if places[k + 1] - places[k] != 1] + [self.lanes]
        if len(ends) > MOST_RUNS:
            return []
        return [(a, b, places[a] - a) for a, b in zip([0, *ends], ends, strict=False)]

    def _load_runs(self, place: Place, runs: list[tuple[int, int, Expr]], kind: Type) -> Value:
        """Each run is a load of its own lanes."""
        f, size = self.f, place.tensor.dtype.itemsize
        total: Value | None = None
        for first, end, start in runs:
            lanes = f.const_vector("i1", [int(first <= k < end) for k in range(self.lanes)])
            mask = lanes if self.mask is None else lanes & self.mask
            value = f.masked_load(kind, place.pointer, mask, self.scope.expr(start) * size)
            total = value if total is None else f.select(lanes, value, total)
        assert total is not None
        return total

    def _uniform_load(self, place: Place, offset: Expr, size: int) -> Value:
        base = self.scope.expr(offset)
        if self.mask is not None:  # the index may be out of bounds where no lane counts: read element 0 then
            base = self.f.select(self.f.any(self.mask), base, 0)
        return self.f.load(memory_type(place.tensor.dtype), place.pointer, base * size)

    def _gather(self, place: Place, places: Value, kind: Type) -> Value:
        if kind.kind == "i1":
            return self.f.gather("i8", place.pointer, places, self.mask).ne(0)
        return self.f.gather(kind.element, place.pointer, places, self.mask)

    def _from_memory(self, value: Value, dtype: DType) -> Value:
        if dtype in narrow.REGISTERS:
            return narrow.decode(self.f, value, dtype)
        kind = compute_type(dtype).kind
        return value if value.type.kind == kind else self.f.cast(value, kind)

    @contextmanager
    def layer(self, mask: Value | None = None, binds: str = "") -> Iterator[None]:
        """A block of its own: what is emitted inside is not reused outside.

        binds: a symbol that gets a value here. If a block around has bound it too, what that one emitted
        may be about the other value, so it is not seen inside.
        """
        saved = self.scope, self.mask, self._memo, self._bound_at
        lanes = self.vector, self._lane_symbols
        self.scope = self.scope.child()
        if mask is not None:
            self.mask = mask
        visible = self._memo[: self._bound_at.get(binds, len(self._memo))]
        if binds:
            self._bound_at = {**self._bound_at, binds: len(visible)}
            self._lane_symbols = self._lane_symbols - {binds}
            self.vector = None if self.vector == binds else self.vector
        self._memo = [*visible, {}]
        try:
            yield
        finally:
            self.scope, self.mask, self._memo, self._bound_at = saved
            self.vector, self._lane_symbols = lanes

    def _guard(self, guard: Guard) -> Value:
        cond = self.emit(guard.cond)
        if cond.const is not None:
            return self.emit(guard.value if cond.const else guard.other)
        risky, other_risky = touches_memory(guard.value), touches_memory(guard.other)
        if not risky and not other_risky:
            return self.f.select(cond, self.emit(guard.value), self.emit(guard.other))
        if cond.type.is_vector:
            return self._masked_guard(guard, cond, risky, other_risky)
        return self._branching_guard(guard, cond)

    def _masked_guard(self, guard: Guard, cond: Value, risky: bool, other_risky: bool) -> Value:
        value, other = (self._under_mask(guard.value, cond) if risky else self.emit(guard.value)), None
        if other_risky:
            other = self._under_mask(guard.other, ~cond)
        return self.f.select(cond, value, other if other is not None else self.emit(guard.other))

    def _under_mask(self, scalar: Scalar, cond: Value) -> Value:
        """Emits with a narrower mask, in line (no branch), so loads for other lanes touch no memory."""
        with self.layer(cond if self.mask is None else self.mask & cond):
            return self.emit(scalar)

    def _branching_guard(self, guard: Guard, cond: Value) -> Value:
        varies = self.varies(guard.value) or self.varies(guard.other)
        kind = compute_type(guard.dtype, self.lanes if varies else 1)
        result = Var(self.f, kind)
        with self.f.if_else(cond) as (then, otherwise):
            with then, self.layer():
                result.set(self.fit(self.emit(guard.value), kind))
            with otherwise, self.layer():
                result.set(self.fit(self.emit(guard.other), kind))
        return result.value

    def fit(self, value: Value, kind: Type) -> Value:
        """The value broadcast to a vector type if it is a scalar."""
        if kind.is_vector and not value.type.is_vector:
            return self.f.broadcast(value, kind.lanes)
        return value

    def varies(self, scalar: Scalar) -> bool:
        """True if the scalar's value is a vector in this emitter."""
        for layer in reversed(self._memo):
            if id(scalar) in layer:
                return layer[id(scalar)].type.is_vector
        match scalar:
            case Acc():
                return self.acc is not None and self.acc.type.is_vector
            case IndexValue(expr=expr):
                return self._expr_varies(expr)
            case Load():
                return self._expr_varies(self.offset(scalar))
            case LetIndex(name=name, value=value, body=body):
                if self.varies(value):
                    self._lane_symbols.add(name)
                return self.varies(body)
            case Reduce(axes=axes, body=body):
                saved = self._lane_symbols
                self._lane_symbols = saved - {axis.sym.name for axis in axes}
                varies = self.varies(body)
                self._lane_symbols = saved
                return varies
        return any(self.varies(c) for c in children(scalar))

    def _let(self, let: LetIndex) -> Value:
        value = self.emit(let.value)
        index = self.f.cast(value, "i64", signed=let.value.dtype.is_signed)
        if value.type.is_vector:
            self._lane_symbols.add(let.name)
        self.scope.bind(let.name, index)
        return self.emit(let.body)

    def _reduce(self, reduce: Reduce) -> Value:
        from hagane.kernels.llvm.reducing import emit_reduce

        return emit_reduce(self, reduce)


def touches_memory(scalar: Scalar, seen: dict[int, bool] | None = None) -> bool:
    """True if evaluating the scalar loads anything."""
    seen = {} if seen is None else seen
    if id(scalar) not in seen:
        seen[id(scalar)] = False
        seen[id(scalar)] = isinstance(scalar, (Load, Reduce)) or any(
            touches_memory(c, seen) for c in children(scalar)
        )
    return seen[id(scalar)]
