"""Single elements of a region's anchor: its inputs read, its outputs written, at places known at run time.

What kernels need whose loops follow the data: sorting, scattering, selecting.
"""

from __future__ import annotations

from collections.abc import Sequence

from hagane.codegen.llvm import Module, Value
from hagane.core.symbolic import Expr, Sym, product
from hagane.core.targets import CpuTarget
from hagane.ir.graph import Shape
from hagane.ir.region import Region, output_axes
from hagane.ir.scalar import Axis, Index, Load
from hagane.kernels.llvm.frame import Frame, Scope, dim_symbols
from hagane.kernels.llvm.gemm_epilogue import bind_positions
from hagane.kernels.llvm.scalars import Place, ScalarEmitter
from hagane.kernels.tactic import Argument, Input, Layouts, Output

_OFFSET = "$at"


def is_plain(region: Region, op: str) -> bool:
    """True if the region's outputs are those of its anchor, an `op`, with nothing behind it."""
    anchor = region.anchor
    return anchor is not None and anchor.op == op and region.body.outputs == anchor.outputs


def plain_layouts(region: Region, target: CpuTarget) -> Layouts:
    """C order for everything."""
    return Layouts(tuple(None for _ in region.operands), tuple(None for _ in region.outputs))


def all_arguments(region: Region) -> tuple[Argument, ...]:
    """Every operand, then every output."""
    return (*map(Input, range(len(region.operands))), *map(Output, range(len(region.outputs))))


def all_dims(region: Region) -> tuple[Expr, ...]:
    """The symbols that the shapes of operands and outputs mention."""
    return dim_symbols([*region.operands, *region.outputs])


class Elements:
    """An open kernel over a region, with arguments as in all_arguments and dims as in all_dims."""

    def __init__(self, module: Module, name: str, region: Region, extra: int = 0) -> None:
        self.region = region
        tensors = [*region.operands, *region.outputs]
        self.frame = Frame(module, name, len(tensors) + extra, all_dims(region))
        self.f = self.frame.f
        self.places = [Place(p, t) for p, t in zip(self.frame.pointers, tensors, strict=False)]
        self.extra = self.frame.pointers[len(tensors) :]

    def output(self, number: int = 0) -> Place:
        return self.places[len(self.region.operands) + number]

    def read(self, position: int, index: Index, scope: Scope) -> Value:
        """An element of the anchor's input in its register type; the scope has the index's symbols."""
        return ScalarEmitter(self.f, self.places, scope.child()).emit(
            self.region.anchor_read(position, index)
        )

    def read_flat(self, position: int, number: Value, axes: Sequence[Axis]) -> Value:
        """Element `number`, in C order over all axes, of the anchor's input: without divisions if it is an
        operand."""
        assert self.region.anchor is not None
        value = self.region.anchor.input(position)
        if self.region.is_operand(value):
            return self._load(self.region.operand_of(value), number)
        here = positions(self.frame.scope, axes, number)
        return self.read(position, tuple(Expr([((axis.sym,), 1)]) for axis in axes), here)

    def write(self, value: Value, offset: Value, number: int = 0) -> None:
        """Stores a register as element `offset` of an output."""
        scope = Scope(self.f)
        scope.bind(_OFFSET, offset)
        ScalarEmitter(self.f, self.places, scope).store(value, self.output(number), _AT)

    def load(self, offset: Value, number: int = 0) -> Value:
        """Element `offset` of an output, as a register."""
        return self._load(len(self.region.operands) + number, offset)

    def _load(self, place: int, offset: Value) -> Value:
        scope = Scope(self.f)
        scope.bind(_OFFSET, offset)
        load = Load(self.places[place].tensor.dtype, place, ())
        return ScalarEmitter(self.f, self.places, scope, offsets={id(load): _AT}).emit(load)


_AT = Expr([((Sym(_OFFSET),), 1)])


def positions(scope: Scope, axes: Sequence[Axis], number: Value) -> Scope:
    """A scope in which the axes' symbols have the position that a number counts to."""
    inner = scope.child()
    bind_positions(inner, axes, number)
    return inner


def axes_of(shape: Shape) -> tuple[Axis, ...]:
    """Loops over a shape, as output_axes names them."""
    return output_axes(shape)


def extent_of(axes: Sequence[Axis]) -> Expr:
    """How many positions the axes have together."""
    return product(axis.extent for axis in axes)
