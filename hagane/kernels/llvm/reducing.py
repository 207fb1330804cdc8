"""Reductions inside tensor expressions: loops with accumulators, over lanes where that pays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from hagane.codegen.llvm import Function, Type, Value, Var
from hagane.core.dtypes import DType
from hagane.core.errors import InternalError
from hagane.core.symbolic import product
from hagane.ir.scalar import Axis, Fn, Guard, IndexValue, LetIndex, Load, Reduce, Scalar, children
from hagane.kernels.llvm.affine import mentions
from hagane.kernels.llvm.scalars import ScalarEmitter, compute_type

SHORT_AXIS = 8  # extents up to this are summed in one go
PIECE = 32  # elements of a long axis that are summed by themselves
MOST_WRITTEN_OUT = 16  # turns of a small reduction whose code is written out
LIGHT_NODES = 12
HEAVY = ("exp", "log", "pow", "tanh", "erf", "sigmoid", "sin", "cos", "gelu")
PIECE_BLOCKS = 32  # blocks of four vectors that are summed before they join the rest of a row


def identity(reduce: Reduce) -> float | int | bool:
    """The value that leaves the reduction's result alone."""
    dtype = reduce.dtype
    match reduce.op:
        case "sum":
            return 0
        case "prod":
            return 1
        case "any":
            return False
        case "all":
            return True
    if reduce.op not in ("max", "min"):
        raise InternalError(f"reduction {reduce.op!r} has no identity")
    low = reduce.op == "max"
    if dtype.is_float:
        return float("-inf") if low else float("inf")
    if dtype is DType.BOOL:
        return not low
    bits = dtype.bits
    if dtype.is_signed:
        return -(1 << (bits - 1)) if low else (1 << (bits - 1)) - 1
    return 0 if low else (1 << bits) - 1


def combine(f: Function, reduce: Reduce, a: Value, b: Value) -> Value:
    """One step of the reduction on register values."""
    dtype = reduce.dtype
    match reduce.op:
        case "sum":
            return a + b
        case "prod":
            return a * b
        case "any":
            return a | b
        case "all":
            return a & b
        case "max":
            if dtype is DType.BOOL:
                return a | b
            return f.fmax(a, b) if dtype.is_float else f.imax(a, b, signed=dtype.is_signed)
        case "min":
            if dtype is DType.BOOL:
                return a & b
            return f.fmin(a, b) if dtype.is_float else f.imin(a, b, signed=dtype.is_signed)
    raise InternalError(f"unknown reduction {reduce.op!r}")


@contextmanager
def axis_loops(emitter: ScalarEmitter, axes: tuple[Axis, ...]) -> Iterator[None]:
    """Nested serial loops over axes, each bound in the emitter's scope; whatever is emitted inside stays
    inside.
    """
    with ExitStack() as stack:
        for axis in axes:
            stack.enter_context(emitter.layer(binds=axis.sym.name))
            index = stack.enter_context(emitter.f.loop(0, emitter.scope.expr(axis.extent)))
            emitter.scope.bind(axis.sym.name, index)
        stack.enter_context(emitter.layer())
        yield


def emit_reduce(emitter: ScalarEmitter, reduce: Reduce) -> Value:
    """A reduction in serial loops; its lanes, if it has any, are those of the emitter's vector symbol."""
    if reduce.op.startswith("arg"):
        return _emit_arg(emitter, reduce)
    kind = compute_type(reduce.dtype, emitter.lanes if emitter.varies(reduce) else 1)
    turns = product(axis.extent for axis in reduce.axes)
    if turns.is_const and 0 < turns.value <= MOST_WRITTEN_OUT and _is_light(reduce.body):
        return _emit_written_out(emitter, reduce, kind)
    return _emit_nested(emitter, reduce, reduce.axes, kind)


def _emit_written_out(emitter: ScalarEmitter, reduce: Reduce, kind: Type) -> Value:
    """A small reduction, such as a pooling window's, without loops."""
    _emit_independent(emitter, reduce.body, reduce.axes)
    total: Value | None = None
    for index in itertools.product(*(range(axis.extent.value) for axis in reduce.axes)):
        with ExitStack() as stack:
            for axis, position in zip(reduce.axes, index, strict=True):
                stack.enter_context(emitter.layer(binds=axis.sym.name))
                emitter.scope.bind(axis.sym.name, emitter.f.const("i64", position))
            value = emitter.fit(emitter.emit(reduce.body), kind)
        total = value if total is None else combine(emitter.f, reduce, total, value)
    assert total is not None
    return total


