"""Copies that exchange which axis is contiguous, by square blocks in registers: transposes, changes of
layout.

One loop is contiguous in the input, another one in the output; a block of both is loaded as rows, transposed
with shuffles and stored as rows. The generic kernel would gather every element.
"""

from __future__ import annotations

from dataclasses import dataclass

from hagane.codegen.llvm import Module, Type, Value
from hagane.core.symbolic import Expr, ceildiv, const, emin, product
from hagane.core.targets import CpuTarget
from hagane.ir.graph import Node
from hagane.ir.layout import AnyLayout
from hagane.ir.region import Region, index_symbol
from hagane.ir.registry import op_def
from hagane.ir.scalar import Load
from hagane.kernels.llvm.affine import linear_coefficient, mentions
from hagane.kernels.llvm.elements import all_arguments, all_dims
from hagane.kernels.llvm.frame import Frame, Scope
from hagane.kernels.llvm.halo import zero_halo
from hagane.kernels.llvm.nest import build_nest
from hagane.kernels.llvm.scalars import Place
from hagane.kernels.tactic import ANY, KernelLaunch, Layouts, Lowering, Params

_KINDS = {1: "i8", 2: "i16", 4: "f32", 8: "f64"}
_MOST_LANES = 16
_SERIAL_ELEMENTS = 4_000


@dataclass(frozen=True)
class _Loop:
    """A loop of the copy: how many trips, and the strides in elements of both sides."""

    name: str
    extent: Expr
    source: Expr
    target: Expr


@dataclass(frozen=True)
class _Copy:
    """across: contiguous in the source; along: contiguous in the target. Bases are at zero of both.

    valid: positions of `along` that exist in the source, the others become zero; None if all do.
    """

    operand: int
    outer: tuple[_Loop, ...]
    across: _Loop
    along: _Loop
    source: Expr
    target: Expr
    valid: Expr | None


def _analyse(region: Region) -> _Copy | None:
    """The copy that a region of movement is; None if it is none of this kind."""
    if len(region.outputs) != 1 or not all(_moves(node) for node in region.body.nodes):
        return None
    nest = build_nest(region, 0)
    if not isinstance(nest.scalar, Load) or nest.scalar.dtype.itemsize not in _KINDS:
        return None
    load = nest.scalar
    source, target, valid = nest.offsets[id(load)], nest.store, nest.valid
    loops = [(loop.name, loop.extent) for loop in nest.loops]
    layout = region.operands[load.operand].layout
    for factor in {factor for _, factor in layout.blocks} if layout is not None else set():
        loops, source, target = _split(loops, source, target, factor)
    found: list[_Loop] = []
    for name, extent in loops:
        a, b = linear_coefficient(source, name), linear_coefficient(target, name)
        if a is None or b is None or (valid is not None and mentions(valid, name) and a == 1):
            return None
        found.append(_Loop(name, extent, a, b))
    strides = [e for loop in found for e in (loop.source, loop.target)]
    if any(mentions(stride, loop.name) for stride in strides for loop in found):
        return None
    across = [loop for loop in found if loop.source == 1 and loop.target != 1]
    along = [loop for loop in found if loop.target == 1 and loop.source != 1]
    if len(across) != 1 or len(along) != 1 or any(mentions(along[0].extent, x.name) for x in across):
        return None
    rest = {across[0].name: const(0), along[0].name: const(0)}
    outer = tuple(loop for loop in found if loop.name not in rest)
    return _Copy(
        load.operand, outer, across[0], along[0], source.substitute(rest), target.substitute(rest), valid
    )


def _moves(node: Node) -> bool:
    return node.op == "identity" or op_def(node.op).kind == "movement"


def _split(
    loops: list[tuple[str, Expr]], source: Expr, target: Expr, factor: int
) -> tuple[list[tuple[str, Expr]], Expr, Expr]:
    """Splits loops over a blocked axis of the source into blocks and the position in a block."""
    result: list[tuple[str, Expr]] = []
    for name, extent in loops:
        if linear_coefficient(source, name) is not None or extent == 1:
            result.append((name, extent))
            continue
        blocks = ceildiv(extent, factor)
        block, lane = index_symbol(f"{name}_b", blocks), index_symbol(f"{name}_l", const(factor))
        env = {name: block * factor + lane}
        source, target = source.substitute(env), target.substitute(env)
        inside = const(factor) if extent.divisor() % factor == 0 else emin(extent - block * factor, factor)
        result += [(f"{name}_b", blocks), (f"{name}_l", inside)]
    return result, source, target


