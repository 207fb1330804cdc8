"""conv_narrow: convolutions, also transposed ones, with few filters, from blocked channels to a plain tensor.

The lanes run over input channels, so that none is wasted on filters that don't exist. A tile is a vector of
outputs in a row: for each of them the lanes of its sum are added up at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from hagane.codegen.llvm import Module, Value, Var
from hagane.core.symbolic import const
from hagane.core.targets import CpuTarget
from hagane.ir.layout import ANY, AnyLayout, Layout, Layouts
from hagane.ir.region import Region, index_symbol
from hagane.kernels.llvm.conv_problem import ConvProblem, conv_problem, unmisched
from hagane.kernels.llvm.conv_tile import F32_BYTES, kernel_rows
from hagane.kernels.llvm.conv_writeback import epilogue_is_simple, epilogue_positions
from hagane.kernels.llvm.frame import Frame, dim_symbols
from hagane.kernels.llvm.scalars import Place, ScalarEmitter
from hagane.kernels.packing import packing_of
from hagane.kernels.tactic import Argument, Input, KernelLaunch, Lowering, Output, Params

MOST_FILTERS = 4
_MOST_SUMS = 24


class ConvNarrow:
    """See the module."""

    name = "conv_narrow"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        problem = narrow_problem(region, target)
        return problem is not None and epilogue_is_simple(problem)

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        problem = _problem(region, target)
        inputs: list[Layout | AnyLayout | None] = []
        for position, value in enumerate(region.operands):
            if position == problem.x_position:
                inputs.append(problem.blocked())
            else:
                plain = value.is_const or value.shape == problem.output.shape
                inputs.append(None if plain else ANY)
        return Layouts(tuple(inputs), tuple(None for _ in region.outputs))

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        problem = _problem(region, target)
        pixels = problem.lanes
        while pixels * problem.out_channels > min(_MOST_SUMS, target.num_vector_registers - 4):
            pixels //= 2
        return [{"pixels": pixels}]

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        problem = _problem(region, target)
        lanes, blocks, taps = problem.lanes, problem.in_blocks, problem.kernel[0] * problem.kernel[1]
        m, c = problem.out_channels, problem.in_channels
        weight = packing_of(problem.weight)
        if problem.anchor.op == "conv":
            packed = weight.reshape(m, c, taps).pad_to(m, blocks * lanes, taps)
            packed = packed.reshape(m, blocks, lanes, taps).transpose(1, 3, 0, 2)
        else:
            packed = weight.reshape(c, m, taps).pad_to(blocks * lanes, m, taps)
            packed = packed.reshape(blocks, lanes, m, taps).transpose(0, 3, 2, 1)
        arguments: list[Argument] = [Input(problem.x_position), packed.finish()]
        if problem.bias is not None:
            arguments.append(packing_of(problem.bias).finish())
        arguments += [Input(position) for position in epilogue_positions(problem)]
        arguments += [Output(k) for k in range(len(region.outputs))]
        dims = dim_symbols([*region.operands, *region.outputs])

        def emit(module: Module, name: str) -> None:
            frame = Frame(module, name, len(arguments), dims)
            _Kernel(frame, problem, int(params["pixels"])).write()

        slug = f"narrow{problem.kernel[0]}x{problem.kernel[1]}_{c}_{m}"
        return Lowering((KernelLaunch(slug, emit, tuple(arguments), dims, unmisched=unmisched(target)),))


def narrow_problem(region: Region, target: CpuTarget) -> ConvProblem | None:
    """The region as a convolution of many channels with few filters; None if it isn't one."""
    op = "conv_transpose" if region.anchor is not None and region.anchor.op == "conv_transpose" else "conv"
    problem = conv_problem(region, target, op)
    if problem is None or problem.group != 1 or problem.out_channels > MOST_FILTERS:
        return None
    if op == "conv_transpose" and problem.dilations != (1, 1):
        return None
    return problem if 2 * problem.in_channels >= problem.lanes else None


def _problem(region: Region, target: CpuTarget) -> ConvProblem:
    problem = narrow_problem(region, target)
    assert problem is not None, "supports() comes first"
    return problem


@dataclass(frozen=True)
class _Steps:
    """The taps that reach an output along one axis: lo <= step < hi.

    Step i reads input first + position * stride + i * each, and kernel element tap + i * tap_each.
    """

    lo: Value
    hi: Value
    first: Value
    each: int
    tap: Value
    tap_each: int


