"""nonzero and compress: what a condition selects, in order. How many there are is a dim that is bound before.

One thread does it: where an element goes depends on all before it.
"""

from __future__ import annotations

from hagane.codegen.llvm import Module, Value, Var
from hagane.core.symbolic import const, product
from hagane.core.targets import CpuTarget
from hagane.ir.region import Region, index_symbol
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
from hagane.kernels.llvm.scalars import memory_type
from hagane.kernels.tactic import KernelLaunch, Layouts, Lowering, Params

_PLACE = "$place"


class Select:
    """See the module's docstring."""

    name = "select"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        return is_plain(region, "nonzero") or (
            is_plain(region, "compress")
            and region.anchor is not None
            and region.is_operand(region.anchor.input(0))
        )

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        return plain_layouts(region, target)

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        return [{}]

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        assert region.anchor is not None
        write = _write_nonzero if region.anchor.op == "nonzero" else _write_compress

        def emit(module: Module, name: str) -> None:
            write(Elements(module, name, region))

        launch = KernelLaunch(region.anchor.op, emit, all_arguments(region), all_dims(region), serial=True)
        return Lowering((launch,))


def _write_nonzero(elements: Elements) -> None:
    f, scope, region = elements.f, elements.frame.scope, elements.region
    assert region.anchor is not None
    x = region.anchor.input(0)
    axes = axes_of(x.shape)
    count = scope.expr(region.outputs[0].shape[1])
    for axis in axes:
        scope.expr(axis.extent)
    found = Var(f, count.type, 0)
    with f.loop(0, scope.expr(extent_of(axes))) as number:
        value = elements.read_flat(0, number, axes)
        hit = value if value.type.kind == "i1" else value.ne(0)
        with f.if_(hit & found.value.lt(count)):
            here = positions(scope, axes, number)
            coordinates = [here.lookup(axis.sym.name) for axis in axes] or [f.const("i64", 0)]
            for row, coordinate in enumerate(coordinates):
                elements.write(coordinate, count * row + found.value)
            found.set(found.value + 1)


def _write_compress(elements: Elements) -> None:
    f, scope, region = elements.f, elements.frame.scope, elements.region
    assert region.anchor is not None
    x, condition, axis = region.anchor.input(0), region.anchor.input(1), region.anchor.attrs["axis"]
    if axis is None:
        outer, extent, inner = const(1), product(x.shape), const(1)
        count = scope.expr(region.outputs[0].shape[0])
    else:
        axis %= x.rank
        outer, extent, inner = product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :])
        count = scope.expr(region.outputs[0].shape[axis])
    source = elements.places[region.operand_of(x)].pointer
    target = elements.output().pointer
    slice_bytes = scope.expr(inner * x.dtype.itemsize)
    total, length, repeats = scope.expr(extent), scope.expr(condition.shape[0]), scope.expr(outer)
    place = index_symbol(_PLACE, condition.shape[0])
    found = Var(f, count.type, 0)

    def move(before: Value, after: Value) -> None:
        start, goal = f.ptr(source, before * slice_bytes), f.ptr(target, after * slice_bytes)
        if inner == 1:
            kind = memory_type(x.dtype)
            kind = kind.with_kind("i8") if kind.kind == "i1" else kind
            f.store(f.load(kind, start), goal)
        else:
            f.copy(goal, start, slice_bytes)

    with f.loop(0, f.imin(length, total)) as number:
        here = scope.child()
        here.bind(_PLACE, number)
        with f.if_(elements.read(1, (place,), here) & found.value.lt(count)):
            with f.loop(0, repeats) as row:
                move(row * total + number, row * count + found.value)
            found.set(found.value + 1)


TACTIC = Select()
