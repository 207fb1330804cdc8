"""Tiles of a product with their epilogue: inline where that is short, else through a small buffer on the
stack.

Tile heights are constants, each with its own code. If the number of rows is known, one or two heights occur;
if not, every height up to the highest has a function, and rows are spread evenly over tiles at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hagane.codegen.llvm import Function, Module, Type, Value
from hagane.codegen.llvm.value import Operand
from hagane.kernels.llvm.frame import Scope
from hagane.kernels.llvm.gemm_epilogue import Columns, Epilogue, row_positions
from hagane.kernels.llvm.gemm_tile import (
    F32_BYTES,
    Panel,
    Rows,
    Tile,
    balanced_heights,
    multiply,
    phases,
)
from hagane.kernels.llvm.scalars import Place

# above this many instructions a tile's epilogue is a loop over rows: code size and compile time, not speed
_MOST_INLINE = 300


@dataclass(frozen=True)
class Heights:
    """How rows are cut into tiles: tile t has `low` rows or, if t < num_high, one more."""

    count: Value
    low: Value
    num_high: Value

    def first_row(self, f: Function, tile: Value) -> Value:
        return tile * self.low + f.imin(tile, self.num_high)


def cut_rows(f: Function, rows: Value, most: int) -> Heights:
    """Rows over the fewest tiles of at most `most` rows, evenly; no rows give no tiles."""
    count = (rows + (most - 1)) // most
    safe = f.imax(count, 1)
    low = rows // safe
    return Heights(count, low, rows - low * safe)


class TileWriter:
    """Emits one tile: product and epilogue. `num_rows` is the row extent if it is a constant."""

    def __init__(
        self,
        module: Module,
        f: Function,
        tile: Tile,
        epilogue: Epilogue,
        places: Sequence[Place],
        num_rows: int | None,
    ) -> None:
        self.module, self.f, self.tile, self.epilogue, self.places = module, f, tile, epilogue, places
        self.heights = [h for h, _ in balanced_heights(num_rows, tile.rows)] if num_rows is not None else []
        self._functions: dict[int, Function] = {}
        self._buffer: Value | None = None

    def _shape(self, height: int) -> Tile:
        return replace(self.tile, rows=height, phases=phases(height, self.tile.vectors, self.tile.rows))

    def emit(
        self,
        scope: Scope,
        cut: Heights,
        index: Value,
        depth: Operand,
        a: Rows,
        b: Panel,
        column: Value,
        masks: Sequence[Value | None],
    ) -> None:
        """Tile number `index` of the rows: a.pointer is row 0 of them all, column the first of the panel."""
        f = self.f
        first = cut.first_row(f, index)
        here = replace(a, pointer=f.ptr(a.pointer, _times(f, a.row, first)))
        if not self.heights:
            height = cut.low + f.cast(index.lt(cut.num_high), "i64", signed=False)
            self._by_function(scope, height, first, depth, here, b, column, masks)
        elif len(self.heights) == 1:
            self._known(scope, self.heights[0], first, depth, here, b, column, masks)
        else:
            with f.if_else(index.lt(cut.num_high)) as branches:
                for branch, height in zip(branches, self.heights, strict=True):
                    with branch:
                        self._known(scope.child(), height, first, depth, here, b, column, masks)

    def _known(
        self,
        scope: Scope,
        height: int,
        first: Value,
        depth: Operand,
        a: Rows,
        b: Panel,
        column: Value,
        masks: Sequence[Value | None],
    ) -> None:
        f, tile = self.f, self._shape(height)
        sums = multiply(f, tile, depth, a, b)
        if tile.rows * tile.vectors * self.epilogue.cost() > _MOST_INLINE:
            buffer = self._sums_buffer()
            _spill(f, tile, sums, buffer)
            self._finish_buffer(scope, f.const("i64", height), first, buffer, column, masks)
            return
        blocks = self.epilogue.begin(f, scope, self.places, column, masks, tile.lanes)
        for r in range(height):
            positions = row_positions(self.epilogue, scope, first + r)
            for block, total in zip(blocks, sums[r], strict=True):
                block.finish(first + r, total, positions)

    def _sums_buffer(self) -> Value:
        if self._buffer is None:
            self._buffer = self.f.stack(self.tile.rows * self.tile.row_bytes)
        return self._buffer

    def _by_function(
        self,
        scope: Scope,
        height: Value,
        first: Value,
        depth: Operand,
        a: Rows,
        b: Panel,
        column: Value,
        masks: Sequence[Value | None],
    ) -> None:
        f, buffer = self.f, self._sums_buffer()
        for h in range(1, self.tile.rows + 1):
            with f.if_(height.eq(h)):
                numbers = [f.literal(x, "i64") for x in (a.row, a.step, b.step, depth)]
                mask = [] if b.mask is None else [b.mask]
                f.call(self._function(h, numbers, b.mask), a.pointer, b.pointer, buffer, *numbers, *mask)
        self._finish_buffer(scope, height, first, buffer, column, masks)

    def _function(self, height: int, numbers: Sequence[Value], mask: Value | None) -> Function:
        """The product of one height, its sums stored to a buffer; constants are constants inside too."""
        if height not in self._functions:
            names = ["row", "step", "b_step", "depth"]
            args: list[tuple[str, Type | str]] = [("a", "ptr"), ("b", "ptr"), ("out", "ptr")]
            args += [(name, "i64") for name in names]
            if mask is not None:
                args.append(("mask", mask.type))
            f = self.module.function(f"{self.f.name}_h{height}", args, internal=True, inline="never")
            known = [
                int(n.const) if n.const is not None else f.arg(name)
                for n, name in zip(numbers, names, strict=True)
            ]
            a = Rows(f.arg("a"), known[0], known[1])
            b = Panel(f.arg("b"), known[2], None if mask is None else f.arg("mask"))
            tile = self._shape(height)
            _spill(f, tile, multiply(f, tile, known[3], a, b), f.arg("out"))
            self._functions[height] = f
        return self._functions[height]

    def _finish_buffer(
        self,
        scope: Scope,
        height: Value,
        first: Value,
        buffer: Value,
        column: Value,
        masks: Sequence[Value | None],
    ) -> None:
        f, tile = self.f, self.tile
        blocks: list[Columns] = self.epilogue.begin(f, scope, self.places, column, masks, tile.lanes)
        with f.loop(0, height) as r:
            row = f.ptr(buffer, r * tile.row_bytes)
            inner = scope.child()
            positions = row_positions(self.epilogue, inner, first + r)
            for v, block in enumerate(blocks):
                total = f.load(Type("f32", tile.lanes), row, v * tile.lanes * F32_BYTES)
                block.finish(first + r, total, positions)


def _times(f: Function, stride: Operand, count: Value) -> Value:
    return count * stride


def _spill(f: Function, tile: Tile, sums: list[list[Value]], buffer: Value) -> None:
    for r, row in enumerate(sums):
        for v, total in enumerate(row):
            f.store(
                total, buffer, r * tile.row_bytes + v * tile.lanes * F32_BYTES, align=tile.lanes * F32_BYTES
            )
