"""scatter_elements and scatter_nd: a copy of the data, then the updates in order, so that the last of several
stays.

Threads share what can't meet: the lines along the axis of scatter_elements, the inner elements of scatter_nd.
Positions that lie outside write nothing.
"""

from __future__ import annotations

from hagane.codegen.llvm import Module, Value
from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr, Sym, const, product
from hagane.core.targets import CpuTarget
from hagane.ir.region import Region, index_symbol
from hagane.ir.scalar import Lit, Load, Reduce
from hagane.kernels.llvm.elements import (
    Elements,
    all_arguments,
    all_dims,
    axes_of,
    extent_of,
    is_plain,
    plain_layouts,
    positions,
)
from hagane.kernels.llvm.frame import Scope
from hagane.kernels.llvm.gemm_index import sym_of
from hagane.kernels.llvm.reducing import combine
from hagane.kernels.llvm.scalars import ScalarEmitter
from hagane.kernels.tactic import KernelLaunch, Layouts, Lowering, Params
from hagane.ops.scatter import COMBINE
from hagane.ops.shapes import normal_axis

_ALONG, _OFFSET = "$along", "$at"
_AT = Expr([((Sym(_OFFSET),), 1)])
_BOOLEAN = {"sum": "any", "max": "any", "prod": "all", "min": "all"}


class Scatter:
    """See the module's docstring."""

    name = "scatter"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        found = is_plain(region, "scatter_elements") or is_plain(region, "scatter_nd")
        return found and region.outputs[0].dtype is not DType.STRING

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        return plain_layouts(region, target)

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        return [{}]

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        assert region.anchor is not None
        write = _write_elements if region.anchor.op == "scatter_elements" else _write_nd
        args, dims = all_arguments(region), all_dims(region)
        lanes = target.vector_bytes // 4

        def emit_copy(module: Module, name: str) -> None:
            _write_copy(Elements(module, name, region), lanes)

        def emit_updates(module: Module, name: str) -> None:
            write(Elements(module, name, region), lanes)

        return Lowering(
            (
                KernelLaunch("copy", emit_copy, args, dims),
                KernelLaunch(region.anchor.op, emit_updates, args, dims),
            )
        )


def _write_copy(elements: Elements, lanes: int) -> None:
    f, scope, region = elements.f, elements.frame.scope, elements.region
    assert region.anchor is not None
    data = region.anchor.input(0)
    total = scope.expr(product(data.shape))
    lo, hi = elements.frame.share(total)
    if region.is_operand(data):
        source, size = elements.places[region.operand_of(data)].pointer, data.dtype.itemsize
        f.copy(f.ptr(elements.output().pointer, lo * size), f.ptr(source, lo * size), (hi - lo) * size)
        return
    with f.loop(lo, hi) as number:
        elements.write(elements.read_flat(0, number, axes_of(data.shape)), number)


def _joined(elements: Elements, old: Value, update: Value) -> Value:
    """The update combined with what is there."""
    assert elements.region.anchor is not None
    dtype = elements.region.outputs[0].dtype
    op, _ = COMBINE[elements.region.anchor.attrs["reduction"]]
    op = _BOOLEAN[op] if dtype is DType.BOOL else op
    return combine(elements.f, Reduce(dtype, op, (), Lit(dtype, 0)), old, update)


def _plain_writes(elements: Elements) -> bool:
    assert elements.region.anchor is not None
    return bool(elements.region.anchor.attrs["reduction"] == "none")


def _wrapped(elements: Elements, value: Value, dtype: DType, extent: Value) -> tuple[Value, Value]:
    """A position counted from the front, and whether it lies inside."""
    f = elements.f
    wide = f.cast(value, "i64", signed=dtype.is_signed)
    if dtype.is_signed:
        wide = f.select(wide.lt(0), wide + extent, wide)
    return wide, wide.ult(extent)


