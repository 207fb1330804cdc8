"""conv_stem: convolution of a plain tensor of few channels, such as a picture, into blocked channels.

Each thread copies the input rows of an output row into its workspace, with zeros at both ends, so that the
inner loops need no tests; they run over the kernel's columns as the other kernels do over channels.
"""

from __future__ import annotations

from hagane.codegen.llvm import Module, Value
from hagane.core.symbolic import Expr, ceildiv, emax, emin
from hagane.core.targets import CpuTarget
from hagane.ir.region import Region
from hagane.kernels.llvm.conv_columns import cut_columns
from hagane.kernels.llvm.conv_direct_space import MOST_DYNAMIC_COLUMNS, most_columns, tile_cycles
from hagane.kernels.llvm.conv_problem import ConvProblem, conv_problem, near_equal, unmisched
from hagane.kernels.llvm.conv_tile import F32_BYTES, Channels, Tap, Tile, kernel_rows
from hagane.kernels.llvm.conv_writeback import Writeback, epilogue_arguments, epilogue_is_simple
from hagane.kernels.llvm.frame import Frame, dim_symbols
from hagane.kernels.llvm.halo import zero_halo
from hagane.kernels.packing import packing_of
from hagane.kernels.tactic import Argument, Input, KernelLaunch, Layouts, Lowering, Params

# More channels, if another kernel computes them, had better stay in blocks: conv_direct skips unused lanes.
_MOST_CHANNELS = 4


# columns of a kernel that are summed by themselves: spectrograms have hundreds in a row
_PART_TAPS = 64


class ConvStem:
    """See the module."""

    name = "conv_stem"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        problem = conv_problem(region, target)
        if problem is None or problem.group != 1 or problem.in_channels >= problem.lanes:
            return False
        if problem.in_channels > _MOST_CHANNELS and problem.x.producer is not None:
            return False
        return epilogue_is_simple(problem)

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        return _problem(region, target).layouts(None)

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        problem = _problem(region, target)
        choices: list[tuple[float, int, int]] = []
        for vectors in range(1, min(problem.out_blocks, 6) + 1):
            columns = most_columns(vectors, target)
            if not problem.width[1].is_const:
                columns = min(columns, MOST_DYNAMIC_COLUMNS)
            extent = problem.width[1].value if problem.width[1].is_const else 4 * columns
            cycles = sum(
                groups * tiles * tile_cycles(size, group)
                for group, groups in near_equal(problem.out_blocks, vectors)
                for size, tiles in near_equal(extent, columns)
            )
            choices.append((cycles / extent, vectors, columns))
        return [{"vectors": v, "columns": c} for _, v, c in sorted(choices)[:3]]

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        problem = _problem(region, target)
        lanes, blocks = problem.lanes, problem.out_blocks
        taps = problem.in_channels * problem.kernel[0] * problem.kernel[1]
        weight = packing_of(problem.weight).reshape(problem.out_channels, taps).pad_to(blocks * lanes, taps)
        packed = weight.reshape(blocks, lanes, taps).transpose(0, 2, 1)
        arguments: list[Argument] = [Input(problem.x_position), packed.finish()]
        if problem.bias is not None:
            arguments.append(packing_of(problem.bias).pad_to(blocks * lanes).finish())
        arguments += epilogue_arguments(problem)
        dims = dim_symbols([*region.operands, *region.outputs])

        def emit(module: Module, name: str) -> None:
            frame = Frame(module, name, len(arguments), dims)
            _Kernel(frame, problem, int(params["vectors"]), int(params["columns"])).write()

        slug = f"stem{problem.kernel[0]}x{problem.kernel[1]}_{problem.in_channels}_{problem.out_channels}"
        scratch = row_elements(problem) * (problem.in_channels * problem.kernel[0] * F32_BYTES)
        return Lowering(
            (KernelLaunch(slug, emit, tuple(arguments), dims, unmisched=unmisched(target)),),
            scratch_bytes=scratch,
        )


def _problem(region: Region, target: CpuTarget) -> ConvProblem:
    problem = conv_problem(region, target)
    assert problem is not None, "supports() comes first"
    return problem


def row_elements(problem: ConvProblem) -> Expr:
    """Elements of an input row in the workspace: all that windows read, filled up to whole vectors."""
    reach = (problem.kernel[1] - 1) * problem.dilations[1] + 1
    return ceildiv((problem.width[1] - 1) * problem.strides[1] + reach, problem.lanes) * problem.lanes


