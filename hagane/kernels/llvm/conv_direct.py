"""conv_direct: convolution over blocked channels, accumulated in register tiles of columns by output vectors.

One kernel covers any strides, dilations and padding. Rows of the padding are skipped by the bounds of the
loop over kernel rows. Columns of the padding are skipped where a tile is a whole row; elsewhere the few
pixels that may meet them have addresses of their own, of zeros where need be. Only wide padding needs a halo.
"""

from __future__ import annotations

from hagane.codegen.llvm import Module, Value
from hagane.core.symbolic import const
from hagane.core.targets import CpuTarget
from hagane.ir.region import Region
from hagane.kernels.llvm.conv_columns import Columns, cut_columns
from hagane.kernels.llvm.conv_direct_space import DirectParams, direct_space, whole_rows
from hagane.kernels.llvm.conv_groups import merge_groups, merged_weight
from hagane.kernels.llvm.conv_narrow import narrow_problem
from hagane.kernels.llvm.conv_problem import ConvProblem, conv_problem, near_equal, unmisched
from hagane.kernels.llvm.conv_tile import F32_BYTES, Channels, Tap, Tile, kernel_rows, visit_group
from hagane.kernels.llvm.conv_writeback import Writeback, epilogue_arguments, epilogue_is_simple
from hagane.kernels.llvm.frame import Frame, dim_symbols
from hagane.kernels.llvm.halo import zero_halo
from hagane.kernels.packing import Packing, packing_of
from hagane.kernels.tactic import Argument, Input, KernelLaunch, Layouts, Lowering, Params

_MOST_GUARDED = 4  # columns of a tile with addresses of their own: more don't fit the address registers


class ConvDirect:
    """See the module."""

    name = "conv_direct"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        problem = conv_problem(region, target)
        if problem is None or not epilogue_is_simple(problem) or narrow_problem(region, target) is not None:
            return False
        return merge_groups(problem) is not None

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        problem = _problem(region, target)
        columns = problem.columns_needed()
        if whole_rows(problem, target) or sum(_num_guarded(problem)) <= _MOST_GUARDED:
            columns = (0, 0)
        return problem.layouts(problem.blocked(columns=columns))

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        return direct_space(_problem(region, target), target)

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        problem = _problem(region, target)
        chosen = DirectParams.read(params)
        arguments: list[Argument] = [Input(problem.x_position), pack_weight(problem).finish()]
        if problem.bias is not None:
            padded = problem.out_blocks * problem.lanes
            arguments.append(packing_of(problem.bias).pad_to(padded).finish())
        arguments += epilogue_arguments(problem)
        dims = dim_symbols([*region.operands, *region.outputs])

        def emit(module: Module, name: str) -> None:
            frame = Frame(module, name, len(arguments), dims)
            _Kernel(frame, problem, chosen).write()

        kernel = "x".join(map(str, problem.kernel))
        slug = f"conv{kernel}_{problem.in_channels}_{problem.out_channels}"
        return Lowering((KernelLaunch(slug, emit, tuple(arguments), dims, unmisched=unmisched(target)),))


def _problem(region: Region, target: CpuTarget) -> ConvProblem:
    problem = conv_problem(region, target)
    merged = None if problem is None else merge_groups(problem)
    assert merged is not None, "supports() comes first"
    return merged


