"""conv_transpose: transposed convolution over blocked channels, gathered: each output sums what reaches it.

With q = output + pads_begin, the kernel elements q % stride + stride * j meet the inputs q // stride - j.
Outputs of one phase (q % stride) in a row so form an ordinary convolution of stride 1, in the register tiles
of conv_direct. Rows outside of the input are skipped; the few columns of a tile that may be outside have
addresses of their own.
"""

from __future__ import annotations

from hagane.codegen.llvm import Module, Value
from hagane.core.symbolic import Expr
from hagane.core.targets import CpuTarget
from hagane.ir.region import Region
from hagane.kernels.llvm.conv_columns import Columns, cut_columns
from hagane.kernels.llvm.conv_direct_space import MOST_DYNAMIC_COLUMNS, most_columns, tile_cycles
from hagane.kernels.llvm.conv_narrow import narrow_problem
from hagane.kernels.llvm.conv_problem import ConvProblem, conv_problem, near_equal, unmisched
from hagane.kernels.llvm.conv_tile import F32_BYTES, Channels, Tap, Tile, visit_group
from hagane.kernels.llvm.conv_writeback import Writeback, epilogue_arguments, epilogue_is_simple
from hagane.kernels.llvm.frame import Frame, dim_symbols
from hagane.kernels.llvm.halo import zero_halo
from hagane.kernels.packing import packing_of
from hagane.kernels.tactic import Argument, Input, KernelLaunch, Layouts, Lowering, Params

_MOST_GUARDED = 4  # columns of a tile with addresses of their own: more don't fit the address registers


class ConvTranspose:
    """See the module."""

    name = "conv_transpose"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        problem = conv_problem(region, target, "conv_transpose")
        if problem is None or problem.group != 1 or problem.dilations != (1, 1):
            return False
        if narrow_problem(region, target) is not None:
            return False
        if any(begin < 0 or end < 0 for begin, end in zip(problem.pads_begin, problem.pads_end, strict=True)):
            return False
        return sum(_num_guarded(problem)) <= _MOST_GUARDED and epilogue_is_simple(problem)

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        problem = _problem(region, target)
        return problem.layouts(problem.blocked())

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        problem = _problem(region, target)
        extent = problem.width[1] // problem.strides[1]
        choices: list[tuple[float, int, int]] = []
        for vectors in range(1, min(problem.out_blocks, 6) + 1):
            columns = most_columns(vectors, target)
            if not extent.is_const:
                columns = min(columns, MOST_DYNAMIC_COLUMNS)
            typical = max(extent.value, 1) if extent.is_const else 4 * columns
            cycles = sum(
                groups * tiles * tile_cycles(size, group)
                for group, groups in near_equal(problem.out_blocks, vectors)
                for size, tiles in near_equal(typical, columns)
            )
            choices.append((cycles / typical, vectors, columns))
        return [{"vectors": v, "columns": c} for _, v, c in sorted(choices)[:3]]

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        problem = _problem(region, target)
        lanes, (rows, columns) = problem.lanes, problem.kernel
        c, m = problem.in_blocks, problem.out_blocks
        weight = packing_of(problem.weight).reshape(problem.in_channels, problem.out_channels, rows, columns)
        padded = weight.pad_to(c * lanes, m * lanes, rows, columns)
        packed = padded.reshape(c, lanes, m, lanes, rows, columns).transpose(2, 0, 4, 5, 1, 3)
        arguments: list[Argument] = [Input(problem.x_position), packed.finish()]
        if problem.bias is not None:
            arguments.append(packing_of(problem.bias).pad_to(m * lanes).finish())
        arguments += epilogue_arguments(problem)
        dims = dim_symbols([*region.operands, *region.outputs])

        def emit(module: Module, name: str) -> None:
            frame = Frame(module, name, len(arguments), dims)
            _Kernel(frame, problem, int(params["vectors"]), int(params["columns"])).write()

        slug = f"transposed{rows}x{columns}_{problem.in_channels}_{problem.out_channels}"
        return Lowering((KernelLaunch(slug, emit, tuple(arguments), dims, unmisched=unmisched(target)),))