class _Kernel:
    """Emits one kernel."""

    def __init__(self, frame: Frame, problem: ConvProblem, vectors: int, columns: int) -> None:
        self.frame, self.f, self.problem = frame, frame.f, problem
        scope = frame.scope
        pointers = list(frame.pointers)
        self.x, self.w = pointers[:2]
        self.bias = pointers[2] if problem.bias is not None else None
        self.writeback = Writeback(frame, problem, pointers[2 + (self.bias is not None) :])
        self.in_height = scope.expr(problem.height[0])
        self.out_height, self.out_width = scope.expr(problem.height[1]), scope.expr(problem.width[1])
        self.batch = scope.expr(problem.batch)
        self.in_row_bytes = scope.expr(problem.width[0] * F32_BYTES)
        self.in_plane_bytes = scope.expr(problem.height[0] * problem.width[0] * F32_BYTES)
        self.row_bytes = scope.expr(row_elements(problem) * F32_BYTES)
        self.vector_bytes = problem.lanes * F32_BYTES
        self.groups = near_equal(problem.out_blocks, vectors)
        self.columns = cut_columns(frame.f, self.out_width, columns, problem.width[1].divisor())

    def write(self) -> None:
        for place in self.writeback.outputs:
            zero_halo(self.frame, place)
        f = self.f
        lo, hi = self.frame.share(self.batch * self.out_height)
        with f.if_(lo.lt(hi)):
            scope = self.frame.scope.child()
            start = emax(self.problem.pads_begin[1], 0)
            end = emax(
                emin(self.problem.width[0] + self.problem.pads_begin[1], row_elements(self.problem)), start
            )
            first, last = scope.expr(start * F32_BYTES), scope.expr(end * F32_BYTES)
            self._zero_ends(first, last)
            with f.loop_nonempty(lo, hi) as row:
                image, y = row // self.out_height, row % self.out_height
                rows = kernel_rows(f, self.problem, y, self.in_height)
                self._copy_rows(image, y, rows, first, last)
                self._row(image, y, rows)

    def _zero_ends(self, first: Value, last: Value) -> None:
        """Zeroes what the copied rows leave out; that is the same for all rows."""
        f, problem = self.f, self.problem
        with f.loop(0, problem.in_channels * problem.kernel[0]) as line:
            place = f.ptr(self.frame.scratch, line * self.row_bytes)
            f.fill(place, 0, first)
            f.fill(f.ptr(place, last), 0, self.row_bytes - last)

    def _copy_rows(
        self, image: Value, y: Value, rows: tuple[Value | int, Value | int], first: Value, last: Value
    ) -> None:
        f, problem = self.f, self.problem
        shift = max(-problem.pads_begin[1], 0) * F32_BYTES
        top = y * problem.strides[0] - problem.pads_begin[0]
        with f.loop(0, problem.in_channels) as channel:
            plane = image * problem.in_channels + channel
            source = f.ptr(self.x, plane * self.in_plane_bytes + top * self.in_row_bytes + shift)
            target = f.ptr(self.frame.scratch, channel * problem.kernel[0] * self.row_bytes + first)
            with f.loop(*rows) as r:
                line = f.ptr(source, r * problem.dilations[0] * self.in_row_bytes)
                f.copy(f.ptr(target, r * self.row_bytes), line, last - first)

    def _row(self, image: Value, y: Value, rows: tuple[Value | int, Value | int]) -> None:
        """All outputs of one row: groups of output blocks, each over all tiles of columns."""
        f, first = self.f, 0
        zero = f.const("i64", 0)
        for vectors, count in self.groups:
            with f.loop(0, count) as group:
                block = group * vectors + first

                def tile(size: int, x: Value, block: Value = block, vectors: int = vectors) -> None:
                    self._tile(vectors, size, (image, block, y, x), rows)

                self.columns.visit(zero, self.columns.count, tile)
            first += vectors * count

    def _tile(
        self,
        vectors: int,
        size: int,
        at: tuple[Value, Value, Value, Value],
        rows: tuple[Value | int, Value | int],
    ) -> None:
        f, problem = self.f, self.problem
        _, block, _, x = at
        init = [f.const(f"{problem.lanes}xf32", 0.0)] * vectors
        if self.bias is not None:
            kind = init[0].type
            init = [
                f.load(kind, self.bias, block * self.vector_bytes + v * self.vector_bytes)
                for v in range(vectors)
            ]
        pixels = [p * problem.strides[1] * F32_BYTES for p in range(size)]
        tile = Tile(f, pixels, vectors, problem.lanes, init)
        width = problem.kernel[1]
        row_taps = width * self.vector_bytes
        plane_taps = problem.kernel[0] * row_taps
        stream = problem.in_channels * plane_taps
        # written out, the loads of several kernel columns would be merged, and registers spill
        channels = Channels(width, problem.lanes, 1, 0, 0, stream, problem.dilations[1] * F32_BYTES)
        source = f.ptr(self.frame.scratch, x * (problem.strides[1] * F32_BYTES))
        weights = f.ptr(self.w, block * stream)
        with f.loop(0, problem.in_channels) as channel, f.loop(*rows) as r:
            line = (channel * problem.kernel[0] + r) * self.row_bytes
            taps = channel * plane_taps + r * row_taps

            def add(first: Value | int, end: Value | int, line: Value = line, taps: Value = taps) -> None:
                number = f.const("i64", 0) + first
                place = Tap(line + number * channels.element_bytes, taps + number * self.vector_bytes)
                tile.add_tap(source, weights, f.const("i64", 0) + end - number, place, channels)

            tile.sum_in_parts(width, _PART_TAPS, add)
        writer = self.writeback.tile(*at)
        for p in range(size):
            for v in range(vectors):
                writer.store(tile.sums[p][v].value, v, 0, p)


TACTIC = ConvStem()
