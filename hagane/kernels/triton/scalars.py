"""Tensor expressions as Triton text: each lane of a program computes one element of an output.

A value is a name and whether it is a block of lanes; Triton broadcasts what is not. Loads happen under the
mask of the lanes that need them, so nothing outside a tensor is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hagane.codegen.triton import Source
from hagane.core.dtypes import DType
from hagane.core.errors import InternalError
from hagane.core.symbolic import Expr, const
from hagane.ir.graph import Value as Tensor
from hagane.ir.layout import offset_of
from hagane.ir.scalar import Acc, Fn, Guard, IndexValue, LetIndex, Lit, Load, Reduce, Scalar, children
from hagane.kernels.triton.functions import apply_function
from hagane.kernels.triton.indices import Indices
from hagane.kernels.triton.types import compute_type, memory_type


@dataclass(frozen=True)
class Value:
    """A name in the kernel. lanes: a block, one element for each lane; else one number for all."""

    name: str
    lanes: bool


class ScalarEmitter:
    """Emits scalars into a source. lanes: the text of the number of lanes. acc: the value of `Acc` leaves."""

    def __init__(
        self,
        source: Source,
        operands: Sequence[tuple[str, Tensor]],
        indices: Indices,
        mask: Value,
        lanes: str = "BLOCK",
        acc: Value | None = None,
    ) -> None:
        self.source, self.operands, self.indices = source, operands, indices
        self.mask, self.lanes, self.acc = mask, lanes, acc
        self._memo: dict[int, Value] = {}
        self._keep: list[Scalar] = []  # ids stay unique while the emitter lives

    def emit(self, scalar: Scalar) -> Value:
        """The value of a scalar, computed once a block."""
        found = self._memo.get(id(scalar))
        if found is None:
            found = self._memo[id(scalar)] = self._emit(scalar)
            self._keep.append(scalar)
        return found

    def store(self, value: Value, pointer: str, tensor: Tensor, offset: str) -> None:
        """Stores a value at element offsets (a block of lanes) under the mask."""
        converted = f"{value.name}.to({memory_type(tensor.dtype)})"
        full = converted if value.lanes else f"tl.broadcast_to({converted}, ({self.lanes},))"
        self.source.line(f"tl.store({pointer} + {offset}, {full}, mask={self.mask.name})")

    @contextmanager
    def block(self, mask: Value | None = None, binds: str = "") -> Iterator[None]:
        """What is emitted inside is forgotten outside. mask: the lanes that count inside.

        binds: a symbol that gets a value inside; if it has one outside, what is known may be about that.
        """
        saved = self._memo, self.indices, self.mask
        self._memo = {} if binds and self.indices.has(binds) else dict(self._memo)
        self.indices = self.indices.child()
        self.mask = mask or self.mask
        try:
            yield
        finally:
            self._memo, self.indices, self.mask = saved

    def _let(self, expression: str) -> str:
        return self.source.let(expression)

    def _emit(self, scalar: Scalar) -> Value:
        match scalar:
            case Lit():
                return Value(self._let(literal(scalar)), False)
            case IndexValue(expr=expr):
                text = self.indices.text(expr)
                if expr.is_const:
                    return Value(self._let(f"tl.full([], {text}, tl.int64)"), False)
                return Value(self._let(f"{text}.to(tl.int64)"), self.indices.varies(expr))
            case Load():
                return self._load(scalar)
            case Fn(args=args):
                values = [self.emit(a) for a in args]
                text = apply_function(self._let, scalar, [v.name for v in values])
                return Value(self._let(text), any(v.lanes for v in values))
            case Guard():
                return self._guard(scalar)
            case LetIndex(name=name, value=value, body=body):
                bound = self.emit(value)
                index = self.source.let(f"{bound.name}.to({self.indices.triton_type})", "i")
                with self.block(binds=name):
                    self.indices.bind(name, index, bound.lanes)
                    return self.emit(body)
            case Reduce():
                return self._reduce(scalar)
            case Acc():
                if self.acc is None:
                    raise InternalError("an accumulator is read outside an epilogue")
                return self.acc
        raise InternalError(f"no GPU code for {type(scalar).__name__}")

    def _load(self, load: Load) -> Value:
        pointer, tensor = self.operands[load.operand]
        offset = offset_of(tensor.layout, tensor.shape, load.index)
        text = self.indices.text(offset)
        lanes = self.indices.varies(offset) or self.mask.lanes
        if lanes and not self.indices.varies(offset):
            # a mask of lanes wants a block of addresses
            shape = f"({self.lanes},)"
            text = self.source.let(f"tl.full({shape}, {text}, {self.indices.triton_type})", "i")
        loaded = f"tl.load({pointer} + {text}, mask={self.mask.name}, other=0)"
        if compute_type(load.dtype) != memory_type(load.dtype):
            loaded += f".to({compute_type(load.dtype)})"
        return Value(self._let(loaded), lanes)

    def _guard(self, guard: Guard) -> Value:
        cond = self.emit(guard.cond)
        lanes = cond.lanes or self.mask.lanes
        inside = Value(self.source.let(f"{self.mask.name} & {cond.name}", "mask"), lanes)
        with self.block(inside):
            value = self.emit(guard.value)
        outside = Value(self.source.let(f"{self.mask.name} & ({cond.name} == 0)", "mask"), lanes)
        with self.block(outside):
            other = self.emit(guard.other)
        text = f"tl.where({cond.name}, {value.name}, {other.name})"
        return Value(self._let(text), cond.lanes or value.lanes or other.lanes)

    def _reduce(self, reduce: Reduce) -> Value:
        """Loops that every lane goes through by itself, all in step: those that are done are masked."""
        shape, kind = f"({self.lanes},)", compute_type(reduce.dtype)
        best = ""
        if reduce.op.startswith("arg"):
            best = self.source.let(f"tl.full({shape}, 0, {compute_type(reduce.body.dtype)})", "best")
            start = "-1"
        else:
            start = identity(reduce)
        total = self.source.let(f"tl.full({shape}, {start}, {kind})", "acc")
        self._hoist(reduce.body, {axis.sym.name for axis in reduce.axes}, set())
        carry = ""
        if reduce.op == "sum" and kind == "tl.float32":
            carry = self.source.let(f"tl.full({shape}, 0.0, {kind})", "carry")
        self._loops(reduce, 0, total, best, carry)
        if best:  # of an empty range
            self.source.line(f"{total} = tl.maximum({total}, 0)")
        return Value(total, True)

    def _hoist(self, scalar: Scalar, names: set[str], seen: set[int]) -> None:
        """Emits the reductions inside that loops over the named axes would repeat: a norm's, say."""
        if id(scalar) in seen:
            return
        seen.add(id(scalar))
        if isinstance(scalar, Reduce) and not depends(scalar, names, {}):
            self.emit(scalar)
            return
        # what a guard protects, or an index symbol is bound for, can't be evaluated outside
        parts = (scalar.cond,) if isinstance(scalar, Guard) else children(scalar)
        for part in (scalar.value,) if isinstance(scalar, LetIndex) else parts:
            self._hoist(part, names, seen)

    def _loops(self, reduce: Reduce, depth: int, total: str, best: str, carry: str) -> None:
        if depth == len(reduce.axes):
            self._step(reduce, total, best, carry)
            return
        axis = reduce.axes[depth]
        extent = self.indices.text(axis.extent)
        varies = self.indices.varies(axis.extent)
        last = self.source.let(f"tl.max({extent}, axis=0)", "end") if varies else extent
        counter = self.source.fresh("r")
        with self.source.block(f"for {counter} in range(0, {last})"), self.block(binds=axis.sym.name):
            index = self.source.let(f"tl.full([], {counter}, {self.indices.triton_type})", "i")
            self.indices.bind(axis.sym.name, index, False)
            if varies:
                self.mask = Value(self.source.let(f"{self.mask.name} & ({index} < {extent})", "mask"), True)
            self._loops(reduce, depth + 1, total, best, carry)

    def _add_compensated(self, total: str, carry: str, value: str) -> None:
        """Kahan's summation, since a lane adds up long rows by itself; infinities leave no carry."""
        mask, line = self.mask.name, self.source.line
        term = self._let(f"tl.where({mask}, {value}, 0.0) - {carry}")
        moved = self._let(f"{total} + {term}")
        line(f'{carry} = tl.where(tl.abs({moved}) < float("inf"), ({moved} - {total}) - {term}, 0.0)')
        line(f"{total} = {moved}")

    def _step(self, reduce: Reduce, total: str, best: str, carry: str) -> None:
        value = self.emit(reduce.body).name
        line = self.source.line
        if carry:
            self._add_compensated(total, carry, value)
            return
        if not best:
            combined = combine(reduce, total, value)
            # a lane that is done keeps what it has
            line(f"{total} = tl.where({self.mask.name}, {combined}, {total})")
            return
        position = self._let(f"tl.full(({self.lanes},), {self._flat_position(reduce)}, tl.int64)")
        wins = self._let(f"({_beats(reduce, value, best)} | ({total} < 0)) & {self.mask.name}")
        line(f"{best} = tl.where({wins}, {value}, {best})")
        line(f"{total} = tl.where({wins}, {position}, {total})")

    def _flat_position(self, reduce: Reduce) -> str:
        """The number of the element among all that are compared."""
        flat = const(0)
        for axis in reduce.axes:
            flat = flat * axis.extent + Expr([((axis.sym,), 1)])
        return self.indices.text(flat)