class Transpose:
    """See the module's docstring."""

    name = "transpose"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        return target.arch.startswith("x86") and _analyse(region) is not None

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        follow: tuple[AnyLayout, ...] = tuple(ANY for _ in region.operands)
        return Layouts(follow, (ANY,))

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        return [{}]

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        copy = _analyse(region)
        assert copy is not None
        args, dims = all_arguments(region), all_dims(region)

        def emit(module: Module, name: str) -> None:
            frame = Frame(module, name, len(args), dims)
            tensors = [*region.operands, *region.outputs]
            places = [Place(p, t) for p, t in zip(frame.pointers, tensors, strict=True)]
            if places[-1].tensor.layout is not None:
                zero_halo(frame, places[-1])
            _Writer(frame, copy, places, target).write()

        elements = product(region.outputs[0].shape)
        small = elements.is_const and elements.value < _SERIAL_ELEMENTS
        return Lowering((KernelLaunch("transpose", emit, args, dims, serial=small),))


class _Writer:
    """Writes the kernel: a unit of work is one strip of blocks, all along `along`."""

    def __init__(self, frame: Frame, copy: _Copy, places: list[Place], target: CpuTarget) -> None:
        self.frame, self.f, self.copy = frame, frame.f, copy
        self.size = places[-1].tensor.dtype.itemsize
        self.lanes = min(_MOST_LANES, target.vector_bytes // self.size)
        self.kind = Type(_KINDS[self.size], self.lanes)
        self.input, self.output = places[copy.operand].pointer, places[-1].pointer

    def write(self) -> None:
        f, scope, copy = self.f, self.frame.scope, self.copy
        loops = copy.outer
        across_most = self._most(copy.across)
        strips = scope.expr(ceildiv(across_most, self.lanes))
        total = strips
        for loop in loops:
            total = total * scope.expr(self._most(loop))
        for loop in (*loops, copy.across, copy.along):
            for stride in (loop.source, loop.target):
                scope.expr(stride)
        lo, hi = self.frame.share(total)
        with f.loop(lo, hi) as unit:
            inner = scope.child()
            strip, rest = unit % strips, unit // strips
            for loop in reversed(loops):
                extent = scope.expr(self._most(loop))
                inner.bind(loop.name, rest % extent)
                rest = rest // extent
            self._strip(inner, strip * self.lanes)

    def _most(self, loop: _Loop) -> Expr:
        """The loop's extent where it is fullest: that of a split loop depends on the block."""
        names = {other.name for other in self.copy.outer}
        if not any(s.name in names for s in loop.extent.symbols()):
            return loop.extent
        return const(_fullest(loop.extent))

    def _strip(self, scope: Scope, first: Value) -> None:
        """Blocks from position `first` of `across` on."""
        f, copy, lanes = self.f, self.copy, self.lanes
        rows = scope.expr(copy.across.extent) - first
        count = scope.expr(copy.along.extent)
        valid = count if copy.valid is None else f.imin(scope.expr(copy.valid), count)
        source = f.ptr(self.input, (scope.expr(copy.source) + first) * self.size)
        target_step = scope.expr(copy.target) + first * scope.expr(copy.across.target)
        target = f.ptr(self.output, target_step * self.size)
        whole = f.select(rows.ge(lanes), valid // lanes * lanes, f.const("i64", 0))
        with f.loop(0, whole, lanes) as column:
            self._block(scope.child(), source, target, column, None)
        with f.loop(whole, count, lanes) as column:
            self._block(scope.child(), source, target, column, (rows, valid, count))

    def _block(
        self,
        scope: Scope,
        source: Value,
        target: Value,
        column: Value,
        limits: tuple[Value, Value, Value] | None,
    ) -> None:
        """One square; limits: rows that exist from the block's first on, valid and existing columns."""
        f, copy, lanes = self.f, self.copy, self.lanes
        source_step, target_step = scope.expr(copy.along.source), scope.expr(copy.across.target)
        mask = None if limits is None else f.mask_below(limits[0], lanes)
        rows: list[Value] = []
        for r in range(lanes):
            if limits is None:
                place = (column + r) * source_step
                rows.append(f.load(self.kind, source, place * self.size))
                continue
            _, valid, _ = limits
            place = f.imin(column + r, f.imax(valid - 1, 0)) * source_step
            assert mask is not None
            shown = mask & f.broadcast((column + r).lt(valid), lanes)
            rows.append(f.masked_load(self.kind, source, shown, place * self.size))
        stored = None if limits is None else f.mask_below(limits[2] - column, lanes)
        for r, row in enumerate(f.transpose(rows)):
            place = f.ptr(target, (target_step * r + column) * self.size)
            if limits is None or stored is None:
                f.store(row, place)
            else:
                with f.if_(limits[0].gt(r)):
                    f.masked_store(row, place, stored)


def _fullest(extent: Expr) -> int:
    top = extent.bounds()[1]
    assert top is not None
    return top


TACTIC = Transpose()
