"""conv_winograd: 3x3 convolution of stride 1 as F(4x4, 3x3), with a quarter of the direct kernel's products.

Output tiles of 4x4 are taken in blocks. A thread transforms a block's inputs, multiplies them with the
transformed weights, and transforms the products back, all in its own workspace. It needs no halo: a tile that
meets the padding reads a copy of its window.

Error: the transforms' constants amplify rounding. The largest error was measured at 4.1 times sqrt(K) * u *
(largest sum|a||b| in a tile), on sparse inputs of 16 channels (uniform data: 1.9; 256 channels: 1.3): c is 8.
"""

from __future__ import annotations

from dataclasses import dataclass

from hagane.codegen.llvm import Module, Value
from hagane.core.symbolic import ceildiv, const
from hagane.core.targets import CpuTarget
from hagane.ir.region import Region
from hagane.kernels.llvm.conv_direct_space import most_columns, tile_cycles
from hagane.kernels.llvm.conv_problem import ConvProblem, conv_problem, near_equal, unmisched
from hagane.kernels.llvm.conv_tile import F32_BYTES, Channels, Tap, Tile
from hagane.kernels.llvm.conv_writeback import Writeback, epilogue_arguments, epilogue_is_simple
from hagane.kernels.llvm.frame import Frame, dim_symbols
from hagane.kernels.llvm.halo import zero_halo
from hagane.kernels.llvm.winograd_transforms import OUTPUTS, WINDOW, transform_input, transform_output
from hagane.kernels.packing import packing_of
from hagane.kernels.tactic import Argument, Input, KernelLaunch, Layouts, Lowering, Params

POINTS = WINDOW * WINDOW
# Below it too much of the 4x4 tiles is thrown away, and the transformed weights, 4 times the plain ones, are
# read for too few outputs: on 7x7 the direct kernel wins.
_LEAST_EXTENT = 10
_TRANSFORM_CYCLES = 130  # of one window of one vector of channels
CACHE_BYTES = 1 << 20  # what stays in the second-level cache
# Sizes of a block of transformed input to try: beside the weights in that cache, alone, or all of a layer
# whose weights are so large that they had better be read once.
_BLOCK_BYTES = (1 << 18, 1 << 20, 1 << 22)

# measured with weights and inputs of normal distribution: 3 to 4 times the error of direct sums
ERROR_FACTOR = 4.0


class ConvWinograd:
    """See the module."""

    name = "conv_winograd"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        problem = conv_problem(region, target)
        if problem is None or problem.group != 1 or problem.kernel != (3, 3) or problem.rank != 4:
            return False
        if problem.strides != (1, 1) or problem.dilations != (1, 1):
            return False
        if min(problem.in_channels, problem.out_channels) < problem.lanes:
            return False
        extents = (problem.height[1], problem.width[1])
        if any(e.is_const and e.value < _LEAST_EXTENT for e in extents):
            return False
        return epilogue_is_simple(problem)

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        problem = _problem(region, target)
        return problem.layouts(problem.blocked())

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        return _space(_problem(region, target), target)

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        problem = _problem(region, target)
        lanes = problem.lanes
        c, m = problem.in_blocks, problem.out_blocks
        weight = packing_of(problem.weight).pad_to(m * lanes, c * lanes, 3, 3).winograd_f43()
        packed = weight.reshape(m, lanes, c, lanes, POINTS).transpose(0, 4, 2, 3, 1)
        arguments: list[Argument] = [Input(problem.x_position), packed.finish()]
        if problem.bias is not None:
            arguments.append(packing_of(problem.bias).pad_to(m * lanes).finish())
        arguments += epilogue_arguments(problem)
        dims = dim_symbols([*region.operands, *region.outputs])
        sizes = _Sizes.of(problem, params)

        def emit(module: Module, name: str) -> None:
            frame = Frame(module, name, len(arguments), dims)
            _Kernel(frame, problem, sizes).write()

        slug = f"winograd_{problem.in_channels}_{problem.out_channels}"
        return Lowering(
            (KernelLaunch(slug, emit, tuple(arguments), dims, unmisched=unmisched(target)),),
            scratch_bytes=const(sizes.total),
            error_factor=ERROR_FACTOR,
            spreads_nan=True,
        )


def _problem(region: Region, target: CpuTarget) -> ConvProblem:
    problem = conv_problem(region, target)
    assert problem is not None, "supports() comes first"
    return problem