def _beats(reduce: Reduce, value: str, best: str) -> str:
    """When an element takes the place of the best so far; a NaN beats all numbers."""
    last = reduce.op.endswith("-last")
    sign = (">" if reduce.op.startswith("argmax") else "<") + ("=" if last else "")
    test = f"({value} {sign} {best})"
    if reduce.body.dtype.is_float:
        nan = f"(({value} != {value}) & ({best} == {best}))"
        both = f"(({value} != {value}) & ({best} != {best}))" if last else ""
        test = f"{test} | {nan}" + (f" | {both}" if both else "")
    return test


def depends(scalar: Scalar, names: set[str], memo: dict[int, bool]) -> bool:
    """True if the value changes with one of the symbols; names that it binds itself don't count."""
    key = id(scalar)
    if key not in memo:
        memo[key] = _depends(scalar, names, memo)
    return memo[key]


def _depends(scalar: Scalar, names: set[str], memo: dict[int, bool]) -> bool:
    match scalar:
        case IndexValue(expr=expr):
            return _mentions(names, expr)
        case Load(index=index):
            return _mentions(names, *index)
        case Reduce(axes=axes, body=body):
            rest = names - {axis.sym.name for axis in axes}
            if _mentions(names, *(axis.extent for axis in axes)):
                return True
            # another set of names is another question
            return depends(body, rest, memo if rest == names else {})
    return any(depends(part, names, memo) for part in children(scalar))


