"""The generic tactic: any region that has a tensor expression, as vectorised loops in the output's memory
order.

Reductions are computed at the outermost loop that fixes all they depend on, so a norm's statistics are
computed once a row. It is the fallback for every numeric op and the tactic of choice for pointwise regions,
norms, pooling and resizing.
"""

from __future__ import annotations

from contextlib import ExitStack

from hagane.codegen.llvm import Module, Value
from hagane.core.dtypes import DType
from hagane.core.errors import HaganeError
from hagane.core.symbolic import Expr, const, product, sym
from hagane.core.targets import CpuTarget
from hagane.ir.region import Region, region_symbols
from hagane.ir.scalar import Guard, IndexValue, LetIndex, Lit, Reduce, Scalar, children
from hagane.kernels.llvm.boxes import build_nests
from hagane.kernels.llvm.frame import Frame
from hagane.kernels.llvm.halo import zero_halo
from hagane.kernels.llvm.nest import Loop, Nest, choose_vector, vectorises
from hagane.kernels.llvm.reducing import emit_reduce, emit_row_reduce
from hagane.kernels.llvm.scalars import Place, ScalarEmitter
from hagane.kernels.tactic import ANY, Argument, Input, KernelLaunch, Layouts, Lowering, Output, Params

# below this many element operations a barrier costs more than a second thread gains (barrier: up to 0.35 us)
SERIAL_OPERATIONS = 6_000


class Generic:
    """See the module's docstring."""

    name = "generic"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        values = [*region.operands, *region.outputs, *(v for n in region.body.nodes for v in n.outputs)]
        if any(v.dtype is DType.STRING for v in values):
            return False
        try:
            for output in range(len(region.outputs)):
                region.expression(tuple(Expr([((a.sym,), 1)]) for a in region.axes(output)), output)
        except HaganeError:
            return False
        return True

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        return Layouts(tuple(ANY for _ in region.operands), tuple(ANY for _ in region.outputs))

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        return [{}]

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        full = [k for k, v in enumerate(region.outputs) if product(v.shape) != 0]
        return Lowering(tuple(self._launch(region, target, k) for k in full))

    def _launch(self, region: Region, target: CpuTarget, output: int) -> KernelLaunch:
        dims = region_symbols(region)
        nests = build_nests(region, output)
        args: tuple[Argument, ...] = (*(Input(k) for k in range(len(region.operands))), Output(output))

        def emit(module: Module, name: str) -> None:
            frame = Frame(module, name, len(args), dims)
            zero_halo(frame, Place(frame.pointers[-1], region.outputs[output]))
            for nest in nests:
                _Writer(frame, region, output, nest, target).write()

        return KernelLaunch("loops", emit, args, dims, serial=_are_small(nests))


def _are_small(nests: list[Nest]) -> bool:
    operations = const(0)
    for nest in nests:
        elements = product(loop.extent for loop in nest.loops)
        operations = operations + elements * (1 + sum(trips for _, trips in nest.loads))
    return operations.is_const and operations.value < SERIAL_OPERATIONS