def _write_elements(elements: Elements, lanes: int) -> None:
    f, scope, region = elements.f, elements.frame.scope, elements.region
    anchor = region.anchor
    assert anchor is not None
    data, places = anchor.input(0), anchor.input(1)
    axis = normal_axis(anchor.attrs["axis"], data.rank)
    axes = axes_of(places.shape)
    others = (*axes[:axis], *axes[axis + 1 :])
    index = [sym_of(a) for a in axes]
    index[axis] = index_symbol(_ALONG, places.shape[axis])
    for dim in (*places.shape, *data.shape):
        scope.expr(dim)
    stride = scope.expr(product(data.shape[axis + 1 :]))
    extent = scope.expr(data.shape[axis])
    lo, hi = elements.frame.share(scope.expr(extent_of(others)))
    with f.loop(lo, hi) as line:
        here = positions(scope, others, line)
        start = const(0)
        for a, dim in enumerate(data.shape):
            start = start * dim + (const(0) if a == axis else index[a])
        base = here.expr(start)
        with f.loop(0, scope.expr(places.shape[axis])) as step:
            at = here.child()
            at.bind(_ALONG, step)
            position, inside = _wrapped(elements, elements.read(1, tuple(index), at), places.dtype, extent)
            with f.if_(inside):
                offset = base + position * stride
                update = elements.read(2, tuple(index), at)
                if not _plain_writes(elements):
                    update = _joined(elements, elements.load(offset), update)
                elements.write(update, offset)


def _write_nd(elements: Elements, lanes: int) -> None:
    f, scope, region = elements.f, elements.frame.scope, elements.region
    anchor = region.anchor
    assert anchor is not None
    data, places = anchor.input(0), anchor.input(1)
    length = places.shape[-1].value
    axes = axes_of(places.shape[:-1])
    rest = scope.expr(product(data.shape[length:]))
    for dim in (*places.shape, *data.shape):
        scope.expr(dim)
    lo, hi = elements.frame.share(rest)
    with f.if_(lo.lt(hi)), f.loop(0, scope.expr(extent_of(axes))) as number:
        here = positions(scope, axes, number)
        offset, inside = f.const("i64", 0), f.const("i1", 1)
        for k in range(length):
            extent = scope.expr(data.shape[k])
            at = (*(sym_of(a) for a in axes), const(k))
            position, fits = _wrapped(elements, elements.read(1, at, here), places.dtype, extent)
            offset, inside = offset * extent + position, inside & fits
        with f.if_(inside):
            _write_slice(elements, here, number, offset, (lo, hi), lanes)


def _write_slice(
    elements: Elements, here: Scope, number: Value, offset: Value, part: tuple[Value, Value], lanes: int
) -> None:
    """This thread's part of the elements behind one tuple of positions."""
    f, region, scope = elements.f, elements.region, elements.frame.scope
    anchor = region.anchor
    assert anchor is not None
    data, updates = anchor.input(0), anchor.input(2)
    lo, hi = part
    length = data.rank - (updates.rank - (anchor.input(1).rank - 1))
    rest = scope.expr(product(data.shape[length:]))
    size = data.dtype.itemsize
    if not region.is_operand(updates):  # a single number that the region holds
        with f.loop(lo, hi) as i:
            update = elements.read(2, tuple(const(0) for _ in updates.shape), here)
            place = offset * rest + i
            if not _plain_writes(elements):
                update = _joined(elements, elements.load(place), update)
            elements.write(update, place)
        return
    source = elements.places[region.operand_of(updates)].pointer
    target = elements.output().pointer
    if _plain_writes(elements):
        begin = f.ptr(source, (number * rest + lo) * size)
        f.copy(f.ptr(target, (offset * rest + lo) * size), begin, (hi - lo) * size)
        return
    with f.loop(lo, hi, lanes) as i:
        mask = f.mask_below(hi - i, lanes)
        old = _vector(elements, len(region.operands), offset * rest + i, mask, lanes)
        update = _vector(elements, region.operand_of(updates), number * rest + i, mask, lanes)
        inner = Scope(f)
        inner.bind(_OFFSET, offset * rest + i)
        emitter = ScalarEmitter(f, elements.places, inner, vector=_OFFSET, lanes=lanes, mask=mask)
        emitter.store(_joined(elements, old, update), elements.output(), _AT)


def _vector(elements: Elements, place: int, offset: Value, mask: Value, lanes: int) -> Value:
    scope = Scope(elements.f)
    scope.bind(_OFFSET, offset)
    load = Load(elements.places[place].tensor.dtype, place, ())
    emitter = ScalarEmitter(
        elements.f, elements.places, scope, vector=_OFFSET, lanes=lanes, mask=mask, offsets={id(load): _AT}
    )
    return emitter.emit(load)


TACTIC = Scatter()
