"""cumsum in one pass: along the axis one element after the other, across it vectors of rows where they
adjoin."""

from __future__ import annotations

from hagane.codegen.llvm import Module, Type, Value, Var
from hagane.core.symbolic import Expr, Sym, ceildiv, product
from hagane.core.targets import CpuTarget
from hagane.ir.region import Region
from hagane.ir.scalar import Load
from hagane.kernels.llvm.elements import Elements, all_arguments, all_dims, is_plain, plain_layouts
from hagane.kernels.llvm.frame import Scope
from hagane.kernels.llvm.scalars import ScalarEmitter, compute_type
from hagane.kernels.tactic import KernelLaunch, Layouts, Lowering, Params
from hagane.ops.shapes import normal_axis

_OFFSET = "$at"
_AT = Expr([((Sym(_OFFSET),), 1)])
_SERIAL_ELEMENTS = 4_000


class Scan:
    """See the module's docstring."""

    name = "scan"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        if not is_plain(region, "cumsum") or region.anchor is None:
            return False
        x = region.anchor.input(0)
        return region.is_operand(x) and x.rank > 0

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        return plain_layouts(region, target)

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        return [{}]

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        def emit(module: Module, name: str) -> None:
            _Writer(Elements(module, name, region), target).write()

        elements = product(region.outputs[0].shape)
        small = elements.is_const and elements.value < _SERIAL_ELEMENTS
        return Lowering(
            (KernelLaunch("cumsum", emit, all_arguments(region), all_dims(region), serial=small),)
        )


class _Writer:
    """A unit of work is a vector of adjoining rows or, along the last axis, one row."""

    def __init__(self, elements: Elements, target: CpuTarget) -> None:
        self.elements, self.f, self.region = elements, elements.f, elements.region
        assert self.region.anchor is not None
        self.anchor = self.region.anchor
        self.x = self.anchor.input(0)
        axis = normal_axis(self.anchor.attrs["axis"], self.x.rank)
        shape = self.x.shape
        self.outer, self.extent, self.inner = product(shape[:axis]), shape[axis], product(shape[axis + 1 :])
        self.kind = compute_type(self.x.dtype)
        wide = target.vector_bytes // max(self.kind.element_bytes, 4)
        self.lanes = 1 if self.inner == 1 else wide

    def write(self) -> None:
        f, scope = self.f, self.elements.frame.scope
        count, inner = scope.expr(self.extent), scope.expr(self.inner)
        blocks = scope.expr(ceildiv(self.inner, self.lanes))
        lo, hi = self.elements.frame.share(scope.expr(self.outer * ceildiv(self.inner, self.lanes)))
        kind = Type(self.kind.kind, self.lanes)
        with f.loop(lo, hi) as unit:
            column = unit % blocks * self.lanes
            start = unit // blocks * (count * inner) + column
            mask = None if self.lanes == 1 else f.mask_below(inner - column, self.lanes)
            total = Var(f, kind, 0)
            with f.loop(0, count) as step:
                row = count - 1 - step if self.anchor.attrs["reverse"] else step
                self._step(start + row * inner, mask, total)

    def _step(self, offset: Value, mask: Value | None, total: Var) -> None:
        scope = Scope(self.f)
        scope.bind(_OFFSET, offset)
        vector = None if self.lanes == 1 else _OFFSET
        operand = self.region.operand_of(self.x)
        load = Load(self.x.dtype, operand, ())
        emitter = ScalarEmitter(
            self.f, self.elements.places, scope, vector=vector, lanes=self.lanes, mask=mask,
            offsets={id(load): _AT},
        )  # fmt: skip
        before = total.value
        total.set(before + emitter.emit(load))
        emitter.store(before if self.anchor.attrs["exclusive"] else total.value, self.elements.output(), _AT)


TACTIC = Scan()