def _emit_nested(emitter: ScalarEmitter, reduce: Reduce, axes: tuple[Axis, ...], kind: Type) -> Value:
    """One accumulator a loop: rows are summed by themselves first, so that fewer terms meet a large sum."""
    _emit_independent(emitter, reduce.body, axes)
    if len(axes) == 1:
        return _emit_last(emitter, reduce, axes[0], kind)
    total = Var(emitter.f, kind, emitter.f.const(kind, identity(reduce)))
    with axis_loops(emitter, axes[:1]):
        value = _emit_nested(emitter, reduce, axes[1:], kind)
        total.set(combine(emitter.f, reduce, total.value, value))
    return total.value


def _emit_last(emitter: ScalarEmitter, reduce: Reduce, axis: Axis, kind: Type) -> Value:
    """The innermost loop. A long one adds to several accumulators in turn, as each addition takes its time,
    and sums pieces by themselves first.
    """
    f = emitter.f
    extent = emitter.scope.expr(axis.extent)

    def new() -> Var:
        return Var(f, kind, f.const(kind, identity(reduce)))

    def add(total: Var, index: Value) -> None:
        with emitter.layer(binds=axis.sym.name):
            emitter.scope.bind(axis.sym.name, index)
            value = emitter.fit(emitter.emit(reduce.body), kind)
            total.set(combine(f, reduce, total.value, value))

    total = new()
    if extent.const is not None and extent.const <= SHORT_AXIS:
        with f.loop(0, extent) as index:
            add(total, index)
        return total.value
    ways = 4 if _is_light(reduce.body) else 1
    whole = extent // ways * ways
    with f.loop(0, whole, PIECE) as start:
        parts = [new() for _ in range(ways)]
        with f.loop(start, f.imin(start + PIECE, whole), ways) as base:
            for k, part in enumerate(parts):
                add(part, base + k)
        for part in parts:
            total.set(combine(f, reduce, total.value, part.value))
    with f.loop(whole, extent) as index:
        add(total, index)
    return total.value


def _is_light(body: Scalar) -> bool:
    """True if the body is so little code that writing it out several times costs nothing."""
    seen: set[int] = set()
    stack = [body]
    while stack and len(seen) <= LIGHT_NODES:
        top = stack.pop()
        if isinstance(top, Fn) and top.name in HEAVY:
            return False
        if id(top) not in seen:
            seen.add(id(top))
            stack += children(top)
    return len(seen) <= LIGHT_NODES


def _emit_arg(emitter: ScalarEmitter, reduce: Reduce) -> Value:
    """argmax and argmin over one axis: the first winner, or with -last the last; NaN wins."""
    f = emitter.f
    _emit_independent(emitter, reduce.body, reduce.axes)
    lanes = emitter.lanes if emitter.varies(reduce) else 1
    kind, index_kind = compute_type(reduce.body.dtype, lanes), Type("i64", lanes)
    best = Var(f, kind, f.const(kind, 0))
    place = Var(f, index_kind, f.const(index_kind, -1))
    (axis,) = reduce.axes
    signed = reduce.body.dtype.is_signed
    with axis_loops(emitter, reduce.axes):
        value = emitter.fit(emitter.emit(reduce.body), kind)
        last = reduce.op.endswith("-last")
        name = ("ge" if last else "gt") if reduce.op.startswith("argmax") else ("le" if last else "lt")
        better = f.compare(name, value, best.value, signed=signed) | place.value.lt(0)
        if kind.is_float:
            old_nan = f.is_nan(best.value)
            better = (
                (better | f.is_nan(value)) & ~(old_nan & place.value.ge(0))
                if not last
                else better | f.is_nan(value)
            )
        index = emitter.fit(emitter.scope.lookup(axis.sym.name), index_kind)
        best.set(f.select(better, value, best.value))
        place.set(f.select(better, index, place.value))
    return place.value


