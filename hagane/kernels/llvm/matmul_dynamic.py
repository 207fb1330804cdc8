"""The product of two computed matrices, batched, of any strides: attention scores, interactions of features.

Threads share (batch, block of rows, panel of columns) units. A unit copies its panel of B into its scratch
memory, transposing it if need be, unless B lies densely enough to be read in place.
"""

from __future__ import annotations

from dataclasses import dataclass

from hagane.codegen.llvm import Function, Module, Value
from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr, ceildiv, const, product
from hagane.core.targets import CpuTarget
from hagane.ir.region import Region
from hagane.kernels.llvm.frame import Frame, Scope, dim_symbols
from hagane.kernels.llvm.gemm_epilogue import Epilogue, bind_positions
from hagane.kernels.llvm.gemm_index import Product, analyse
from hagane.kernels.llvm.gemm_pack import pack_any, pack_columns, pack_rows
from hagane.kernels.llvm.gemm_tile import (
    F32_BYTES,
    Panel,
    Rows,
    Tile,
    balanced_heights,
    cycles_per_step,
    max_rows,
    phases,
)
from hagane.kernels.llvm.gemm_writer import Heights, Job, TileWriter, cut_rows
from hagane.kernels.llvm.scalars import Place
from hagane.kernels.tactic import Argument, Input, KernelLaunch, Layouts, Lowering, Output, Params

_SERIAL_PRODUCTS = 20_000
_BLOCK_BYTES = 512 * 1024
_TYPICAL = 64  # assumed for symbolic extents
_MOST_VECTORS = 4
# fourteen rows at an unknown distance run at half of the speed of six
_MOST_POINTERS = 6
# a block of rows pays for copying a panel once more
_LEAST_ROWS = 128
# bytes from row to row of B up to which reading in place is as fast as reading a copy
_DENSE_BYTES = 1024


@dataclass(frozen=True)
class _Problem:
    region: Region
    product: Product
    epilogue: Epilogue

    @property
    def num_rows(self) -> int | None:
        rows = self.product.num_rows
        return rows.value if rows.is_const else None

    @property
    def num_columns(self) -> Expr:
        return self.product.column.extent

    @property
    def depth(self) -> Expr:
        return self.product.depth.extent


def _problem(region: Region) -> _Problem | None:
    anchor = region.anchor
    if anchor is None or anchor.op != "matmul" or anchor.input(1).rank < 2:
        return None
    one_matrix = all(d == 1 for d in anchor.input(1).shape[:-2])
    found = analyse(region, merge_rows=True) if one_matrix else None
    found = found or analyse(region, merge_rows=False)
    if found is None:
        return None
    epilogue = Epilogue(region, found.rows, found.index, found.column.sym.name)
    return _Problem(region, found, epilogue) if epilogue.fits else None