def _mentions(names: set[str], *exprs: Expr) -> bool:
    return any(s.name in names for expr in exprs for s in expr.symbols())


def literal(lit: Lit) -> str:
    """A typed constant: plain numbers in the text would take Triton's default types."""
    value = lit.value
    if lit.dtype.is_float:
        number = float(value)
        text = repr(number) if number == number and abs(number) != float("inf") else f'float("{number}")'
    else:
        text = str(int(value))
    return f"tl.full([], {text}, {compute_type(lit.dtype)})"


def identity(reduce: Reduce) -> str:
    """The value that leaves the reduction's result alone. Raises: InternalError if it has none."""
    dtype = reduce.dtype
    match reduce.op:
        case "sum" | "any":
            return "0"
        case "prod" | "all":
            return "1"
        case "max" | "min":
            low = reduce.op == "max"
            if dtype.is_float:
                return 'float("-inf")' if low else 'float("inf")'
            if dtype is DType.BOOL:
                return "0" if low else "1"
            bits = dtype.bits
            if dtype.is_signed:
                return str(-(1 << (bits - 1)) if low else (1 << (bits - 1)) - 1)
            return str(0 if low else (1 << bits) - 1)
    raise InternalError(f"reduction {reduce.op!r} has no identity")


def combine(reduce: Reduce, a: str, b: str) -> str:
    """One step of the reduction, as an expression."""
    nan = ", propagate_nan=tl.PropagateNan.ALL" if reduce.dtype.is_float else ""
    match reduce.op:
        case "sum":
            return f"{a} + {b}"
        case "prod":
            return f"{a} * {b}"
        case "any":
            return f"{a} | {b}"
        case "all":
            return f"{a} & {b}"
        case "max":
            return f"{a} | {b}" if reduce.dtype is DType.BOOL else f"tl.maximum({a}, {b}{nan})"
        case "min":
            return f"{a} & {b}" if reduce.dtype is DType.BOOL else f"tl.minimum({a}, {b}{nan})"
    raise InternalError(f"unknown reduction {reduce.op!r}")
