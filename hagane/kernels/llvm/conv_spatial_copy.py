"""Copies the input that a unit of conv_spatial reads into the workspace: padded, plain, split by phase."""

from __future__ import annotations

from hagane.codegen.llvm import Value
from hagane.core.symbolic import Expr, const
from hagane.ir.region import index_symbol
from hagane.kernels.llvm.affine import linear_coefficient
from hagane.kernels.llvm.conv_problem import ConvProblem
from hagane.kernels.llvm.conv_spatial_space import Strip
from hagane.kernels.llvm.conv_tile import F32_BYTES
from hagane.kernels.llvm.frame import Frame, Scope
from hagane.kernels.llvm.scalars import Place


class RowCopier:
    """Emits the copy for one kernel; x: the input's pointer."""

    def __init__(self, frame: Frame, problem: ConvProblem, strip: Strip, x: Value) -> None:
        self.frame, self.f, self.problem, self.strip = frame, frame.f, problem, strip
        self.place = Place(x, problem.x)
        self.lanes = problem.lanes
        self.vector = f"{problem.lanes}xf32"
        self.in_height = frame.scope.expr(problem.height[0])
        self.in_width = frame.scope.expr(problem.width[0])
        self.width32 = frame.f.cast(self.in_width, "i32")
        self.line_bytes = strip.row_bytes * strip.num_phases
        self.channel_bytes = strip.scratch_rows * self.line_bytes

    def copy(self, image: Value, group: Value, y: Value, rows: Value, x: Value, vectors: Value) -> None:
        """The input of `rows` output rows from y on and of `vectors` vectors of columns from x on."""
        f, problem = self.f, self.problem
        channels = problem.in_channels // problem.group
        scope = self.frame.scope.child()
        scope.bind("n", image)
        top = y * problem.strides[0] - problem.pads_begin[0]
        left = x * problem.strides[1] - problem.pads_begin[1]
        extra = -(-self.strip.reach // self.lanes) * self.lanes
        columns = vectors * self.lanes + extra
        num_rows = (rows - 1) * problem.strides[0] + ((problem.kernel[0] - 1) * problem.dilations[0] + 1)
        by_block = self._is_blocked()
        step = self.lanes if by_block else 1
        with f.loop(0, num_rows) as j:
            inside = (top + j).ult(self.in_height)
            with f.loop(0, channels, step) as c:
                target = f.ptr(self.frame.scratch, c * self.channel_bytes + j * self.line_bytes)
                with f.if_else(inside) as (then, otherwise):
                    with then:
                        row = scope.child()
                        row.bind("c", group * channels + c)
                        row.bind("y", top + j)
                        if by_block:
                            self._blocked(row, target, left, columns, c)
                        else:
                            self._line(row, target, left, columns)
                    with otherwise:
                        self._zero(target, c if by_block else None)

    def _zero(self, target: Value, block: Value | None) -> None:
        f = self.f
        if block is None:
            f.fill(target, 0, self.line_bytes)
            return
        last = f.imin(f.const("i64", self.lanes), block * -1 + self.problem.in_channels)
        with f.loop(0, last) as k:
            f.fill(f.ptr(target, k * self.channel_bytes), 0, self.line_bytes)

    def _offset(self, block: bool = False) -> Expr:
        """The element offset of channel c, row y, column x of image n."""
        problem = self.problem
        c = index_symbol("c", problem.x.shape[1])
        n, y = index_symbol("n", problem.batch), index_symbol("y", problem.height[0])
        x = index_symbol("x", problem.width[0])
        if block:
            lane = index_symbol("l", const(self.lanes))
            c = index_symbol("b", const(problem.in_blocks)) * self.lanes + lane
        return self.place.offset(problem.index(n, c, y, x))

    def _is_blocked(self) -> bool:
        """True if the lanes of a vector of channels are neighbours, and a group starts with a block."""
        if self.problem.group != 1:
            return False
        offset = self._offset(block=True)
        lane, column = linear_coefficient(offset, "l"), linear_coefficient(offset, "x")
        return lane is not None and lane == 1 and column is not None and column != 1

    def _line(self, scope: Scope, target: Value, left: Value, columns: Value) -> None:
        """One row of one channel."""
        f, stride, strip = self.f, self.problem.strides[1], self.strip
        offset = self._offset()
        column = linear_coefficient(offset, "x")
        contiguous = column is not None and column == 1
        with f.loop(0, columns, self.lanes) as i:
            first = left + i * stride
            place = f.ptr(target, i * F32_BYTES)
            if contiguous and stride <= 2:
                parts = [self._load(scope, offset, first + k * self.lanes) for k in range(stride)]
                for number, phase in enumerate(strip.phases):
                    picked = parts[0]
                    if stride == 2:
                        picked = f.shuffle(parts[0], parts[1], range(phase.remainder, 2 * self.lanes, 2))
                    f.store(picked, place, number * strip.row_bytes)
            else:
                for number, phase in enumerate(strip.phases):
                    value = self._gather(scope, offset, first + phase.remainder, stride)
                    f.store(value, place, number * strip.row_bytes)

    def _load(self, scope: Scope, offset: Expr, first: Value) -> Value:
        """A vector of neighbours from a column on; zeros outside of the row."""
        f = self.f
        lanes = f.iota(self.lanes, "i32") + f.broadcast(f.cast(first, "i32"), self.lanes)
        inside = lanes.ult(f.broadcast(self.width32, self.lanes))
        here = scope.child()
        here.bind("x", first)
        return f.masked_load(self.vector, self.place.pointer, inside, here.expr(offset) * F32_BYTES)

    def _gather(self, scope: Scope, offset: Expr, first: Value, stride: int) -> Value:
        f = self.f
        columns = f.iota(self.lanes) * stride + first
        inside = columns.ult(f.broadcast(self.in_width, self.lanes))
        here = scope.child()
        here.bind("x", columns)
        return f.gather("f32", self.place.pointer, here.expr(offset) * F32_BYTES, inside)

    def _blocked(self, scope: Scope, target: Value, left: Value, columns: Value, c: Value) -> None:
        """One row of a block of channels: squares of channels by columns are transposed."""
        f, stride, strip, lanes = self.f, self.problem.strides[1], self.strip, self.lanes
        offset = self._offset(block=True)
        scope.bind("b", c // lanes)
        scope.bind("l", f.const("i64", 0))
        scope.bind("x", f.const("i64", 0))
        row = f.ptr(self.place.pointer, scope.expr(offset) * F32_BYTES)
        step = linear_coefficient(offset, "x")
        assert step is not None
        pixel_bytes = scope.expr(step) * F32_BYTES
        used = f.imin(f.const("i64", lanes), c * -1 + self.problem.in_channels)
        with f.loop(0, columns, lanes) as i:
            for number, phase in enumerate(strip.phases):
                first = left + i * stride + phase.remainder
                square = []
                for k in range(lanes):
                    column = first + k * stride
                    inside = f.broadcast(column.ult(self.in_width), lanes)
                    square.append(f.masked_load(self.vector, f.ptr(row, column * pixel_bytes), inside))
                lines = f.transpose(square)
                place = f.ptr(target, i * F32_BYTES + number * strip.row_bytes)
                for k, line in enumerate(lines):
                    self._store_channel(place, line, k, used)

    def _store_channel(self, place: Value, line: Value, k: int, used: Value) -> None:
        """Channels that fill up the last block have no place in the workspace."""
        f = self.f
        if self.problem.in_channels % self.lanes == 0 or k == 0:
            f.store(line, place, k * self.channel_bytes)
            return
        with f.if_(used.gt(k)):
            f.store(line, place, k * self.channel_bytes)
