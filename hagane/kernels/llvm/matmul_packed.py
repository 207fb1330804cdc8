"""A computed matrix times a constant one, which is packed into panels of a few vectors of columns.

C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) in f32. B is stored [batch, panels, K, columns of a
panel], zeros filling the last panel. Threads share (block of rows, panel, tile) units in this order: a block
of rows is small enough to stay in the second-level cache while all panels pass by.
"""

from __future__ import annotations

from dataclasses import dataclass

from hagane.codegen.llvm import Module, Value
from hagane.core.dtypes import DType
from hagane.core.symbolic import product
from hagane.core.targets import CpuTarget
from hagane.ir.region import Region
from hagane.kernels.llvm.frame import Frame, Scope, dim_symbols
from hagane.kernels.llvm.gemm_epilogue import Epilogue, bind_positions
from hagane.kernels.llvm.gemm_index import Product, analyse
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
from hagane.kernels.packing import packing_of
from hagane.kernels.tactic import Argument, Input, KernelLaunch, Layouts, Lowering, Output, Packed, Params

# a barrier and a second thread's wake-up cost about as much as this many multiply-adds
_SERIAL_PRODUCTS = 20_000
# bytes of A that stay in the second-level cache beside the panel of B that passes by
_BLOCK_BYTES = 512 * 1024
_TYPICAL_ROWS = 64  # assumed for a symbolic number of rows
_MOST_VECTORS = 6
_LINE_BYTES = 64
# tiles among which fetching the next panel is divided where their number isn't known
_TYPICAL_TILES = 4


@dataclass(frozen=True)
class _Problem:
    """The product, with what is constant about it."""

    region: Region
    product: Product
    epilogue: Epilogue
    num_batches: int
    depth: int
    num_columns: int

    @property
    def num_rows(self) -> int | None:
        rows = self.product.num_rows
        return rows.value if rows.is_const else None


def _problem(region: Region) -> _Problem | None:
    anchor = region.anchor
    if anchor is None or anchor.op != "matmul" or not region.is_operand(anchor.input(1)):
        return None
    weight = region.operands[region.operand_of(anchor.input(1))]
    shape = weight.static_shape
    if not weight.is_const or shape is None or len(shape) < 2 or 0 in shape:
        return None
    num_batches = product(weight.shape[:-2]).value
    found = analyse(region, merge_rows=num_batches == 1)
    if found is None or not (found.a.rows.is_const and found.a.step.is_const):
        return None
    epilogue = Epilogue(region, found.rows, found.index, found.column.sym.name)
    return _Problem(region, found, epilogue, num_batches, shape[-2], shape[-1]) if epilogue.fits else None


class MatmulPacked:
    """See the module's docstring."""

    name = "matmul_packed"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        if not target.arch.startswith("x86"):
            return False
        problem = _problem(region)
        if problem is None or problem.num_columns == 1:  # a column alone is a dot product of rows
            return False
        anchor = region.anchor
        assert anchor is not None
        return all(v is None or v.dtype is DType.F32 for v in [*anchor.inputs, anchor.output])

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        return Layouts(tuple(None for _ in region.operands), tuple(None for _ in region.outputs))

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        problem = _problem(region)
        assert problem is not None
        lanes = target.vector_bytes // F32_BYTES
        costs: list[tuple[float, int]] = []
        for vectors in range(1, _MOST_VECTORS + 1):
            if max_rows(target, vectors) >= 1:
                costs.append((_cost(problem, target, vectors, lanes), vectors))
        costs.sort()
        best = costs[0][0]
        near = [vectors for cost, vectors in costs if cost <= 1.5 * best]
        return [{"vectors": v, "rows": max_rows(target, v), "unroll": 4} for v in near[:4]]

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        problem = _problem(region)
        assert problem is not None
        lanes = target.vector_bytes // F32_BYTES
        tile = Tile(int(params["rows"]), int(params["vectors"]), lanes, int(params["unroll"]))
        packed = _packed(problem, tile.columns)
        weight = problem.product.b.operand
        others = [k for k in range(len(region.operands)) if k != weight]
        dims = dim_symbols([*region.operands, *region.outputs])
        args: tuple[Argument, ...] = (
            packed,
            *(Input(k) for k in others),
            *(Output(k) for k in range(len(region.outputs))),
        )

        def emit(module: Module, name: str) -> None:
            frame = Frame(module, name, len(args), dims)
            by_operand = {k: frame.pointers[1 + i] for i, k in enumerate(others)}
            by_operand[weight] = frame.pointers[0]
            places = [Place(by_operand[k], v) for k, v in enumerate(region.operands)]
            places += [
                Place(p, v) for p, v in zip(frame.pointers[1 + len(others) :], region.outputs, strict=True)
            ]
            _Writer(frame, problem, tile, places).write()

        return Lowering((KernelLaunch(self._slug(problem), emit, args, dims, serial=_is_small(problem)),))

    def _slug(self, problem: _Problem) -> str:
        rows = problem.num_rows
        return f"matmul_{'m' if rows is None else rows}x{problem.depth}x{problem.num_columns}"


def _is_small(problem: _Problem) -> bool:
    work = problem.product.num_rows * (problem.depth * problem.num_columns)
    batches = product(axis.extent for axis in problem.product.batch)
    return (work * batches).is_const and (work * batches).value < _SERIAL_PRODUCTS