@dataclass(frozen=True)
class _Line:
    """Outputs in a row, `count` of them, `step` columns apart from column `start` on; of a transposed
    convolution those of one phase."""

    image: Value
    y: Value
    rows: _Steps
    columns: _Steps
    stride: int
    start: Value
    step: int
    count: Value


class _Kernel:
    """Emits one kernel."""

    def __init__(self, frame: Frame, problem: ConvProblem, pixels: int) -> None:
        self.frame, self.f, self.problem, self.pixels = frame, frame.f, problem, pixels
        f, scope = frame.f, frame.scope
        pointers = list(frame.pointers)
        self.x, self.w = pointers[:2]
        self.bias = pointers[2] if problem.bias is not None else None
        self.rest = pointers[2 + (self.bias is not None) :]
        layout = problem.x.layout
        assert layout is not None
        self.pixel_bytes = problem.lanes * F32_BYTES
        self.row_halo = layout.halo_of(2) if problem.rank == 4 else (0, 0)
        self.column_halo = layout.halo_of(problem.rank - 1)
        width = problem.width[0] + sum(self.column_halo)
        self.row_bytes = scope.expr(width * self.pixel_bytes)
        self.plane_bytes = scope.expr(width * (problem.height[0] + sum(self.row_halo)) * self.pixel_bytes)
        self.in_height, self.in_width = scope.expr(problem.height[0]), scope.expr(problem.width[0])
        self.out_height, self.out_width = scope.expr(problem.height[1]), scope.expr(problem.width[1])
        self.batch = scope.expr(problem.batch)
        self.vector = f"{problem.lanes}xf32"
        self.zeros = f.stack(self.pixel_bytes)
        f.store(f.const(self.vector, 0.0), self.zeros)
        self.stash = f.stack(problem.out_channels * problem.lanes * self.pixel_bytes)

    def write(self) -> None:
        f = self.f
        lo, hi = self.frame.share(self.batch * self.out_height)
        with f.loop(lo, hi) as row:
            image, y = row // self.out_height, row % self.out_height
            if self.problem.anchor.op == "conv":
                self._line(self._plain_line(image, y))
            else:
                with f.loop(0, self.problem.strides[1]) as phase:
                    self._line(self._phase_line(image, y, phase))

    def _plain_line(self, image: Value, y: Value) -> _Line:
        f, problem = self.f, self.problem
        zero = f.const("i64", 0)
        lo, hi = (f.literal(bound, "i64") for bound in kernel_rows(f, problem, y, self.in_height))
        top = y * problem.strides[0] - problem.pads_begin[0]
        rows = _Steps(lo, hi, top, problem.dilations[0], zero, 1)
        left = f.const("i64", -problem.pads_begin[1])
        columns = _Steps(zero, f.const("i64", problem.kernel[1]), left, problem.dilations[1], zero, 1)
        return _Line(image, y, rows, columns, problem.strides[1], zero, 1, self.out_width)

    def _phase_line(self, image: Value, y: Value, phase: Value) -> _Line:
        """Outputs y, x with (x + padding) % stride == phase: see conv_transpose."""
        f, problem = self.f, self.problem
        (height, width), (begin, left) = problem.strides, problem.pads_begin
        zero = f.const("i64", 0)
        row, row_phase = (y + begin) // height, (y + begin) % height
        row_steps = (row_phase * -1 + (problem.kernel[0] + height - 1)) // height
        lo = f.imax(row - self.in_height + 1, 0)
        rows = _Steps(lo, f.imin(row_steps, row + 1), row, -1, row_phase, height)
        first = (phase * -1 + (left + width - 1)) // width
        steps = (phase * -1 + (problem.kernel[1] + width - 1)) // width
        columns = _Steps(zero, steps, first, -1, phase, width)
        start = first * width + phase - left
        count = (self.out_width - start + (width - 1)) // width
        return _Line(image, y, rows, columns, 1, start, width, count)

    def _line(self, line: _Line) -> None:
        f, lanes = self.f, self.problem.lanes
        with f.loop(0, line.count, lanes) as x:
            with f.loop(0, lanes, self.pixels) as part:
                first = x + part
                span = (self.pixels - 1) * line.stride
                reach = (line.columns.hi - 1) * line.columns.each
                left = line.columns.first + first * line.stride
                low, high = f.imin(left, left + reach), f.imax(left, left + reach) + span
                with f.if_else(low.ge(0) & high.lt(self.in_width)) as (inner, border):
                    with inner:
                        self._sums(line, first, part, guarded=False)
                    with border:
                        self._sums(line, first, part, guarded=True)
            self._store(line, x)

    def _sums(self, line: _Line, first: Value, part: Value, guarded: bool) -> None:
        """Sums of a part of the tile, all filters, lanes apart, into the stash."""
        f, problem = self.f, self.problem
        filters, pixel = problem.out_channels, self.pixel_bytes
        zero = f.const(self.vector, 0.0)
        sums = [[Var(f, zero.type, zero) for _ in range(filters)] for _ in range(self.pixels)]
        left = line.columns.first + first * line.stride
        tap_bytes = filters * pixel
        block_bytes = problem.kernel[0] * problem.kernel[1] * tap_bytes
        with f.loop(0, problem.in_blocks) as block, f.loop(line.rows.lo, line.rows.hi) as i:
            plane = f.ptr(self.x, (line.image * problem.in_blocks + block) * self.plane_bytes)
            row = line.rows.first + i * line.rows.each + self.row_halo[0]
            source = f.ptr(plane, row * self.row_bytes)
            tap_row = (line.rows.tap + i * line.rows.tap_each) * problem.kernel[1]
            with f.loop(line.columns.lo, line.columns.hi) as k:
                tap = tap_row + line.columns.tap + k * line.columns.tap_each
                weights = f.ptr(self.w, block * block_bytes + tap * tap_bytes)
                vectors = [f.load(self.vector, weights, m * pixel) for m in range(filters)]
                column = left + k * line.columns.each
                place = f.ptr(source, (column + self.column_halo[0]) * pixel)
                for p in range(self.pixels):
                    address = f.ptr(place, p * line.stride * pixel)
                    if guarded:
                        inside = (column + p * line.stride).ult(self.in_width)
                        address = f.select(inside, address, self.zeros)
                    element = f.load(self.vector, address)
                    for var, vector in zip(sums[p], vectors, strict=True):
                        var.set(f.fma(element, vector, var.value))
        for p in range(self.pixels):
            for m in range(filters):
                place = f.ptr(self.stash, (part + (m * problem.lanes + p)) * pixel)
                f.store(sums[p][m].value, place)

    def _store(self, line: _Line, x: Value) -> None:
        """Adds up the lanes of a tile's sums and writes the outputs."""
        f, problem = self.f, self.problem
        lanes = problem.lanes
        mask = f.mask_below(line.count - x, lanes)
        for m in range(problem.out_channels):
            place = f.ptr(self.stash, m * lanes * self.pixel_bytes)
            rows = f.transpose([f.load(self.vector, place, p * self.pixel_bytes) for p in range(lanes)])
            while len(rows) > 1:
                rows = [a + b for a, b in zip(rows[::2], rows[1::2], strict=True)]
            total = rows[0]
            if self.bias is not None:
                total = total + f.load_broadcast("f32", lanes, self.bias, m * F32_BYTES)
            self._epilogue(line, x, m, total, mask)

    def _epilogue(self, line: _Line, x: Value, m: int, total: Value, mask: Value) -> None:
        problem, region = self.problem, self.problem.region
        n, y = index_symbol("n", problem.batch), index_symbol("y", problem.height[1])
        a, start = index_symbol("a", problem.width[1]), index_symbol("start", problem.width[1])
        index = problem.index(n, const(m), y, a * line.step + start)
        scope = self.frame.scope.child()
        for name, value in (("n", line.image), ("y", line.y), ("a", x), ("start", line.start)):
            scope.bind(name, value)
        positions = epilogue_positions(problem)
        pointers = dict(zip(positions, self.rest, strict=False))
        null = self.f.const("ptr", 0)
        places = [Place(pointers.get(k, null), v) for k, v in enumerate(region.operands)]
        emitter = ScalarEmitter(self.f, places, scope, vector="a", lanes=problem.lanes, mask=mask, acc=total)
        for k, (output, pointer) in enumerate(zip(region.outputs, self.rest[len(positions) :], strict=True)):
            value = emitter.emit(region.epilogue(index, k))
            place = Place(pointer, output)
            emitter.store(value, place, place.offset(index))


TACTIC = ConvNarrow()