def _problem(region: Region, target: CpuTarget) -> ConvProblem:
    problem = conv_problem(region, target, "conv_transpose")
    assert problem is not None, "supports() comes first"
    return problem


def _num_guarded(problem: ConvProblem) -> tuple[int, int]:
    """How many of a tile's first and last columns may look outside of the input."""
    kernel, stride = problem.kernel[1], problem.strides[1]
    extra = problem.anchor.attrs["output_padding"][-1]
    extra = extra.bounds()[1] if isinstance(extra, Expr) else extra
    if extra is None:
        return (_MOST_GUARDED + 1, 0)
    steps = -(-kernel // stride)
    before = max(steps - 1 - problem.pads_begin[1] // stride, 0)
    return before, max((kernel - 1 + int(extra) - problem.pads_end[1]) // stride, 0)


class _Kernel:
    """Emits one kernel."""

    def __init__(self, frame: Frame, problem: ConvProblem, vectors: int, columns: int) -> None:
        self.frame, self.f, self.problem, self.columns = frame, frame.f, problem, columns
        scope = frame.scope
        pointers = list(frame.pointers)
        self.x, self.w = pointers[:2]
        self.bias = pointers[2] if problem.bias is not None else None
        self.writeback = Writeback(frame, problem, pointers[2 + (self.bias is not None) :])
        layout = problem.x.layout
        assert layout is not None
        self.pixel_bytes = problem.lanes * F32_BYTES
        self.row_halo = layout.halo_of(2) if problem.rank == 4 else (0, 0)
        self.column_halo = layout.halo_of(problem.rank - 1)
        width = problem.width[0] + sum(self.column_halo)
        self.row_bytes = scope.expr(width * self.pixel_bytes)
        self.plane_bytes = scope.expr(width * (problem.height[0] + sum(self.row_halo)) * self.pixel_bytes)
        self.in_height, self.in_width = scope.expr(problem.height[0]), scope.expr(problem.width[0])
        self.out_height = scope.expr(problem.height[1])
        self.batch = scope.expr(problem.batch)
        self.zeros = self.f.stack(self.pixel_bytes)
        self.f.store(self.f.const(f"{problem.lanes}xf32", 0.0), self.zeros)
        self.groups = near_equal(problem.out_blocks, vectors)
        self.num_guarded = _num_guarded(problem)

    def write(self) -> None:
        for place in self.writeback.outputs:
            zero_halo(self.frame, place)
        f = self.f
        extents = []
        for phase in self._phases():
            extent = self._extent(phase)
            length = self.frame.scope.expr(extent)
            extents.append((phase, cut_columns(f, length, self.columns, extent.divisor())))
        num_groups = sum(count for _, count in self.groups)
        lo, hi = self.frame.share(self.batch * num_groups * self.out_height)
        with f.loop(lo, hi) as row:
            rest, y = row // self.out_height, row % self.out_height
            image, group = rest // num_groups, rest % num_groups
            q = y + self.problem.pads_begin[0]

            def visit(vectors: int, block: Value) -> None:
                for phase, columns in extents:
                    self._row(vectors, (image, block, y, q), phase, columns)

            visit_group(f, self.groups, group, visit)

    def _phases(self) -> list[int | None]:
        """Column phases with code of their own; None is all of them, in a loop, if equally long."""
        stride = self.problem.strides[1]
        if self.problem.width[1].divisor() % stride == 0:
            return [None]
        return list(range(stride))

    def _first(self, phase: Value) -> Value:
        """The first column of a phase, counted in strides: its q is at least the padding."""
        stride, begin = self.problem.strides[1], self.problem.pads_begin[1]
        return (begin - phase + (stride - 1)) // stride

    def _extent(self, phase: int | None) -> Expr:
        """How many outputs of a row are of a phase."""
        stride, begin, width = self.problem.strides[1], self.problem.pads_begin[1], self.problem.width[1]
        if phase is None:
            return width // stride
        first = (begin - phase + stride - 1) // stride
        return (width + (begin - phase + stride - 1)) // stride - first

    def _row(
        self, vectors: int, at: tuple[Value, Value, Value, Value], phase: int | None, columns: Columns
    ) -> None:
        """The outputs of one row: of one phase, or of all phases in a loop."""
        f, stride = self.f, self.problem.strides[1]
        first, last = (0, stride) if phase is None else (phase, phase + 1)
        with f.loop(first, last) as px:
            start = self._first(px)

            def tile(size: int, a: Value) -> None:
                self._tile(vectors, size, at, px, a + start)

            columns.visit(f.const("i64", 0), columns.count, tile)

    def _tile(
        self, vectors: int, size: int, at: tuple[Value, Value, Value, Value], px: Value, a: Value
    ) -> None:
        """One tile: `size` outputs of a phase, whose windows end at input columns from `a` on."""
        f, problem = self.f, self.problem
        image, block, y, _ = at
        pixel = self.pixel_bytes
        init = [f.const(f"{problem.lanes}xf32", 0.0)] * vectors
        if self.bias is not None:
            init = [f.load(init[0].type, self.bias, block * pixel + v * pixel) for v in range(vectors)]
        tile = Tile(f, [p * pixel for p in range(size)], vectors, problem.lanes, init)
        tap_bytes = problem.lanes * pixel
        block_bytes = tap_bytes * problem.kernel[0] * problem.kernel[1]
        unroll = 2 if problem.in_channels % 2 == 0 else 1
        stream = block_bytes * problem.in_blocks
        channels = Channels(problem.in_channels, problem.lanes, unroll, self.plane_bytes, block_bytes, stream)
        source = f.ptr(self.x, image * problem.in_blocks * self.plane_bytes)
        weights = f.ptr(self.w, block * stream)

        def taps(x_block: Value, w_block: Value, count: Value) -> None:
            self._taps(tile, (x_block, w_block, count), channels, at[3], px, a)

        tile.accumulate(source, weights, channels, taps)
        writer = self.writeback.tile(image, block, y, a * problem.strides[1] + px - problem.pads_begin[1])
        for p in range(size):
            for v in range(vectors):
                writer.store(tile.sums[p][v].value, v, 0, p * problem.strides[1])

    def _taps(
        self,
        tile: Tile,
        block: tuple[Value, Value, Value],
        channels: Channels,
        q: Value,
        px: Value,
        a: Value,
    ) -> None:
        """Adds all taps of one block of input channels: its address, that of its weights, its channels."""
        f, problem = self.f, self.problem
        plane, weights, count = block
        tap_bytes = problem.lanes * self.pixel_bytes
        py, row = q % problem.strides[0], q // problem.strides[0]
        # steps j with 0 <= row - j < height and py + stride * j inside of the kernel
        lo = f.imax(row - self.in_height + 1, 0)
        hi = f.imin(self._num_steps(0, py), row + 1)
        with f.loop(lo, hi) as j, f.loop(0, self._num_steps(1, px)) as k:
            source_row = f.ptr(plane, (row - j + self.row_halo[0]) * self.row_bytes)
            x_offset = (a - k + self.column_halo[0]) * self.pixel_bytes
            tap_row, tap_column = py + j * problem.strides[0], px + k * problem.strides[1]
            w_offset = (tap_row * problem.kernel[1] + tap_column) * tap_bytes
            guarded = self._guarded(tile, f.ptr(source_row, x_offset), a - k)
            tile.add_tap(source_row, weights, count, Tap(x_offset, w_offset, None, guarded), channels)

    def _num_steps(self, axis: int, phase: Value) -> Value:
        """How many kernel elements a phase has along an axis."""
        kernel, stride = self.problem.kernel[axis], self.problem.strides[axis]
        if kernel % stride == 0:
            return self.f.const("i64", kernel // stride)
        return (kernel - phase + (stride - 1)) // stride

    def _guarded(self, tile: Tile, place: Value, column: Value) -> dict[int, Value]:
        """Addresses of the pixels that may lie outside of the input: those of zeros where they do."""
        f, size = self.f, len(tile.pixels)
        before, after = self.num_guarded
        addresses: dict[int, Value] = {}
        for p in sorted({*range(min(before, size)), *range(max(size - after, 0), size)}):
            inside = (column + p).ult(self.in_width)
            addresses[p] = f.select(inside, f.ptr(place, tile.pixels[p]), self.zeros)
        return addresses


TACTIC = ConvTranspose()