def _cost(problem: _Problem, target: CpuTarget, vectors: int, lanes: int) -> float:
    """Estimated cycles for one step over k: all tiles of all panels, padding included."""
    rows = problem.num_rows if problem.num_rows is not None else _TYPICAL_ROWS
    most = max_rows(target, vectors)
    panels = -(-problem.num_columns // (vectors * lanes))
    tiles = sum(
        n * cycles_per_step(h, vectors, phases(h, vectors, most)) for h, n in balanced_heights(rows, most)
    )
    return panels * tiles


def _packed(problem: _Problem, columns: int) -> Packed:
    """[batches, panels, K, columns] from [..., K, N]."""
    weight = problem.region.operands[problem.product.b.operand]
    depth, num_columns = problem.depth, problem.num_columns
    panels = -(-num_columns // columns)
    matrices = packing_of(weight).reshape(problem.num_batches, depth, num_columns)
    padded = matrices.pad_to(problem.num_batches, depth, panels * columns)
    return padded.reshape(problem.num_batches, depth, panels, columns).transpose(0, 2, 1, 3).finish()


@dataclass(frozen=True)
class _Place:
    """A tile of all tiles, its panel, and its number among those that meet the panel one after the other."""

    tile: Value
    panel: Value
    number: Value


class _Writer:
    """Writes the kernel."""

    def __init__(self, frame: Frame, problem: _Problem, tile: Tile, places: list[Place]) -> None:
        self.frame, self.f, self.problem, self.tile, self.places = frame, frame.f, problem, tile, places
        self.num_panels = -(-problem.num_columns // tile.columns)
        self.tiles = TileWriter(frame.module, frame.f, tile, problem.epilogue, places, problem.num_rows)

    def write(self) -> None:
        f, scope, found = self.f, self.frame.scope, self.problem.product
        rows = scope.expr(found.num_rows)
        cut = cut_rows(f, rows, self.tile.rows)
        per_batch = cut.count * self.num_panels
        batches = scope.expr(product(axis.extent for axis in found.batch))
        for axis in (*found.batch, *found.rows):
            scope.expr(axis.extent)  # noted here, where every block below sees it
        scope.expr(found.a.rows)
        block = max(1, _BLOCK_BYTES // (self.tile.rows * self.problem.depth * F32_BYTES))
        lo, hi = self.frame.share(batches * per_batch)
        with f.loop(lo, hi) as unit:
            inner = scope.child()
            if found.batch:
                batch = unit // per_batch
                unit = unit - batch * per_batch
                bind_positions(inner, found.batch, batch)
            place = self._place(cut, block, unit)
            self._tile(inner, cut, place)

    def _place(self, cut: Heights, block: int, unit: Value) -> _Place:
        """What a unit computes: blocks of tiles are outermost, then panels, then the block's tiles."""
        count = cut.count
        if count.const is not None and count.const <= block:
            return _Place(unit % count, unit // count, unit % count)
        full = block * self.num_panels
        number = unit // full
        rest = unit - number * full
        first = number * block
        here = self.f.imin(count - first, block)
        return _Place(first + rest % here, rest // here, rest % here)

    def _tile(self, scope: Scope, cut: Heights, place: _Place) -> None:
        f, found, depth = self.f, self.problem.product, self.problem.depth
        panel_bytes = depth * self.tile.row_bytes
        batch = scope.expr(found.b.base // (depth * self.problem.num_columns))
        where = (batch * self.num_panels + place.panel) * panel_bytes
        start = f.ptr(self.places[found.b.operand].pointer, where)
        b = Panel(start, self.tile.row_bytes, (), *self._ahead(cut, place, start))
        start = f.ptr(self.places[found.a.operand].pointer, scope.expr(found.a.base) * F32_BYTES)
        a = Rows(start, found.a.rows.value * F32_BYTES, found.a.step.value * F32_BYTES)
        column = place.panel * self.tile.columns
        self.tiles.emit(scope, cut, place.tile, Job(depth, a, b, column, self._masks(column)))

    def _ahead(self, cut: Heights, place: _Place, panel: Value) -> tuple[Value | None, int]:
        """The part of the next panel that a tile fetches, and how many cache lines in each turn of its loop.

        The tiles of one panel fetch the whole next one: the first of them would wait for it otherwise.
        """
        turns, panel_bytes = self.problem.depth // self.tile.unroll, self.problem.depth * self.tile.row_bytes
        if self.num_panels == 1 or not turns:
            return None, 0
        tiles = int(cut.count.const) if cut.count.const else _TYPICAL_TILES
        lines = -(-panel_bytes // (_LINE_BYTES * turns * tiles))
        share = turns * lines * _LINE_BYTES
        offset = self.f.imin(place.number * share, max(panel_bytes - share, 0))
        return self.f.ptr(panel, offset + panel_bytes), lines

    def _masks(self, column: Value) -> tuple[Value | None, ...]:
        """Per vector of the panel the lanes that are columns, None if they always all are."""
        total, lanes = self.problem.num_columns, self.tile.lanes
        if total % self.tile.columns == 0:
            return (None,) * self.tile.vectors
        last = (self.num_panels - 1) * self.tile.columns
        return tuple(
            None if last + (v + 1) * lanes <= total else self.f.mask_below(total - column - v * lanes, lanes)
            for v in range(self.tile.vectors)
        )


TACTIC = MatmulPacked()