def _num_guarded(problem: ConvProblem) -> tuple[int, int]:
    """How many of a tile's first and last columns may have windows that reach into the padding."""
    before, after = problem.columns_needed()
    return -(-before // problem.strides[1]), -(-after // problem.strides[1])


def pack_weight(problem: ConvProblem) -> Packing:
    """w[M, C/group, R, S] as [M/lanes][C/group/lanes][R][S][lanes of C][lanes of M], filled up with zeros."""
    lanes, (rows, columns) = problem.lanes, problem.kernel
    channels = problem.in_channels // problem.group
    m, c = problem.out_blocks, -(-channels // lanes)
    full = merged_weight(problem).reshape(problem.out_channels, channels, rows, columns)
    full = full.pad_to(m * lanes, c * lanes, rows, columns)
    return full.reshape(m, lanes, c, lanes, rows, columns).transpose(0, 2, 4, 5, 3, 1)


class _Kernel:
    """Emits one kernel."""

    def __init__(self, frame: Frame, problem: ConvProblem, params: DirectParams) -> None:
        self.frame, self.f, self.problem, self.params = frame, frame.f, problem, params
        pointers = list(frame.pointers)
        self.x, self.w = pointers[:2]
        self.bias = pointers[2] if problem.bias is not None else None
        self.writeback = Writeback(frame, problem, pointers[2 + (self.bias is not None) :])
        layout, shape = problem.x.layout, problem.x.shape
        assert layout is not None
        self.pixel_bytes = problem.lanes * F32_BYTES
        halo = [layout.halo_of(a) for a in range(problem.rank)]
        self.row_halo, self.column_halo = (halo[2] if problem.rank == 4 else (0, 0)), halo[-1]
        full = problem.width[0] + sum(self.column_halo)
        self.row_bytes = frame.scope.expr(full * self.pixel_bytes)
        self.block_bytes = frame.scope.expr(
            full * (problem.height[0] + sum(self.row_halo)) * self.pixel_bytes
        )
        self.in_height = frame.scope.expr(problem.height[0])
        self.in_width = frame.scope.expr(problem.width[0])
        self.out_width = frame.scope.expr(problem.width[1])
        self.image_blocks = layout.outer_extent(shape, 1).value
        before, after = problem.columns_needed()
        in_halo = self.column_halo[0] >= before and self.column_halo[1] >= after
        self.num_guarded = (0, 0) if in_halo else _num_guarded(problem)
        self.zeros = self.f.stack(self.pixel_bytes)
        self.f.store(self.f.const(f"{problem.lanes}xf32", 0.0), self.zeros)
        self.flat = params.flat and self.row_halo == self.column_halo == (0, 0)
        self.groups = self._make_groups()

    def _make_groups(self) -> list[tuple[int, int]]:
        """(vectors, count) of groups of output blocks; none straddles two groups of the convolution."""
        problem = self.problem
        per_group = problem.out_blocks // problem.group
        parts = near_equal(per_group, self.params.vectors)
        if problem.group == 1:
            return parts
        if len(parts) > 1:
            vectors = max(d for d in range(1, self.params.vectors + 1) if per_group % d == 0)
            parts = [(vectors, per_group // vectors)]
        return [(parts[0][0], parts[0][1] * problem.group)]

    def write(self) -> None:
        for place in self.writeback.outputs:
            zero_halo(self.frame, place)
        problem, scope = self.problem, self.frame.scope
        height, width = problem.height[1], problem.width[1]
        if self.flat:
            height, width = const(1), height * width
        length = scope.expr(width)
        columns = cut_columns(self.f, length, self.params.columns, width.divisor(), long=self.flat)
        self._walk(scope.expr(height), columns)

    def _walk(self, height: Value, columns: Columns) -> None:
        """This thread's part of the tiles: those of all (image, group, row), or (image, row, group).

        Where the plane is one row, its tiles take the place of rows in the second order.
        """
        f = self.f
        tiles_are_rows = self.flat and self.params.groups_inside
        per_row = f.const("i64", 1) if tiles_are_rows else columns.count
        if tiles_are_rows:
            height = columns.count
        num_groups = sum(count for _, count in self.groups)
        outer = self.frame.scope.expr(self.problem.batch) * height * num_groups
        lo, hi = self.frame.share(outer * per_row)
        with f.if_(lo.lt(hi)), f.loop_nonempty(lo // per_row, (hi - 1) // per_row + 1) as row_number:
            start = row_number * per_row
            first, last = f.imax(lo - start, 0), f.imin(hi - start, per_row)
            if self.params.groups_inside:
                rest, group = row_number // num_groups, row_number % num_groups
                image, y = rest // height, rest % height
            else:
                rest, y = row_number // height, row_number % height
                image, group = rest // num_groups, rest % num_groups
            if tiles_are_rows:
                first, last, y = y, y + 1, f.const("i64", 0)

            def visit(vectors: int, block: Value) -> None:
                columns.visit(first, last, lambda size, x: self._tile(vectors, size, image, block, y, x))

            visit_group(f, self.groups, group, visit)

    def _tile(self, vectors: int, size: int, image: Value, block: Value, y: Value, x: Value) -> None:
        """One register tile: `size` columns of row y from x on, `vectors` output blocks from `block` on."""
        f, problem = self.f, self.problem
        pixel = self.pixel_bytes
        zero = f.const(f"{problem.lanes}xf32", 0.0)
        init = [zero] * vectors
        if self.bias is not None:
            init = [f.load(zero.type, self.bias, block * pixel + v * pixel) for v in range(vectors)]
        tile = Tile(f, [i * problem.strides[1] * pixel for i in range(size)], vectors, problem.lanes, init)
        channels = self._channels()
        source, weights = self._sources(image, block, y, x)

        def taps(x_block: Value, w_block: Value, count: Value) -> None:
            self._taps(tile, (x_block, w_block, count), channels, y, x)

        tile.accumulate(source, weights, channels, taps)
        if self.flat and not self._output_is_flat():
            self._store_wrapped(tile, image, block, x)
            return
        writer = self.writeback.tile(image, block, y, x)
        for p in range(size):
            for v in range(vectors):
                writer.store(tile.sums[p][v].value, v, 0, p)

    def _channels(self) -> Channels:
        problem = self.problem
        count = problem.in_channels // problem.group
        block = problem.lanes * problem.lanes * F32_BYTES * problem.kernel[0] * problem.kernel[1]
        unroll = self.params.unroll
        while (count % problem.lanes) % unroll or problem.lanes % unroll:
            unroll -= 1
        stream = block * -(-count // problem.lanes)
        return Channels(count, problem.lanes, unroll, self.block_bytes, block, stream)

    def _sources(self, image: Value, block: Value, y: Value, x: Value) -> tuple[Value, Value]:
        """Addresses of the tile's first pixel at tap (0, 0) of its first input block, and of its weights."""
        f, problem = self.f, self.problem
        top = y * problem.strides[0] + (self.row_halo[0] - problem.pads_begin[0])
        left = x * problem.strides[1] + (self.column_halo[0] - problem.pads_begin[1])
        first_block = image * self.image_blocks
        if problem.group > 1:
            per_group = problem.in_blocks // problem.group
            first_block = first_block + block // (problem.out_blocks // problem.group) * per_group
        offset = first_block * self.block_bytes + top * self.row_bytes + left * self.pixel_bytes
        return f.ptr(self.x, offset), f.ptr(self.w, block * self._channels().vector_bytes)

    def _taps(
        self, tile: Tile, block: tuple[Value, Value, Value], channels: Channels, y: Value, x: Value
    ) -> None:
        """Adds all taps of one block of input channels: its address, that of its weights, its channels."""
        f, problem = self.f, self.problem
        source, weights, count = block
        tap_bytes = problem.lanes * problem.lanes * F32_BYTES
        lo, hi = kernel_rows(f, problem, y, self.in_height)
        with f.loop(lo, hi) as r:
            x_row = f.ptr(source, r * problem.dilations[0] * self.row_bytes)
            w_row = f.ptr(weights, r * (problem.kernel[1] * tap_bytes))
            step = problem.dilations[1] * self.pixel_bytes
            whole_row = self._skips_columns(tile)
            if whole_row:
                for s in range(problem.kernel[1]):
                    live = self._live_pixels(s, len(tile.pixels))
                    if live:
                        tile.add_tap(x_row, w_row, count, Tap(s * step, s * tap_bytes, live), channels)
            else:
                with f.loop(0, problem.kernel[1]) as column:
                    guarded = self._guarded(tile, x_row, x, column)
                    tap = Tap(column * step, column * tap_bytes, None, guarded)
                    tile.add_tap(x_row, w_row, count, tap, channels)

    def _guarded(self, tile: Tile, row: Value, x: Value, s: Value | int) -> dict[int, Value]:
        """Addresses at tap s of the pixels that may lie in the padding: those of zeros where they do."""
        f, problem = self.f, self.problem
        size = len(tile.pixels)
        before, after = self.num_guarded
        addresses: dict[int, Value] = {}
        for p in sorted({*range(min(before, size)), *range(max(size - after, 0), size)}):
            column = (x + p) * problem.strides[1] + s * problem.dilations[1] - problem.pads_begin[1]
            place = f.ptr(row, s * (problem.dilations[1] * self.pixel_bytes) + tile.pixels[p])
            addresses[p] = f.select(column.ult(self.in_width), place, self.zeros)
        return addresses

    def _skips_columns(self, tile: Tile) -> bool:
        width = self.problem.width
        return (
            width[0].is_const and width[1].is_const and width[1].value == len(tile.pixels) and not self.flat
        )

    def _live_pixels(self, s: int, size: int) -> tuple[int, ...]:
        """Pixels of a whole row whose tap s lies in the input."""
        problem = self.problem
        width = problem.width[0].value
        place = s * problem.dilations[1] - problem.pads_begin[1]
        return tuple(i for i in range(size) if 0 <= i * problem.strides[1] + place < width)

    def _output_is_flat(self) -> bool:
        """True if everything the epilogue touches goes on from row to row without a halo."""
        steps = [a.steps for a in self.writeback.accesses + self.writeback.stores]
        width = self.problem.width[1]
        return all(s is not None and s[1] == s[2] * width for s in steps)

    def _store_wrapped(self, tile: Tile, image: Value, block: Value, x: Value) -> None:
        """Stores a tile of the flattened plane whose outputs lie in rows with a halo."""
        f, width = self.f, self.out_width
        row, column = x // width, x % width
        for p in range(len(tile.pixels)):
            if p:
                wraps = (column + 1).ge(width)
                row, column = f.select(wraps, row + 1, row), f.select(wraps, f.const("i64", 0), column + 1)
            writer = self.writeback.tile(image, block, row, column)
            for v in range(tile.vectors):
                writer.store(tile.sums[p][v].value, v)


TACTIC = ConvDirect()