class _Writer:
    """Writes the loops of one output."""

    def __init__(self, frame: Frame, region: Region, output: int, nest: Nest, target: CpuTarget) -> None:
        self.frame, self.nest = frame, nest
        self.f = frame.f
        tensors = [*region.operands, region.outputs[output]]
        self.places = [Place(p, t) for p, t in zip(frame.pointers, tensors, strict=True)]
        self.lanes = target.vector_bytes // 4
        self.vector = choose_vector(nest, self.lanes)
        by_name = {loop.name: loop for loop in nest.loops}
        self.vector_loop = by_name[self.vector] if self.vector else None
        self.outer = [loop for loop in nest.loops if loop.name != self.vector]
        self.scope = frame.scope.child()
        self.values: dict[int, Value] = {}
        self.bound: set[str] = set()
        self.offsets, self.store = nest.offsets, nest.store
        self.valid: Value | None = None
        self._num_bases = 0

    def write(self) -> None:
        """Nothing of a box that may be empty is evaluated outside of the test."""
        turns = product(loop.extent for loop in self.nest.loops)
        low = turns.bounds()[0]
        if low is not None and low > 0:
            self._write()
            return
        with self._block(), self.f.if_(self.scope.expr(turns).gt(0)):
            self._write()

    def _write(self) -> None:
        if self.vector_loop is not None and self.vector_loop.lane_block:
            self._bind(self.vector_loop, self.f.const("i64", 0))
        self._hoist()
        if not self.outer:
            self._innermost(parallel=True)
            return
        head = self._num_shared()
        total = self.f.const("i64", 1)
        extents = [self.scope.expr(loop.extent) for loop in self.outer[:head]]
        for extent in extents:
            total = total * extent
        lo, hi = self.frame.share(total)
        with self._block(), self.f.loop(lo, hi) as unit:
            for loop, extent in reversed(list(zip(self.outer[:head], extents, strict=True))):
                last = loop is self.outer[0]
                self._bind(loop, unit if last else unit % extent)
                if not last:
                    unit = unit // extent
            self._rest(head)

    def _num_shared(self) -> int:
        """How many outer loops form the units that threads share: enough units, but no reduction computed
        twice.
        """
        units, count = 1, 0
        for loop in self.outer:
            if units >= 16:
                break
            if count and self._newly_fixed(self.outer[:count]) and units >= 2:
                break
            units *= loop.extent.value if loop.extent.is_const else max(loop.extent.bounds()[0] or 1, 1)
            count += 1
        return count

    def _newly_fixed(self, loops: list[Loop]) -> bool:
        free = [loop.name for loop in self.outer if loop not in loops]
        return any(not any(self.nest.depends(r, name) for name in free) for r in self.nest.reduces)

    def _rest(self, depth: int) -> None:
        self._hoist()
        if depth == len(self.outer):
            self._innermost(parallel=False)
            return
        loop = self.outer[depth]
        with self._block(), self.f.loop(0, self.scope.expr(loop.extent)) as index:
            self._bind(loop, index)
            self._rest(depth + 1)

    def _block(self) -> ExitStack:
        """Values emitted inside the block are forgotten after it."""
        saved = (self.scope, dict(self.values), set(self.bound), self.offsets, self.store, self.valid)

        def restore() -> None:
            self.scope, self.values, self.bound, self.offsets, self.store, self.valid = saved

        stack = ExitStack()
        stack.callback(restore)
        self.scope = self.scope.child()
        return stack

    def _bind(self, loop: Loop, index: Value) -> None:
        self.scope.bind(loop.name, index)
        self.bound.add(loop.name)

    def _hoist(self) -> None:
        """Emits what is fixed by the loops bound so far: reductions, then other parts of the expression.

        LLVM's pipeline has no pass that moves invariants out of loops, so this is where it happens.
        """
        open_loops = [loop.name for loop in self.nest.loops if loop.name not in self.bound]
        self._rebase()
        self._valid_mask()
        for reduce in self.nest.reduces:
            if id(reduce) in self.values or self._inside_other(reduce):
                continue
            if any(self.nest.depends(reduce, name) for name in open_loops):
                continue
            self.values[id(reduce)] = self._emit_reduce(reduce)
        if open_loops:
            self._hoist_parts(self.nest.scalar, open_loops, set())

    def _rebase(self) -> None:
        """Computes the parts of offsets that are known by now: further inside the rest is added to them."""
        bases: dict[Expr, Expr] = {}
        self.offsets = {key: self._based(offset, bases) for key, offset in self.offsets.items()}
        self.store = self._based(self.store, bases)

    def _based(self, offset: Expr, bases: dict[Expr, Expr]) -> Expr:
        known = const(0)
        for monomial, factor in offset.terms:
            term = Expr([(monomial, factor)])
            if all(s.name != self.vector and self.scope.has(s.name) for s in term.symbols()):
                known = known + term
        if known.is_const or known.as_sym is not None:
            return offset
        if known not in bases:
            name = f"base{self._num_bases}"
            self._num_bases += 1
            self.scope.bind(name, self.scope.expr(known))
            bases[known] = sym(name, -(1 << 62))
        return offset - known + bases[known]

    def _hoist_parts(self, scalar: Scalar, open_loops: list[str], seen: set[int]) -> None:
        if id(scalar) in self.values or id(scalar) in seen or isinstance(scalar, Lit | IndexValue | Reduce):
            return
        seen.add(id(scalar))
        if not any(self.nest.depends(scalar, name) for name in open_loops):
            lanes = self.vector is not None and self.nest.depends(scalar, self.vector)
            emitter = self._emitter(self.vector, self._valid_mask()) if lanes else self._emitter(None)
            self.values[id(scalar)] = emitter.emit(scalar)
            return
        # what a guard protects, or an index symbol is bound for, can't be evaluated outside
        parts = (scalar.cond,) if isinstance(scalar, Guard) else children(scalar)
        if isinstance(scalar, LetIndex):
            parts = (scalar.value,)
        for part in parts:
            self._hoist_parts(part, open_loops, seen)

    def _inside_other(self, reduce: Reduce) -> bool:
        """True if the reduction varies with the axis of one around it: that one emits it."""
        return any(
            other is not reduce and any(self.nest.depends(reduce, axis.sym.name) for axis in other.axes)
            for other in self.nest.reduces
        )

    def _emitter(self, vector: str | None, mask: Value | None = None) -> ScalarEmitter:
        return ScalarEmitter(
            self.f,
            self.places,
            self.scope,
            vector=vector,
            lanes=self.lanes,
            mask=mask,
            offsets=self.offsets,
            preset=self.values,
        )

    def _emit_reduce(self, reduce: Reduce) -> Value:
        lane_block = self.vector_loop is not None and self.vector_loop.lane_block
        if lane_block and self.vector and self.nest.depends(reduce, self.vector):
            return emit_reduce(self._emitter(self.vector, self._valid_mask()), reduce)
        emitter = self._emitter(None)
        if vectorises(self.nest, reduce):
            return emit_row_reduce(emitter, reduce, self.lanes)
        return emit_reduce(emitter, reduce)

    def _valid_mask(self) -> Value | None:
        valid = self.nest.valid
        if valid is not None and self.valid is None and all(self.scope.has(s.name) for s in valid.symbols()):
            self.valid = self.f.mask_below(self.scope.expr(valid), self.lanes)
        return self.valid

    def _innermost(self, parallel: bool) -> None:
        loop = self.vector_loop
        if loop is None:
            if parallel:
                with self.f.if_(self.frame.tid.eq(0)):
                    self._element(None, None)
            else:
                self._element(None, None)
        elif loop.lane_block:
            if parallel:
                with self.f.if_(self.frame.tid.eq(0)):
                    self._element(self._valid_mask(), loop)
            else:
                self._element(self._valid_mask(), loop)
        else:
            self._vector_loop(loop, parallel)

    def _vector_loop(self, loop: Loop, parallel: bool) -> None:
        extent = self.scope.expr(loop.extent)
        lo, hi = self.f.const("i64", 0), extent
        if parallel:
            first, last = self.frame.share((extent + (self.lanes - 1)) // self.lanes)
            lo, hi = first * self.lanes, self.f.imin(last * self.lanes, extent)
        whole = lo + (hi - lo) // self.lanes * self.lanes if parallel else extent // self.lanes * self.lanes
        with self._block(), self.f.loop(lo, whole, self.lanes) as base:
            self._bind(loop, base)
            self._element(None, loop)
        if loop.extent.divisor() % self.lanes == 0:
            return
        with self._block(), self.f.if_(whole.lt(hi)):
            self._bind(loop, whole)
            self._element(self.f.mask_below(hi - whole, self.lanes), loop)

    def _element(self, mask: Value | None, loop: Loop | None) -> None:
        emitter = self._emitter(loop.name if loop else None, mask)
        value = emitter.emit(self.nest.scalar)
        if loop is not None and loop.lane_block and mask is not None:
            value = self.f.select(
                mask,
                emitter.fit(value, value.type.with_lanes(self.lanes)),
                self.f.const(value.type.with_lanes(self.lanes), 0),
            )
            emitter.mask = None
        emitter.store(value, self.places[-1], self.store)


TACTIC = Generic()