class MatmulDynamic:
    """See the module's docstring."""

    name = "matmul_dynamic"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        problem = _problem(region) if target.arch.startswith("x86") else None
        anchor = region.anchor
        if problem is None or anchor is None:
            return False
        if any(v is not None and v.dtype is not DType.F32 for v in [*anchor.inputs, anchor.output]):
            return False
        found = problem.product
        if problem.num_columns == 1:  # dot products of rows: nothing to share
            return False
        few = problem.num_rows is not None and problem.num_rows <= 2
        return not (few and found.b.step == 1 and found.b.rows != 1)

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        return Layouts(tuple(None for _ in region.operands), tuple(None for _ in region.outputs))

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        problem = _problem(region)
        assert problem is not None
        lanes = target.vector_bytes // F32_BYTES
        columns = problem.num_columns.value if problem.num_columns.is_const else _TYPICAL
        rows = problem.num_rows if problem.num_rows is not None else _TYPICAL
        costs: list[tuple[float, int]] = []
        for vectors in range(1, _MOST_VECTORS + 1):
            most = _most_rows(problem, target, vectors)
            tiles = balanced_heights(rows, most)
            steps = sum(n * cycles_per_step(h, vectors, phases(h, vectors, most)) for h, n in tiles)
            # one more vector for copying the panel, of which nothing is shared
            costs.append((-(-columns // (vectors * lanes)) * (steps + vectors), vectors))
        costs.sort()
        ways = _ways(problem, target, rows)
        return [
            {"vectors": v, "rows": _most_rows(problem, target, v), "unroll": 4, "copy": copy}
            for _, v in costs[:2]
            for copy in ways
        ]

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        problem = _problem(region)
        assert problem is not None
        lanes = target.vector_bytes // F32_BYTES
        tile = Tile(int(params["rows"]), int(params["vectors"]), lanes, int(params["unroll"]))
        dims = dim_symbols([*region.operands, *region.outputs])
        inputs, outputs = range(len(region.operands)), range(len(region.outputs))
        args: tuple[Argument, ...] = (*map(Input, inputs), *map(Output, outputs))
        copy = bool(params["copy"])

        def emit(module: Module, name: str) -> None:
            frame = Frame(module, name, len(args), dims)
            tensors = [*region.operands, *region.outputs]
            places = [Place(p, t) for p, t in zip(frame.pointers, tensors, strict=True)]
            _Writer(frame, problem, tile, places, copy).write()

        work = problem.depth * product(d for d in region.anchor.output.shape) if region.anchor else const(0)
        small = work.is_const and work.value < _SERIAL_PRODUCTS
        scratch = ceildiv(problem.depth, lanes) * (lanes * tile.row_bytes) if copy else const(0)
        launch = KernelLaunch("matmul", emit, args, dims, serial=small)
        return Lowering((launch,), scratch_bytes=scratch)


def _most_rows(problem: _Problem, target: CpuTarget, vectors: int) -> int:
    """As max_rows; rows at an unknown distance need a pointer each, of which there are few."""
    most = max_rows(target, vectors)
    return most if problem.product.a.rows.is_const else min(most, _MOST_POINTERS)


def _ways(problem: _Problem, target: CpuTarget, rows: int) -> list[bool]:
    """Whether to copy panels of B, the better guess first."""
    b = problem.product.b
    if b.rows != 1:
        return [True]
    lanes = target.vector_bytes // F32_BYTES
    if target.arch == "x86-64-v3" and problem.num_columns.divisor() % lanes:
        return [True]  # AVX2's masked loads are slow
    dense = b.step.is_const and b.step.value * F32_BYTES <= _DENSE_BYTES
    return [False, True] if dense or rows <= 28 else [True, False]


class _Writer:
    """Writes the kernel."""

    def __init__(self, frame: Frame, problem: _Problem, tile: Tile, places: list[Place], copy: bool) -> None:
        self.frame, self.f, self.problem, self.tile, self.places = frame, frame.f, problem, tile, places
        self.copy = copy
        self.tiles = TileWriter(frame.module, frame.f, tile, problem.epilogue, places, problem.num_rows)

    def write(self) -> None:
        f, scope, found = self.f, self.frame.scope, self.problem.product
        cut = cut_rows(f, scope.expr(found.num_rows), self.tile.rows)
        panels = scope.expr(ceildiv(self.problem.num_columns, self.tile.columns))
        batches = scope.expr(product(axis.extent for axis in found.batch))
        for extent in [axis.extent for axis in (*found.batch, *found.rows)] + [self.problem.num_columns]:
            scope.expr(extent)  # noted here, where every block below sees it
        for stride in (found.a.rows, found.a.step, found.b.rows, found.b.step, self.problem.depth):
            scope.expr(stride)
        chunks = self._num_chunks(cut, batches, panels)
        lo, hi = self.frame.share(batches * chunks * panels)
        with f.loop(lo, hi) as unit:
            inner = scope.child()
            panel, rest = unit % panels, unit // panels
            chunk, batch = rest % chunks, rest // chunks
            bind_positions(inner, found.batch, batch)
            first, end = chunk * cut.count // chunks, (chunk + 1) * cut.count // chunks
            self._unit(inner, cut, panel, first, end)

    def _num_chunks(self, cut: Heights, batches: Value, panels: Value) -> Value:
        """Blocks of rows: small enough for the second-level cache, and enough of them for all threads."""
        f = self.f
        depth = f.imax(self.frame.scope.expr(self.problem.depth), 1)
        cached = f.const("i64", _BLOCK_BYTES // (self.tile.rows * F32_BYTES)) // depth
        per_block = f.imax(cached, _LEAST_ROWS // self.tile.rows)
        # a single panel passes once: nothing stays for it to meet again
        chunks = f.select(panels.le(1), f.const("i64", 1), (cut.count + per_block - 1) // per_block)
        wanted, others = (self.frame.nthreads - 1) * 3 + 1, f.imax(batches * panels, 1)
        spread = (wanted + others - 1) // others
        return f.imax(f.imin(f.imax(chunks, spread), cut.count), 1)

    def _unit(self, scope: Scope, cut: Heights, panel: Value, first: Value, end: Value) -> None:
        f, found = self.f, self.problem.product
        column = panel * self.tile.columns
        masks = column_masks(f, self.tile, self.problem.num_columns, scope, column)
        source = f.ptr(
            self.places[found.b.operand].pointer,
            (scope.expr(found.b.base) + column * scope.expr(found.b.rows)) * F32_BYTES,
        )
        b = self._copied(scope, source, column, masks) if self.copy else None
        if b is None:
            b = Panel(source, _bytes(scope, found.b.step), masks)
        start = f.ptr(self.places[found.a.operand].pointer, scope.expr(found.a.base) * F32_BYTES)
        a = Rows(start, _bytes(scope, found.a.rows), _bytes(scope, found.a.step))
        job = Job(scope.expr(self.problem.depth), a, b, column, masks)
        with f.loop(first, end) as index:
            self.tiles.emit(scope.child(), cut, index, job)

    def _copied(self, scope: Scope, source: Value, column: Value, masks: tuple[Value | None, ...]) -> Panel:
        f, tile, b = self.f, self.tile, self.problem.product.b
        target = self.frame.scratch
        depth = scope.expr(self.problem.depth)
        step, stride = (f.literal(_bytes(scope, s), "i64") for s in (b.step, b.rows))
        last = scope.expr(self.problem.num_columns) - 1 - column
        if b.rows == 1:
            pack_rows(f, tile, target, source, depth, step, masks)
        elif b.step == 1:
            pack_columns(f, tile, target, source, depth, stride, last)
        else:
            pack_any(f, tile, target, source, depth, (step, stride), last)
        return Panel(target, tile.row_bytes)


def _bytes(scope: Scope, stride: Expr) -> Value | int:
    return stride.value * F32_BYTES if stride.is_const else scope.expr(stride) * F32_BYTES


def column_masks(
    f: Function, tile: Tile, num_columns: Expr, scope: Scope, column: Value
) -> tuple[Value | None, ...]:
    """Per vector of a panel the lanes that are columns, None if they all always are."""
    total = scope.expr(num_columns)
    if num_columns.divisor() and num_columns.divisor() % tile.columns == 0:
        return (None,) * tile.vectors
    return tuple(f.mask_below(total - column - v * tile.lanes, tile.lanes) for v in range(tile.vectors))


TACTIC = MatmulDynamic()