def _space(problem: ConvProblem, target: CpuTarget) -> list[Params]:
    """Register tiles (rows of tiles by vectors) and how many of those make a block, the best guess first."""
    per_image = [-(-e.value // OUTPUTS) if e.is_const else 16 for e in (problem.height[1], problem.width[1])]
    num_tiles = per_image[0] * per_image[1] * (problem.batch.value if problem.batch.is_const else 1)
    depth = problem.in_blocks * problem.lanes
    weights = weight_bytes(problem)
    choices: list[tuple[float, int, int, int]] = []
    for vectors in range(1, min(problem.out_blocks, 4) + 1):
        groups = near_equal(problem.out_blocks, vectors)
        for rows in range(4, most_columns(vectors, target) + 1):
            parts = -(-num_tiles // rows)
            # beside the products: the start of each loop, and storing the sums
            steps = sum(
                n * (depth * tile_cycles(rows, g, depth, problem.lanes) + rows * g + 20) for g, n in groups
            )
            kinds = 1.03 if len(groups) > 1 else 1.0  # twice the code for the same speed
            row_bytes = POINTS * depth * F32_BYTES * rows
            for repeats in {_fitting(parts, room // row_bytes) for room in _BLOCK_BYTES}:
                blocks = -(-parts // repeats)
                # each block reads all weights, each group a block's inputs; half of it while computing
                read = blocks * weights / 8 if weights > CACHE_BYTES else 0.0
                if row_bytes * repeats > _BLOCK_BYTES[0]:
                    speed = 64 if row_bytes * repeats <= CACHE_BYTES else 16
                    read += parts * row_bytes * sum(n for _, n in groups) / speed
                inputs = blocks * rows * repeats * problem.in_blocks * _TRANSFORM_CYCLES * _imbalance(blocks)
                products = (parts * POINTS * steps + read / 2) * _imbalance(
                    blocks * sum(n for _, n in groups)
                )
                choices.append((kinds * (inputs + products), vectors, rows, repeats))
    choices.sort()
    return [{"vectors": v, "rows": r, "repeats": n} for _, v, r, n in choices[:6]]


def _imbalance(units: int) -> float:
    """How much longer the slowest thread works than a perfect split would, for 2 and for 4 threads."""
    return sum(-(-units // n) * n / units for n in (2, 4)) / 2


def _fitting(parts: int, most: int) -> int:
    """How many of `parts` rows of tiles make a block of at most `most`, such that blocks are near-equal."""
    return near_equal(parts, max(most, 1))[0][0]


def weight_bytes(problem: ConvProblem) -> int:
    """Bytes of the transformed weights."""
    return POINTS * problem.in_blocks * problem.out_blocks * problem.lanes**2 * F32_BYTES


@dataclass(frozen=True)
class _Sizes:
    """The workspace. tiles: of a block; *_point: bytes from one of the 36 points to the next."""

    rows: int
    vectors: int
    tiles: int
    pixel: int
    input_point: int
    output_point: int

    @staticmethod
    def of(problem: ConvProblem, params: Params) -> _Sizes:
        rows, vectors = int(params["rows"]), int(params["vectors"])
        tiles, pixel = rows * int(params["repeats"]), problem.lanes * F32_BYTES

        def spread(vectors: int) -> int:
            # an odd number of vectors, so that the 36 points of a tile don't all fall into one cache set
            return (vectors | 1) * pixel

        return _Sizes(rows, vectors, tiles, pixel, spread(problem.in_blocks * tiles), spread(vectors * tiles))

    @property
    def outputs(self) -> int:
        """Where the products lie in the workspace, behind the inputs."""
        return POINTS * self.input_point

    @property
    def window(self) -> int:
        """Where the copy of a window at the border lies."""
        return self.outputs + POINTS * self.output_point

    @property
    def total(self) -> int:
        return self.window + POINTS * self.pixel


class _Kernel:
    """Emits one kernel."""

    def __init__(self, frame: Frame, problem: ConvProblem, sizes: _Sizes) -> None:
        self.frame, self.f, self.problem, self.sizes = frame, frame.f, problem, sizes
        f, scope = frame.f, frame.scope
        pointers = list(frame.pointers)
        self.x, self.w = pointers[:2]
        self.bias = pointers[2] if problem.bias is not None else None
        self.writeback = Writeback(frame, problem, pointers[2 + (self.bias is not None) :])
        layout = problem.x.layout
        assert layout is not None
        self.row_halo, self.column_halo = layout.halo_of(2), layout.halo_of(3)
        width = problem.width[0] + sum(self.column_halo)
        self.row_bytes = scope.expr(width * sizes.pixel)
        self.plane_bytes = scope.expr(width * (problem.height[0] + sum(self.row_halo)) * sizes.pixel)
        self.in_height, self.in_width = scope.expr(problem.height[0]), scope.expr(problem.width[0])
        self.out_height, self.out_width = scope.expr(problem.height[1]), scope.expr(problem.width[1])
        rows, columns = ceildiv(problem.height[1], OUTPUTS), ceildiv(problem.width[1], OUTPUTS)
        self.tile_columns, self.per_image = scope.expr(columns), scope.expr(rows * columns)
        self.num_tiles = scope.expr(problem.batch * rows * columns)
        self.vector = f"{problem.lanes}xf32"
        self.stash = f.stack(POINTS * sizes.pixel)
        self.zeros = f.stack(sizes.pixel)
        f.store(f.const(self.vector, 0.0), self.zeros)
        self.inputs = frame.scratch
        self.outputs = f.ptr(frame.scratch, sizes.outputs)
        self.groups = near_equal(problem.out_blocks, sizes.vectors)
        # weights that come from afar are asked for while the point before is computed: 1.2 times as fast
        self.prefetch = weight_bytes(problem) > CACHE_BYTES

    def write(self) -> None:
        for place in self.writeback.outputs:
            zero_halo(self.frame, place)
        f, tiles = self.f, self.sizes.tiles
        num_groups = sum(count for _, count in self.groups)
        num_blocks = (self.num_tiles + (tiles - 1)) // tiles
        lo, hi = self.frame.share(num_blocks * num_groups)
        with f.if_(lo.lt(hi)), f.loop_nonempty(lo // num_groups, (hi - 1) // num_groups + 1) as block:
            first, last = f.imax(lo - block * num_groups, 0), f.imin(hi - block * num_groups, num_groups)
            start = block * tiles
            valid = f.imin(self.num_tiles - start, tiles)
            parts = (valid + (self.sizes.rows - 1)) // self.sizes.rows
            self._transform_inputs(start, parts)
            group_start = block_start = 0
            for vectors, count in self.groups:
                group_lo, group_hi = f.imax(first, group_start), f.imin(last, group_start + count)
                with f.loop(group_lo, group_hi) as group:
                    out_block = (group - group_start) * vectors + block_start
                    self._multiply(out_block, vectors, parts)
                    self._transform_outputs(out_block, vectors, start, valid)
                group_start, block_start = group_start + count, block_start + vectors * count

    def _place(self, tile: Value) -> tuple[Value, Value, Value]:
        """Image, first output row and first output column of a tile."""
        image, rest = tile // self.per_image, tile % self.per_image
        return image, rest // self.tile_columns * OUTPUTS, rest % self.tile_columns * OUTPUTS

    def _transform_inputs(self, start: Value, parts: Value) -> None:
        """Fills the workspace with a block's transformed windows; past the last tile it repeats that one."""
        f, problem = self.f, self.problem
        with f.loop_nonempty(0, parts * self.sizes.rows) as number:
            image, y, x = self._place(f.imin(start + number, self.num_tiles - 1))
            top, left = y - problem.pads_begin[0], x - problem.pads_begin[1]
            inner = (top + self.row_halo[0]).ge(0) & (left + self.column_halo[0]).ge(0)
            inner = inner & (top + WINDOW).le(self.in_height + self.row_halo[1])
            inner = inner & (left + WINDOW).le(self.in_width + self.column_halo[1])
            place = (top + self.row_halo[0]) * self.row_bytes + (
                left + self.column_halo[0]
            ) * self.sizes.pixel
            source = f.ptr(self.x, image * problem.in_blocks * self.plane_bytes + place)
            copy = f.ptr(self.frame.scratch, self.sizes.window)
            target = f.ptr(self.inputs, number * self.sizes.pixel)
            stride = f.select(inner, self.row_bytes, WINDOW * self.sizes.pixel)
            with f.loop(0, problem.in_blocks) as channel:
                window = f.ptr(source, channel * self.plane_bytes)
                with f.if_(~inner):
                    self._copy_window(window, copy, top, left)
                block_bytes = self.sizes.tiles * self.sizes.pixel
                self._transform_window(
                    f.select(inner, window, copy), stride, f.ptr(target, channel * block_bytes)
                )

    def _copy_window(self, window: Value, copy: Value, top: Value, left: Value) -> None:
        """Copies a window of the input, with zeros for what lies outside of it."""
        f, pixel = self.f, self.sizes.pixel
        with f.loop(0, WINDOW) as i:
            row_inside = (top + i).ult(self.in_height)
            line, target = f.ptr(window, i * self.row_bytes), f.ptr(copy, i * (WINDOW * pixel))
            for j in range(WINDOW):
                inside = row_inside & (left + j).ult(self.in_width)
                place = f.select(inside, f.ptr(line, j * pixel), self.zeros)
                f.store(f.load(self.vector, place), target, j * pixel)

    def _transform_window(self, window: Value, stride: Value, target: Value) -> None:
        """B^T d B of one window and one block of channels."""
        f, pixel = self.f, self.sizes.pixel
        rows = [f.ptr(window, stride * i) for i in range(WINDOW)]
        for j in range(WINDOW):
            column = transform_input(f, [f.load(self.vector, row, j * pixel) for row in rows])
            for i in range(WINDOW):
                f.store(column[i], self.stash, (i * WINDOW + j) * pixel)
        for i in range(WINDOW):
            line = [f.load(self.vector, self.stash, (i * WINDOW + j) * pixel) for j in range(WINDOW)]
            for j, value in enumerate(transform_input(f, line)):
                f.store(value, target, (i * WINDOW + j) * self.sizes.input_point)

    def _multiply(self, out_block: Value, vectors: int, parts: Value) -> None:
        """The products of a block of tiles with the weights of some output blocks, at all points."""
        f, problem, sizes = self.f, self.problem, self.sizes
        step_bytes = problem.lanes * sizes.pixel
        point_bytes = problem.in_blocks * step_bytes
        block_bytes = sizes.tiles * sizes.pixel
        channels = Channels(
            problem.in_channels,
            problem.lanes,
            problem.lanes if problem.in_channels % problem.lanes == 0 else 1,
            block_bytes,
            step_bytes,
            POINTS * point_bytes,
            prefetch_bytes=point_bytes if self.prefetch else 0,
        )
        weights = f.ptr(self.w, out_block * (POINTS * point_bytes))
        zero = f.const(self.vector, 0.0)
        with f.loop(0, POINTS) as point, f.loop_nonempty(0, parts) as part:
            row = part * (sizes.rows * sizes.pixel)
            source = f.ptr(self.inputs, point * sizes.input_point + row)
            target = f.ptr(self.outputs, point * sizes.output_point + row)
            tile = Tile(
                f, [p * sizes.pixel for p in range(sizes.rows)], vectors, problem.lanes, [zero] * vectors
            )

            def taps(x: Value, w: Value, count: Value, tile: Tile = tile) -> None:
                tile.add_tap(x, w, count, Tap(0, 0), channels)

            tile.accumulate(source, f.ptr(weights, point * point_bytes), channels, taps)
            for p in range(sizes.rows):
                for v in range(vectors):
                    f.store(tile.sums[p][v].value, target, v * block_bytes + p * sizes.pixel)

    def _transform_outputs(self, out_block: Value, vectors: int, start: Value, valid: Value) -> None:
        f, sizes = self.f, self.sizes
        with f.loop_nonempty(0, valid) as number, f.loop(0, vectors) as vector:
            block = out_block + vector
            source = f.ptr(self.outputs, vector * (sizes.tiles * sizes.pixel) + number * sizes.pixel)
            for j in range(WINDOW):
                points = [
                    f.load(self.vector, source, (i * WINDOW + j) * sizes.output_point) for i in range(WINDOW)
                ]
                for i, value in enumerate(transform_output(f, points)):
                    f.store(value, self.stash, (i * WINDOW + j) * sizes.pixel)
            self._store_outputs(block, start + number)

    def _store_outputs(self, block: Value, number: Value) -> None:
        """The second half of A^T m A, and the tile's outputs through the epilogue."""
        f = self.f
        bias = f.const(self.vector, 0.0)
        if self.bias is not None:
            bias = f.load(self.vector, self.bias, block * self.sizes.pixel)
        image, y, x = self._place(number)
        rows, columns = f.imin(self.out_height - y, OUTPUTS), f.imin(self.out_width - x, OUTPUTS)
        uncut = rows.eq(OUTPUTS) & columns.eq(OUTPUTS)
        with f.if_else(f.const("i1", 1) if self._always_whole() else uncut) as (whole, cut):
            with whole:
                writer = self.writeback.tile(image, block, y, x)
                for i in range(OUTPUTS):
                    for j, value in enumerate(self._output_row(f.const("i64", i))):
                        writer.store(value + bias, 0, i, j)
            with cut, f.loop_nonempty(0, rows) as row:
                values = self._output_row(row)
                for j, value in enumerate(values):
                    with f.if_(columns.gt(j)):
                        self.writeback.tile(image, block, y + row, x + j).store(value + bias)

    def _always_whole(self) -> bool:
        """True if no tile sticks out of the output, whatever its extents."""
        return all(e.divisor() % OUTPUTS == 0 for e in (self.problem.height[1], self.problem.width[1]))

    def _output_row(self, i: Value) -> list[Value]:
        f, pixel = self.f, self.sizes.pixel
        line = f.ptr(self.stash, i * (WINDOW * pixel))
        return transform_output(f, [f.load(self.vector, line, j * pixel) for j in range(WINDOW)])


TACTIC = ConvWinograd()
