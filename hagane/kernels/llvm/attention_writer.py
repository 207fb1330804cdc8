"""Writes the attention kernel: units, packed keys and values, tiles of queries against blocks of keys."""

from __future__ import annotations

from dataclasses import dataclass

from hagane.codegen.llvm import Type, Value, Var, math
from hagane.core.symbolic import Expr, ceildiv, const
from hagane.kernels.llvm.attention_problem import GROUP, KEY, MINUS_INFINITY, AttentionProblem
from hagane.kernels.llvm.frame import Frame, Scope
from hagane.kernels.llvm.gemm_epilogue import ROW
from hagane.kernels.llvm.gemm_index import Access
from hagane.kernels.llvm.gemm_pack import pack_any, pack_columns, pack_rows
from hagane.kernels.llvm.gemm_tile import F32_BYTES, Panel, Rows, Sums, Tile, balanced_heights
from hagane.kernels.llvm.gemm_writer import HeightFunctions, Heights, cut_rows
from hagane.kernels.llvm.scalars import Place, ScalarEmitter

_ALIGN = 64
_LEAST_EXPONENT = -87.0


@dataclass(frozen=True)
class AttentionTiles:
    """scores: tile of queries by keys; values: tile of queries by columns of v, equally high; keys of a
    block."""

    scores: Tile
    values: Tile
    keys: int
    copy_values: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of a block's scores."""
        return self.keys * F32_BYTES

    def value_panels(self, problem: AttentionProblem) -> int:
        return -(-problem.value_size // self.values.columns)

    def out_bytes(self, problem: AttentionProblem) -> int:
        """Bytes of one row of unscaled results, whole panels."""
        return self.value_panels(problem) * self.values.row_bytes

    def key_panel_bytes(self, problem: AttentionProblem) -> int:
        lanes = self.scores.lanes
        return -(-problem.head_size // lanes) * lanes * self.scores.row_bytes

    def value_panel_bytes(self, problem: AttentionProblem) -> Expr:
        lanes = self.values.lanes
        return ceildiv(problem.num_keys, lanes) * (lanes * self.values.row_bytes)

    def scratch(self, problem: AttentionProblem) -> Expr:
        """Bytes of a thread: the block's scores, results and their increments, packed keys, packed values."""
        tile = self.scores.rows * (self.row_bytes + 2 * self.out_bytes(problem))
        keys = ceildiv(problem.num_keys, self.scores.columns) * self.key_panel_bytes(problem)
        values = self.value_panel_bytes(problem) * self.value_panels(problem)
        return keys + (values if self.copy_values else const(0)) + tile


class AttentionWriter:
    """Writes the kernel. Scratch memory: scores, results, increments of results, keys, values."""

    def __init__(
        self, frame: Frame, problem: AttentionProblem, tiles: AttentionTiles, places: list[Place]
    ) -> None:
        self.frame, self.f, self.problem, self.tiles, self.places = frame, frame.f, problem, tiles, places
        f, rows = frame.f, tiles.scores.rows
        extent = problem.rows.extent
        heights = [h for h, _ in balanced_heights(extent.value, rows)] if extent.is_const else []
        self.score_functions = HeightFunctions(frame.module, f, tiles.scores, "qk", heights)
        self.value_functions = HeightFunctions(frame.module, f, tiles.values, "pv", heights)
        self.one_block = problem.num_keys.is_const and problem.num_keys.value <= tiles.keys
        self.scores = frame.scratch
        self.results = f.ptr(self.scores, rows * tiles.row_bytes)
        self.increments = f.ptr(self.results, rows * tiles.out_bytes(problem))
        self.keys = f.ptr(self.increments, rows * tiles.out_bytes(problem))
        self.largest, self.total, self.factor = (f.stack(_ALIGN) for _ in range(3))

    def write(self) -> None:
        f, scope, problem = self.f, self.frame.scope, self.problem
        for extent in (problem.batch.extent, problem.num_groups, problem.num_keys):
            scope.expr(extent)
        cut = cut_rows(f, scope.expr(problem.rows.extent), self.tiles.scores.rows)
        heads = scope.expr(problem.heads.extent)
        panels = ceildiv(problem.num_keys, self.tiles.scores.columns)
        self.values = f.ptr(self.keys, scope.expr(panels) * self.tiles.key_panel_bytes(problem))
        per_group = heads // f.imax(scope.expr(problem.num_groups), 1)
        others = scope.expr(problem.batch.extent) * heads
        wanted, some = (self.frame.nthreads - 1) * 3 + 1, f.imax(others, 1)
        chunks = f.imax(f.imin((wanted + some - 1) // some, cut.count), 1)
        lo, hi = self.frame.share(others * chunks)
        with f.loop(lo, hi) as unit:
            inner = scope.child()
            number, chunk = unit // chunks, unit % chunks
            head = number % heads
            inner.bind(problem.batch.sym.name, number // heads)
            inner.bind(problem.heads.sym.name, head)
            inner.bind(GROUP, head // f.imax(per_group, 1))
            v = self._pack(inner)
            with f.loop(chunk * cut.count // chunks, (chunk + 1) * cut.count // chunks) as tile:
                self._tile(inner.child(), cut, tile, v)

    def _pack(self, scope: Scope) -> Panel:
        """Copies keys and perhaps values of a head; returns the first panel of values."""
        problem, tiles = self.problem, self.tiles
        keys, columns = problem.num_keys, const(problem.value_size)
        bytes_of_keys = const(tiles.key_panel_bytes(problem))
        self._copy(scope, problem.k, tiles.scores, self.keys, keys, const(problem.head_size), bytes_of_keys)
        if tiles.copy_values:
            panel = tiles.value_panel_bytes(problem)
            self._copy(scope, problem.v, tiles.values, self.values, columns, keys, panel)
            return Panel(self.values, tiles.values.row_bytes)
        return Panel(self._start(scope, problem.v), _bytes(scope, problem.v.step))

    def _start(self, scope: Scope, access: Access) -> Value:
        return self.f.ptr(self.places[access.operand].pointer, scope.expr(access.base) * F32_BYTES)

    def _copy(
        self,
        scope: Scope,
        b: Access,
        tile: Tile,
        target: Value,
        columns: Expr,
        depth: Expr,
        panel_bytes: Expr,
    ) -> None:
        """Copies all panels of an operand; panel_bytes apart."""
        f, start = self.f, self._start(scope, b)
        total, step, stride = scope.expr(columns), _bytes(scope, b.step), _bytes(scope, b.rows)
        depth_value, apart = scope.expr(depth), scope.expr(panel_bytes)
        with f.loop(0, scope.expr(ceildiv(columns, tile.columns))) as number:
            first = number * tile.columns
            source = f.ptr(start, first * stride)
            place = f.ptr(target, number * apart)
            last = total - 1 - first
            if b.rows == 1:
                exact = columns.is_const and columns.value % tile.columns == 0
                masks = () if exact else self._masks(total, first, tile)
                pack_rows(f, tile, place, source, depth_value, step, masks)
            elif b.step == 1:
                pack_columns(f, tile, place, source, depth_value, stride, last)
            else:
                pack_any(f, tile, place, source, depth_value, (step, stride), last)

    def _masks(self, total: Value, first: Value, tile: Tile) -> tuple[Value | None, ...]:
        return tuple(
            self.f.mask_below(total - first - v * tile.lanes, tile.lanes) for v in range(tile.vectors)
        )

    def _tile(self, scope: Scope, cut: Heights, tile: Value, v: Panel) -> None:
        """All keys for one tile of queries."""
        f, tiles = self.f, self.tiles
        first, height = cut.first_row(f, tile), cut.height(f, tile)
        with f.loop(0, height) as r:
            f.store(f.const("f32", MINUS_INFINITY), self.largest, r * F32_BYTES)
            f.store(f.const("f32", 0.0), self.total, r * F32_BYTES)
            if not self.one_block:
                self._clear_row(r)
        limit = self._limit(scope, first + height - 1)
        with f.loop(0, limit, tiles.keys, keep=not self.one_block) as start:
            count = f.imin(limit - start, tiles.keys)
            self._scores(scope.child(), first, height, start, count)
            self._weights(scope.child(), first, height, start, count)
            self._values(scope.child(), height, start, count, v)
        if self.one_block:
            with f.if_(limit.le(0)), f.loop(0, height) as r:
                self._clear_row(r)
        self._finish(scope.child(), first, height)

    def _clear_row(self, r: Value) -> None:
        zero = self.f.const(Type("f32", self.tiles.values.lanes), 0.0)
        width = self.tiles.out_bytes(self.problem)
        with self.f.loop(0, width, zero.type.nbytes) as where:
            self.f.store(zero, self.results, r * width + where)

    def _limit(self, scope: Scope, last_row: Value) -> Value:
        """The number of keys that some query of a tile sees."""
        total = scope.expr(self.problem.num_keys)
        if self.problem.seen is None:
            return total
        inner = scope.child()
        inner.bind(self.problem.rows.sym.name, last_row)
        return self.f.imax(self.f.imin(inner.expr(self.problem.seen), total), 0)

    def _scores(self, scope: Scope, first: Value, height: Value, start: Value, count: Value) -> None:
        """Products of the tile's queries and a block of keys."""
        f, problem, tiles = self.f, self.problem, self.tiles
        q = problem.q
        queries = f.ptr(self._start(scope, q), first * _bytes(scope, q.rows))
        a = Rows(queries, _bytes(scope, q.rows), _bytes(scope, q.step))
        columns, panel_bytes = tiles.scores.columns, tiles.key_panel_bytes(problem)
        with f.loop(0, (count + columns - 1) // columns) as panel:
            keys = f.ptr(self.keys, (start // columns + panel) * panel_bytes)
            out = Sums(f.ptr(self.scores, panel * tiles.scores.row_bytes), tiles.row_bytes)
            b = Panel(keys, tiles.scores.row_bytes)
            self.score_functions.call(height, problem.head_size, a, b, out)

    def _weights(self, scope: Scope, first: Value, height: Value, start: Value, count: Value) -> None:
        """Scores into weights relative to the row's new maximum, which scales what was summed before."""
        f, lanes = self.f, self.tiles.scores.lanes
        vectors = (count + lanes - 1) // lanes
        with f.loop(0, height) as r:
            row = f.ptr(self.scores, r * self.tiles.row_bytes)
            found = self._masked_scores(scope.child(), row, first + r, start, count, vectors)
            before = f.load("f32", self.largest, r * F32_BYTES)
            largest = f.fmax_fast(before, found)
            nothing = largest.eq(MINUS_INFINITY)
            shift = f.select(nothing, f.const("f32", 0.0), largest)
            factor = _weight(before - shift)
            added = self._exponentials(row, shift, vectors)
            total = f.fma(f.load("f32", self.total, r * F32_BYTES), factor, added)
            f.store(total, self.total, r * F32_BYTES)
            f.store(largest, self.largest, r * F32_BYTES)
            f.store(factor, self.factor, r * F32_BYTES)

    def _masked_scores(
        self, scope: Scope, row: Value, query: Value, start: Value, count: Value, vectors: Value
    ) -> Value:
        """Stores the row's final scores, minus infinity beyond the last key; returns their maximum."""
        f, lanes, problem = self.f, self.tiles.scores.lanes, self.problem
        kind = Type("f32", lanes)
        scope.bind(problem.rows.sym.name, query)
        scope.bind(ROW, query)
        whole = count // lanes
        best = Var(f, kind, MINUS_INFINITY)

        def vector(number: Value, mask: Value | None) -> None:
            inner = scope.child()
            inner.bind(KEY, start + number * lanes)
            place = f.ptr(row, number * kind.nbytes)
            acc = f.load(kind, place)
            emitter = ScalarEmitter(f, self.places, inner, vector=KEY, lanes=lanes, mask=mask, acc=acc)
            score = emitter.fit(emitter.emit(problem.score), kind)
            if mask is not None:
                score = f.select(mask, score, f.const(kind, MINUS_INFINITY))
            f.store(score, place)
            # a NaN may get lost here: its weight is NaN, and so is the sum
            best.set(f.fmax_fast(best.value, score))

        with f.loop(0, whole) as number:
            vector(number, None)
        with f.if_(whole.lt(vectors)):
            vector(whole, f.mask_below(count - whole * lanes, lanes))
        return f.reduce(best.value, f.fmax_fast)

    def _exponentials(self, row: Value, shift: Value, vectors: Value) -> Value:
        """Stores exp(score - shift) and returns the sum."""
        f = self.f
        kind = Type("f32", self.tiles.scores.lanes)
        sums = Var(f, kind, 0.0)
        with f.loop(0, vectors) as number:
            place = f.ptr(row, number * kind.nbytes)
            weight = _weight(f.load(kind, place) - shift)
            f.store(weight, place)
            sums.set(sums.value + weight)
        return f.reduce_sum(sums.value)

    def _values(self, scope: Scope, height: Value, start: Value, count: Value, v: Panel) -> None:
        """Adds the weights' products with a block of values to the results."""
        f, problem, tiles = self.f, self.problem, self.tiles
        target = self.results if self.one_block else self.increments
        width = tiles.out_bytes(problem)
        apart: Value | int = tiles.values.row_bytes
        if tiles.copy_values:
            apart = scope.expr(tiles.value_panel_bytes(problem))
        exact = problem.value_size % tiles.values.columns == 0
        a = Rows(self.scores, tiles.row_bytes)
        with f.loop(0, tiles.value_panels(problem)) as panel:
            masks: tuple[Value | None, ...] = ()
            if not exact and not tiles.copy_values:
                total = f.const("i64", problem.value_size)
                masks = self._masks(total, panel * tiles.values.columns, tiles.values)
            values = f.ptr(f.ptr(v.pointer, start * v.step), panel * apart)
            out = Sums(f.ptr(target, panel * tiles.values.row_bytes), width)
            self.value_functions.call(height, count, a, Panel(values, v.step, masks), out)
        if not self.one_block:
            self._accumulate(height, width)

    def _accumulate(self, height: Value, width: int) -> None:
        f = self.f
        kind = Type("f32", self.tiles.values.lanes)
        with f.loop(0, height) as r:
            factor = f.broadcast(f.load("f32", self.factor, r * F32_BYTES), kind.lanes)
            with f.loop(0, width, kind.nbytes) as where:
                at = r * width + where
                summed = f.fma(f.load(kind, self.results, at), factor, f.load(kind, self.increments, at))
                f.store(summed, self.results, at)

    def _finish(self, scope: Scope, first: Value, height: Value) -> None:
        """Divides by the sum of weights, 0 for rows that saw no key: they stay zero, or become NaN."""
        f, problem, tiles = self.f, self.problem, self.tiles
        tile, width = tiles.values, tiles.out_bytes(problem)
        kind = Type("f32", tile.lanes)
        with f.loop(0, tiles.value_panels(problem)) as panel:
            column = panel * tile.columns
            inner = scope.child()
            masks = self._masks(f.const("i64", problem.value_size), column, tile)
            if problem.value_size % tile.columns == 0:
                masks = (None,) * tile.vectors
            blocks = problem.epilogue.begin(f, inner, self.places, column, masks, tile.lanes)
            with f.loop(0, height) as r:
                largest = f.load("f32", self.largest, r * F32_BYTES)
                total = f.load("f32", self.total, r * F32_BYTES)
                blind = largest.eq(MINUS_INFINITY)
                if problem.blind_is_nan:
                    blind = scope.expr(problem.num_keys).eq(0)
                divisor = f.select(blind, f.const("f32", 1.0), total)
                inverse = f.broadcast(f.const("f32", 1.0) / divisor, tile.lanes)
                positions = inner.child()
                positions.bind(problem.rows.sym.name, first + r)
                where = r * width + panel * tile.row_bytes
                for v, block in enumerate(blocks):
                    value = f.load(kind, self.results, where + v * kind.nbytes) * inverse
                    block.finish(first + r, value, None if problem.epilogue.merged else positions)


def _weight(x: Value) -> Value:
    """e^x, 0 where that is below the normal numbers: a denormal result costs 400 cycles, and masked keys are
    many.

    Weights are relative to 1, so that what is lost is beyond the sum's own rounding.
    """
    f = x.f
    power = math.exp(f.fmax(x, _LEAST_EXPONENT))
    return f.select(x.lt(_LEAST_EXPONENT), f.const(x.type, 0.0), power)


def _bytes(scope: Scope, stride: Expr) -> Value | int:
    return stride.value * F32_BYTES if stride.is_const else scope.expr(stride) * F32_BYTES
