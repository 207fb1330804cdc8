"""conv_depthwise: one filter per channel, over blocked channels; a row of outputs at a time.

It needs no halo: rows of the padding are skipped by the bounds of the loop over kernel rows; columns of the
padding are left out where the place of a tile is known, and read from a vector of zeros where it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hagane.codegen.llvm import Module, Value, Var
from hagane.core.targets import CpuTarget
from hagane.ir.region import Region
from hagane.kernels.llvm.conv_columns import Columns, cut_columns
from hagane.kernels.llvm.conv_problem import ConvProblem, conv_problem, near_equal, unmisched
from hagane.kernels.llvm.conv_tile import F32_BYTES, kernel_rows
from hagane.kernels.llvm.conv_writeback import Writeback, epilogue_arguments, epilogue_is_simple
from hagane.kernels.llvm.frame import Frame, dim_symbols
from hagane.kernels.llvm.halo import zero_halo
from hagane.kernels.packing import packing_of
from hagane.kernels.tactic import Argument, Input, KernelLaunch, Layouts, Lowering, Params

# Each width of tile has code of its own, twice, where the width is unknown; 8 sums hide the FMA latency.
_MOST_DYNAMIC_COLUMNS = 8
_MOST_ROWS = 8  # of a chunk: its rows are shared out together, and read some input rows again
_MOST_KERNEL_COLUMNS = 11  # weights of a kernel row that are held in registers


class ConvDepthwise:
    """See the module."""

    name = "conv_depthwise"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        problem = conv_problem(region, target)
        if problem is None or not problem.in_channels == problem.out_channels == problem.group:
            return False
        return problem.kernel[1] <= _MOST_KERNEL_COLUMNS and epilogue_is_simple(problem)

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        problem = _problem(region, target)
        return problem.layouts(problem.blocked())

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        problem = _problem(region, target)
        # the rest of the registers holds a row of weights, one input and what the epilogue needs
        most = max(target.num_vector_registers - problem.kernel[1] - 5, 2)
        height, width = problem.height[1], problem.width[1]
        rows = near_equal(height.value, _MOST_ROWS)[0][0] if height.is_const else _MOST_ROWS
        if not width.is_const:
            return [{"columns": min(most, _MOST_DYNAMIC_COLUMNS), "rows": rows}]
        sizes = {near_equal(width.value, min(most, limit))[0][0] for limit in (14, 8)}
        return [{"columns": size, "rows": rows} for size in sorted(sizes, reverse=True)]

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        problem = _problem(region, target)
        lanes, blocks = problem.lanes, problem.out_blocks
        taps = problem.kernel[0] * problem.kernel[1]
        weight = packing_of(problem.weight).reshape(problem.out_channels, taps).pad_to(blocks * lanes, taps)
        packed = weight.reshape(blocks, lanes, taps).transpose(0, 2, 1)
        arguments: list[Argument] = [Input(problem.x_position), packed.finish()]
        if problem.bias is not None:
            arguments.append(packing_of(problem.bias).pad_to(blocks * lanes).finish())
        arguments += epilogue_arguments(problem)
        dims = dim_symbols([*region.operands, *region.outputs])

        def emit(module: Module, name: str) -> None:
            frame = Frame(module, name, len(arguments), dims)
            _Kernel(frame, problem, int(params["columns"]), int(params["rows"])).write()

        slug = f"depthwise{problem.kernel[0]}x{problem.kernel[1]}_{problem.out_channels}"
        return Lowering((KernelLaunch(slug, emit, tuple(arguments), dims, unmisched=unmisched(target)),))


def _problem(region: Region, target: CpuTarget) -> ConvProblem:
    problem = conv_problem(region, target)
    assert problem is not None, "supports() comes first"
    return problem


@dataclass(frozen=True)
class _Row:
    """One row of outputs: its place, its first input row as if x had no padding, the weights and the bias."""

    image: Value
    block: Value
    y: Value
    source: Value
    weights: Value
    bias: Value


class _Kernel:
    """Emits one kernel."""

    def __init__(self, frame: Frame, problem: ConvProblem, columns: int, rows: int) -> None:
        self.frame, self.f, self.problem, self.columns, self.rows = frame, frame.f, problem, columns, rows
        f, scope = frame.f, frame.scope
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
        height = problem.height[0] + sum(self.row_halo)
        self.plane_bytes = scope.expr(width * height * self.pixel_bytes)
        self.in_height, self.in_width = scope.expr(problem.height[0]), scope.expr(problem.width[0])
        self.out_height, self.out_width = scope.expr(problem.height[1]), scope.expr(problem.width[1])
        self.batch = scope.expr(problem.batch)
        self.vector = f"{problem.lanes}xf32"
        self.zeros = f.stack(self.pixel_bytes)
        f.store(f.const(self.vector, 0.0), self.zeros)

    def write(self) -> None:
        for place in self.writeback.outputs:
            zero_halo(self.frame, place)
        f, problem = self.f, self.problem
        blocks = problem.out_blocks
        width = problem.width[1]
        columns = None
        if not width.is_const:
            columns = cut_columns(f, self.out_width, self.columns, width.divisor())
        # chunks of rows come before channels, so that a thread reads what it wrote itself in the layer before
        num_chunks = (self.out_height + (self.rows - 1)) // self.rows
        lo, hi = self.frame.share(self.batch * num_chunks * blocks)
        taps_bytes = problem.kernel[0] * problem.kernel[1] * self.pixel_bytes
        with f.loop(lo, hi) as unit:
            rest, block = unit // blocks, unit % blocks
            image, chunk = rest // num_chunks, rest % num_chunks
            plane = f.ptr(self.x, (image * blocks + block) * self.plane_bytes)
            bias = f.const(self.vector, 0.0)
            if self.bias is not None:
                bias = f.load(self.vector, self.bias, block * self.pixel_bytes)
            weights = f.ptr(self.w, block * taps_bytes)
            first = chunk * self.rows
            with f.loop_nonempty(first, f.imin(first + self.rows, self.out_height)) as y:
                top = y * problem.strides[0] + (self.row_halo[0] - problem.pads_begin[0])
                source = f.ptr(plane, top * self.row_bytes)
                self._row(_Row(image, block, y, source, weights, bias), columns)

    def _row(self, row: _Row, columns: Columns | None) -> None:
        f = self.f
        if columns is None:
            for size, start, count in self._segments():
                with f.loop(0, count) as number:
                    x = number * size + start
                    self._tile(row, size, x, self._inside(start) if count == 1 else None)
            return

        def tile(size: int, x: Value) -> None:
            with f.if_else(self._is_inner(size, x)) as (inner, border):
                with inner:
                    self._tile(row, size, x, None)
                with border:
                    self._tile(row, size, x, None, guarded=True)

        columns.visit(f.const("i64", 0), columns.count, tile)

    def _segments(self) -> list[tuple[int, int, int]]:
        """(size, start, count) of tiles in a row of known width; those that meet padding come alone."""
        segments: list[tuple[int, int, int]] = []
        start = 0
        for size, count in near_equal(int(self.out_width.const or 0), self.columns):
            for _ in range(count):
                inner = all(self._inside(start)(j) for j in range(self._reach(size)))
                last = segments[-1] if segments else (0, 0, 0)
                mergeable = all(self._inside(last[1])(j) for j in range(self._reach(last[0])))
                if segments and inner and mergeable and last[0] == size:
                    segments[-1] = (size, last[1], last[2] + 1)
                else:
                    segments.append((size, start, 1))
                start += size
        return segments

    def _reach(self, size: int) -> int:
        """Input columns from a tile's first to its last, both included."""
        problem = self.problem
        return (size - 1) * problem.strides[1] + (problem.kernel[1] - 1) * problem.dilations[1] + 1

    def _inside(self, start: int) -> Callable[[int], bool]:
        """Whether the j-th input column of a tile that starts at a known output column lies in the input."""
        first = start * self.problem.strides[1] - self.problem.pads_begin[1]
        width = int(self.in_width.const or 0)
        return lambda j: 0 <= first + j < width

    def _is_inner(self, size: int, x: Value) -> Value:
        first = x * self.problem.strides[1] - self.problem.pads_begin[1]
        return first.ge(0) & (first + self._reach(size)).le(self.in_width)

    def _tile(
        self, row: _Row, size: int, x: Value, inside: Callable[[int], bool] | None, guarded: bool = False
    ) -> None:
        """One tile. inside: tells which of its input columns to read; guarded: ask at run time."""
        f, problem = self.f, self.problem
        stride, dilation, width = problem.strides[1], problem.dilations[1], problem.kernel[1]
        left = x * stride - problem.pads_begin[1]
        source = f.ptr(row.source, (left + self.column_halo[0]) * self.pixel_bytes)
        zero = row.bias
        sums = [Var(f, zero.type, zero) for _ in range(size)]
        lo, hi = kernel_rows(f, problem, row.y, self.in_height)
        with f.loop(lo, hi) as r:
            line = f.ptr(source, r * problem.dilations[0] * self.row_bytes)
            taps = f.ptr(row.weights, r * (width * self.pixel_bytes))
            weights = [f.load(self.vector, taps, s * self.pixel_bytes) for s in range(width)]
            values = [var.value for var in sums]
            for j in range(self._reach(size)):
                uses = [(p, s) for p in range(size) for s in range(width) if p * stride + s * dilation == j]
                if not uses or (inside is not None and not inside(j)):
                    continue
                place = f.ptr(line, j * self.pixel_bytes)
                if guarded:
                    place = f.select((left + j).ult(self.in_width), place, self.zeros)
                element = f.load(self.vector, place)
                for p, s in uses:
                    values[p] = f.fma(element, weights[s], values[p])
            for var, value in zip(sums, values, strict=True):
                var.set(value)
        writer = self.writeback.tile(row.image, row.block, row.y, x)
        for p in range(size):
            writer.store(sums[p].value, 0, 0, p)


TACTIC = ConvDepthwise()