def emit_row_reduce(emitter: ScalarEmitter, reduce: Reduce, lanes: int) -> Value:
    """A reduction to one number with its last axis over lanes, four vectors at a time.

    Rows, and pieces of long rows, are summed by themselves first: few terms meet a large sum.
    """
    f = emitter.f
    *outer, inner = reduce.axes
    kind = compute_type(reduce.dtype, lanes)
    total = Var(f, kind, f.const(kind, identity(reduce)))
    with axis_loops(emitter, tuple(outer)):
        _emit_independent(emitter, reduce.body, (inner,))
        extent = emitter.scope.expr(inner.extent)
        block = 4 * lanes
        whole, unrolled = extent // lanes * lanes, extent // block * block
        with f.loop(0, unrolled, PIECE_BLOCKS * block) as start:
            parts = [Var(f, kind, f.const(kind, identity(reduce))) for _ in range(4)]
            with f.loop(start, f.imin(start + PIECE_BLOCKS * block, unrolled), block) as base:
                for k, part in enumerate(parts):
                    _accumulate(emitter, reduce, inner, base + k * lanes, lanes, part, None)
            pairs = [combine(f, reduce, parts[k].value, parts[k + 2].value) for k in range(2)]
            total.set(combine(f, reduce, total.value, combine(f, reduce, pairs[0], pairs[1])))
        rest = Var(f, kind, f.const(kind, identity(reduce)))
        with f.loop(unrolled, whole, lanes) as base:
            _accumulate(emitter, reduce, inner, base, lanes, rest, None)
        with f.if_(whole.lt(extent)):
            _accumulate(emitter, reduce, inner, whole, lanes, rest, f.mask_below(extent - whole, lanes))
        total.set(combine(f, reduce, total.value, rest.value))
    return f.reduce(total.value, lambda x, y: combine(f, reduce, x, y))


def _accumulate(
    emitter: ScalarEmitter,
    reduce: Reduce,
    axis: Axis,
    base: Value,
    lanes: int,
    total: Var,
    mask: Value | None,
) -> None:
    f = emitter.f
    scope = emitter.scope.child()
    scope.bind(axis.sym.name, base)
    inner = ScalarEmitter(
        f,
        emitter.operands,
        scope,
        vector=axis.sym.name,
        lanes=lanes,
        mask=mask,
        offsets=emitter.offsets,
        preset=emitter.known(),
    )
    value = inner.emit(reduce.body)
    kind = total.type
    if not value.type.is_vector:
        value = f.broadcast(value, lanes)
    if mask is not None:
        value = f.select(mask, value, f.const(kind, identity(reduce)))
    total.set(combine(f, reduce, total.value, value))


def _emit_independent(emitter: ScalarEmitter, body: Scalar, axes: tuple[Axis, ...]) -> None:
    """Emits the reductions in the body that don't vary with the axes, so that loops over them don't repeat
    them.
    """
    names = {axis.sym.name for axis in axes}
    seen: set[int] = set()

    def visit(scalar: Scalar) -> None:
        if id(scalar) in seen:
            return
        seen.add(id(scalar))
        if isinstance(scalar, Reduce):
            if not _mentions_any(emitter, scalar, names, {}):
                emitter.emit(scalar)
            return
        # what a guard protects, or an index symbol is bound for, can't be evaluated outside
        parts = (scalar.cond,) if isinstance(scalar, Guard) else children(scalar)
        for part in (scalar.value,) if isinstance(scalar, LetIndex) else parts:
            visit(part)

    visit(body)


def _mentions_any(emitter: ScalarEmitter, scalar: Scalar, names: set[str], memo: dict[int, bool]) -> bool:
    """True if the scalar's value varies with one of the symbols; names that it binds itself don't count."""
    key = id(scalar)
    if key in memo:
        return memo[key]
    match scalar:
        case IndexValue(expr=expr):
            found = any(mentions(expr, name) for name in names)
        case Load():
            found = any(mentions(emitter.offset(scalar), name) for name in names)
        case Reduce(axes=axes, body=body):
            rest = names - {axis.sym.name for axis in axes}
            found = any(mentions(axis.extent, name) for axis in axes for name in names)
            # another set of names is another question
            found = found or _mentions_any(emitter, body, rest, memo if rest == names else {})
        case _:
            found = any(_mentions_any(emitter, c, names, memo) for c in children(scalar))
    memo[key] = found
    return found
