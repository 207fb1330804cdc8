"""conv_spatial: convolution with few output channels, whose lanes run along the width of plain tensors.

A unit of work is a strip of output rows, or a part of its columns. The input that it reads is first copied
into the thread's workspace, with zeros for the padding, and with a stride the columns taken apart by their
remainder: then each tap of the kernel reads neighbours, and the inner loops need no tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from hagane.codegen.llvm import Module, Value, Var
from hagane.core.symbolic import const
from hagane.core.targets import CpuTarget
from hagane.ir.layout import ANY, AnyLayout, Layout, Layouts
from hagane.ir.region import Region, index_symbol
from hagane.kernels.llvm.conv_columns import cut_columns
from hagane.kernels.llvm.conv_problem import ConvProblem, conv_problem, near_equal
from hagane.kernels.llvm.conv_spatial_copy import RowCopier
from hagane.kernels.llvm.conv_spatial_space import Strip, strip_of, tile_space, worthwhile
from hagane.kernels.llvm.conv_tile import F32_BYTES
from hagane.kernels.llvm.conv_writeback import epilogue_is_simple, epilogue_positions
from hagane.kernels.llvm.frame import Frame, dim_symbols
from hagane.kernels.llvm.scalars import Place, ScalarEmitter
from hagane.kernels.packing import packing_of
from hagane.kernels.tactic import Argument, Input, KernelLaunch, Lowering, Output, Params

_TAPS_UNROLLED = 4  # at most; more make LLVM keep too many loads at once
# long rows of taps are summed in pieces of their own before they join the rest: one sum over 256 taps gave
# 4 times the error
_MOST_TAPS = 32


class ConvSpatial:
    """See the module."""

    name = "conv_spatial"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        problem = conv_problem(region, target)
        return problem is not None and worthwhile(problem) and epilogue_is_simple(problem)

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        problem = _problem(region, target)
        inputs: list[Layout | AnyLayout | None] = []
        for position, value in enumerate(region.operands):
            plain = position != problem.x_position and (value.is_const or value.shape == problem.output.shape)
            inputs.append(None if plain else ANY)
        return Layouts(tuple(inputs), tuple(None for _ in region.outputs))

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        return tile_space(_problem(region, target), target)

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        problem = _problem(region, target)
        group, rows, columns = problem.group, *problem.kernel
        m, c = problem.out_channels // group, problem.in_channels // group
        weight = packing_of(problem.weight).reshape(group, m, c * rows * columns).transpose(0, 2, 1)
        arguments: list[Argument] = [Input(problem.x_position), weight.finish()]
        if problem.bias is not None:
            arguments.append(packing_of(problem.bias).finish())
        arguments += [Input(position) for position in epilogue_positions(problem)]
        arguments += [Output(k) for k in range(len(region.outputs))]
        dims = dim_symbols([*region.operands, *region.outputs])
        strip = strip_of(problem)

        def emit(module: Module, name: str) -> None:
            frame = Frame(module, name, len(arguments), dims)
            _Kernel(frame, problem, strip, int(params["channels"]), int(params["vectors"])).write()

        slug = f"spatial{rows}x{columns}_{problem.in_channels}_{problem.out_channels}"
        launch = KernelLaunch(slug, emit, tuple(arguments), dims)
        return Lowering((launch,), scratch_bytes=const(strip.scratch_bytes))


def _problem(region: Region, target: CpuTarget) -> ConvProblem:
    problem = conv_problem(region, target)
    assert problem is not None, "supports() comes first"
    return problem


@dataclass(frozen=True)
class _Unit:
    """What one unit computes: `rows` rows of an image and group from y on, `vectors` vectors from x on."""

    image: Value
    group: Value
    y: Value
    rows: Value
    x: Value
    vectors: Value


class _Kernel:
    """Emits one kernel."""

    def __init__(self, frame: Frame, problem: ConvProblem, strip: Strip, channels: int, vectors: int) -> None:
        self.frame, self.f, self.problem, self.strip = frame, frame.f, problem, strip
        self.filters = problem.out_channels // problem.group
        self.tiles = near_equal(self.filters, channels)
        self.most_vectors = vectors
        pointers = list(frame.pointers)
        self.x, self.w = pointers[:2]
        self.bias = pointers[2] if problem.bias is not None else None
        self._rest = pointers[2 + (self.bias is not None) :]
        scope = frame.scope
        self.out_height, self.out_width = scope.expr(problem.height[1]), scope.expr(problem.width[1])
        self.batch = scope.expr(problem.batch)
        self.vector = f"{problem.lanes}xf32"
        self._symbols = {
            "n": index_symbol("n", problem.batch),
            "m": index_symbol("m", const(problem.out_channels)),
            "y": index_symbol("y", problem.height[1]),
            "x": index_symbol("x", problem.width[1]),
        }
        index = problem.index(*(self._symbols[name] for name in "nmyx"))
        self._index = index
        self._scalars = [problem.region.epilogue(index, k) for k in range(len(problem.region.outputs))]
        self._places, self._outputs = self._epilogue_places()

    def _epilogue_places(self) -> tuple[list[Place], list[Place]]:
        region = self.problem.region
        positions = epilogue_positions(self.problem)
        pointers = dict(zip(positions, self._rest, strict=False))
        null = self.f.const("ptr", 0)
        operands = [Place(pointers.get(k, null), v) for k, v in enumerate(region.operands)]
        outputs = [Place(p, v) for p, v in zip(self._rest[len(positions) :], region.outputs, strict=True)]
        return operands, outputs

    def write(self) -> None:
        f, strip, lanes = self.f, self.strip, self.problem.lanes
        num_strips = (self.out_height + (strip.rows - 1)) // strip.rows
        num_vectors = (self.out_width + (lanes - 1)) // lanes
        num_parts = (num_vectors + (strip.vectors - 1)) // strip.vectors
        lo, hi = self.frame.share(self.batch * self.problem.group * num_strips * num_parts)
        copier = RowCopier(self.frame, self.problem, strip, self.x)
        with f.loop(lo, hi) as unit:
            part, rest = unit % num_parts, unit // num_parts
            number, rest = rest % num_strips, rest // num_strips
            y, end = _part(number, num_strips, self.out_height)
            first, last = _part(part, num_parts, num_vectors)
            image, group = rest // self.problem.group, rest % self.problem.group
            here = _Unit(image, group, y, end - y, first * lanes, last - first)
            copier.copy(image, group, y, here.rows, here.x, here.vectors)
            self._unit(here)

    def _unit(self, unit: _Unit) -> None:
        f = self.f
        columns = cut_columns(f, unit.vectors, self.most_vectors)
        with f.loop(0, unit.rows) as row:
            first = 0
            for channels, count in self.tiles:
                with f.loop(0, count) as number:
                    m = number * channels + first

                    def tile(size: int, v: Value, m: Value = m, channels: int = channels) -> None:
                        self._tile(unit, channels, size, m, row, v)

                    columns.visit(f.const("i64", 0), columns.count, tile)
                first += channels * count

    def _tile(self, unit: _Unit, channels: int, size: int, m: Value, row: Value, v: Value) -> None:
        """`channels` filters from m on (in the group), `size` vectors from v on (in the unit), of one row."""
        f, problem, strip, lanes = self.f, self.problem, self.strip, self.problem.lanes
        first = unit.group * self.filters + m
        sums = [
            [Var(f, f.const(self.vector, 0.0).type, s) for _ in range(size)]
            for s in self._starts(first, channels)
        ]
        depth, (rows, columns) = problem.in_channels // problem.group, problem.kernel
        tap_bytes = self.filters * F32_BYTES
        group_bytes = depth * rows * columns * tap_bytes
        weights = f.ptr(self.w, unit.group * group_bytes + m * F32_BYTES)
        source = f.ptr(self.frame.scratch, v * (lanes * F32_BYTES))
        with f.loop(0, depth) as c, f.loop(0, rows) as r:
            line = c * strip.scratch_rows + row * problem.strides[0] + r * problem.dilations[0]
            x = f.ptr(source, line * (strip.row_bytes * strip.num_phases))
            w = f.ptr(weights, (c * rows + r) * (columns * tap_bytes))
            for number, phase in enumerate(strip.phases):
                place = number * strip.row_bytes + phase.first_column * F32_BYTES
                add = self._taps if phase.num_taps <= 2 * _MOST_TAPS else self._pieces
                add(
                    sums,
                    f.ptr(x, place),
                    f.ptr(w, phase.first_tap * tap_bytes),
                    phase.num_taps,
                    phase.column_step * F32_BYTES,
                    phase.tap_step * tap_bytes,
                )
        self._store(unit, sums, first, unit.y + row, unit.x + v * lanes)

    def _starts(self, first: Value, channels: int) -> list[Value]:
        f, zero = self.f, self.f.const(self.vector, 0.0)
        if self.bias is None:
            return [zero] * channels
        bias = f.ptr(self.bias, first * F32_BYTES)
        return [f.load_broadcast("f32", self.problem.lanes, bias, j * F32_BYTES) for j in range(channels)]

    def _pieces(
        self, sums: list[list[Var]], x: Value, w: Value, count: int, x_step: int, w_step: int
    ) -> None:
        """Adds many taps in a row, piece by piece."""
        f, whole = self.f, count // _MOST_TAPS

        def add(tap: Value, size: int) -> None:
            parts = [[Var(f, var.type, 0.0) for var in row] for row in sums]
            self._taps(parts, f.ptr(x, tap * x_step), f.ptr(w, tap * w_step), size, x_step, w_step)
            for total, part in zip(chain(*sums), chain(*parts), strict=True):
                total.set(total.value + part.value)

        with f.loop(0, whole) as piece:
            add(piece * _MOST_TAPS, _MOST_TAPS)
        if count % _MOST_TAPS:
            add(f.const("i64", whole * _MOST_TAPS), count % _MOST_TAPS)

    def _taps(self, sums: list[list[Var]], x: Value, w: Value, count: int, x_step: int, w_step: int) -> None:
        """Adds some taps in a row: a loop with some of them written out, then those that are left."""
        f = self.f
        unroll = min(_TAPS_UNROLLED, count)
        whole = count // unroll * unroll
        with f.loop(0, whole, unroll, keep=True) as tap:
            self._add(sums, f.ptr(x, tap * x_step), f.ptr(w, tap * w_step), unroll, x_step, w_step)
        if whole < count:
            with f.loop(0, count - whole, keep=True) as tap:
                x, w = f.ptr(x, whole * x_step), f.ptr(w, whole * w_step)
                self._add(sums, f.ptr(x, tap * x_step), f.ptr(w, tap * w_step), 1, x_step, w_step)

    def _add(self, sums: list[list[Var]], x: Value, w: Value, count: int, x_step: int, w_step: int) -> None:
        f, lanes = self.f, self.problem.lanes
        values = [[var.value for var in row] for row in sums]
        for tap in range(count):
            inputs = [
                f.load(self.vector, x, tap * x_step + k * lanes * F32_BYTES) for k in range(len(sums[0]))
            ]
            for j, row in enumerate(values):
                weight = f.load_broadcast("f32", lanes, w, tap * w_step + j * F32_BYTES)
                values[j] = [f.fma(weight, a, s) for a, s in zip(inputs, row, strict=True)]
        for row_vars, row in zip(sums, values, strict=True):
            for var, value in zip(row_vars, row, strict=True):
                var.set(value)

    def _store(self, unit: _Unit, sums: list[list[Var]], first: Value, y: Value, x: Value) -> None:
        f, lanes = self.f, self.problem.lanes
        exact = self.problem.width[1].divisor() % lanes == 0
        size = len(sums[0])
        last = x + (size - 1) * lanes
        edge = None if exact else f.mask_below(self.out_width - last, lanes)
        for j, row in enumerate(sums):
            for k, var in enumerate(row):
                scope = self.frame.scope.child()
                at = {"n": unit.image, "m": first + j, "y": y, "x": x + k * lanes}
                for name, value in at.items():
                    scope.bind(name, value)
                mask = edge if k == size - 1 else None
                emitter = ScalarEmitter(
                    f, self._places, scope, vector="x", lanes=lanes, mask=mask, acc=var.value
                )
                for scalar, place in zip(self._scalars, self._outputs, strict=True):
                    emitter.store(emitter.emit(scalar), place, place.offset(self._index))


def _part(number: Value, count: Value, total: Value) -> tuple[Value, Value]:
    """The part `number` of `count` near-equal parts of a total."""
    return number * total // count, (number + 1) * total // count


TACTIC = ConvSpatial()
