"""Tiles of a product with their epilogue: inline where that is short, else through a small buffer on the
stack.

Tile heights are constants, each with its own code. If the number of rows is known, one or two heights occur;
if not, every height up to the highest has a function, and rows are spread evenly over tiles at run time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hagane.codegen.llvm import Function, Module, Type, Value
from hagane.codegen.llvm.value import Operand
from hagane.kernels.llvm.frame import Scope
from hagane.kernels.llvm.gemm_epilogue import Epilogue, row_positions
from hagane.kernels.llvm.gemm_tile import (
    F32_BYTES,
    Panel,
    Rows,
    Sums,
    Tile,
    balanced_heights,
    multiply,
    multiply_into,
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

    def height(self, f: Function, tile: Value) -> Value:
        return self.low + f.cast(tile.lt(self.num_high), "i64", signed=False)


def cut_rows(f: Function, rows: Value, most: int) -> Heights:
    """Rows over the fewest tiles of at most `most` rows, evenly; no rows give no tiles."""
    count = (rows + (most - 1)) // most
    safe = f.imax(count, 1)
    low = rows // safe
    return Heights(count, low, rows - low * safe)


def shape_of(tile: Tile, height: int) -> Tile:
    """The tile of a lower height in a product whose highest tiles are `tile`."""
    return replace(tile, rows=height, phases=phases(height, tile.vectors, tile.rows))


class HeightFunctions:
    """The product of a tile whose height is known at run time: a function per height, made when first used.

    What is constant in the first call (strides, depth) is taken to be constant in all. heights: those that
    occur, all by default. one_chain: all heights sum in the same order, for rows that aren't spread evenly.
    """

    def __init__(
        self,
        module: Module,
        f: Function,
        tile: Tile,
        slug: str = "h",
        heights: Sequence[int] = (),
        one_chain: bool = False,
    ) -> None:
        self.module, self.f, self.tile, self.slug = module, f, tile, slug
        self.one_chain = one_chain
        self.heights = tuple(heights) or tuple(range(1, tile.rows + 1))
        self._functions: dict[int, Function] = {}

    def call(self, height: Value, depth: Operand, a: Rows, b: Panel, out: Sums) -> None:
        """Stores the sums of `height` rows."""
        f = self.f
        numbers = [f.literal(x, "i64") for x in (a.row, a.step, b.step, depth, out.row)]
        masks = [m for m in b.masks if m is not None]
        for h in self.heights:
            with contextlib.nullcontext() if len(self.heights) == 1 else f.if_(height.eq(h)):
                function = self._function(h, numbers, b)
                ahead = [] if b.ahead is None else [b.ahead]
                f.call(function, a.pointer, b.pointer, out.pointer, *numbers, *masks, *ahead)

    def _function(self, height: int, numbers: Sequence[Value], like: Panel) -> Function:
        if height not in self._functions:
            names = ["row", "step", "b_step", "depth", "out_row"]
            args: list[tuple[str, Type | str]] = [("a", "ptr"), ("b", "ptr"), ("out", "ptr")]
            args += [(name, "i64") for name in names]
            args += [(f"mask{v}", mask.type) for v, mask in enumerate(like.masks) if mask is not None]
            args += [] if like.ahead is None else [("ahead", "ptr")]
            name = f"{self.f.name}_{self.slug}{height}"
            f = self.module.function(name, args, internal=True, inline="never")
            row, step, b_step, depth, out_row = (
                int(n.const) if n.const is not None else f.arg(name)
                for n, name in zip(numbers, names, strict=True)
            )
            masks = tuple(None if mask is None else f.arg(f"mask{v}") for v, mask in enumerate(like.masks))
            ahead = None if like.ahead is None else f.arg("ahead")
            b = Panel(f.arg("b"), b_step, masks, ahead, like.lines)
            tile = replace(self.tile, rows=height) if self.one_chain else shape_of(self.tile, height)
            multiply_into(f, tile, depth, Rows(f.arg("a"), row, step), b, Sums(f.arg("out"), out_row))
            self._functions[height] = f
        return self._functions[height]


@dataclass(frozen=True)
class Job:
    """One tile's work: row 0 of all of A, the panel of B, its first column, and per vector the lanes to
    store."""

    depth: Operand
    a: Rows
    b: Panel
    column: Value
    masks: tuple[Value | None, ...]


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
        self.f, self.tile, self.epilogue, self.places = f, tile, epilogue, places
        self.heights = [h for h, _ in balanced_heights(num_rows, tile.rows)] if num_rows is not None else []
        self._functions = HeightFunctions(module, f, tile)
        self._buffer: Value | None = None

    def emit(self, scope: Scope, cut: Heights, index: Value, job: Job) -> None:
        """Tile number `index` of the rows."""
        f = self.f
        first = cut.first_row(f, index)
        job = replace(job, a=replace(job.a, pointer=f.ptr(job.a.pointer, first * job.a.row)))
        if not self.heights:
            height = cut.height(f, index)
            buffer = self._sums_buffer()
            self._functions.call(height, job.depth, job.a, job.b, Sums(buffer, self.tile.row_bytes))
            self._finish_buffer(scope, height, first, job)
        elif len(self.heights) == 1:
            self._known(scope, self.heights[0], first, job)
        else:
            with f.if_else(index.lt(cut.num_high)) as branches:
                for branch, rows in zip(branches, self.heights, strict=True):
                    with branch:
                        self._known(scope.child(), rows, first, job)

    def _known(self, scope: Scope, height: int, first: Value, job: Job) -> None:
        f, tile = self.f, shape_of(self.tile, height)
        if tile.rows * tile.vectors * self.epilogue.cost() > _MOST_INLINE:
            multiply_into(f, tile, job.depth, job.a, job.b, Sums(self._sums_buffer(), tile.row_bytes))
            self._finish_buffer(scope, f.const("i64", height), first, job)
            return
        sums = multiply(f, tile, job.depth, job.a, job.b)
        blocks = self.epilogue.begin(f, scope, self.places, job.column, job.masks, tile.lanes)
        for r in range(height):
            positions = row_positions(self.epilogue, scope, first + r)
            for block, total in zip(blocks, sums[r], strict=True):
                block.finish(first + r, total, positions)

    def _sums_buffer(self) -> Value:
        if self._buffer is None:
            self._buffer = self.f.stack(self.tile.rows * self.tile.row_bytes)
        return self._buffer

    def _finish_buffer(self, scope: Scope, height: Value, first: Value, job: Job) -> None:
        """Rows 0 to height of the buffer on the stack through the epilogue."""
        f, tile, buffer = self.f, self.tile, self._sums_buffer()
        blocks = self.epilogue.begin(f, scope, self.places, job.column, job.masks, tile.lanes)
        with f.loop(0, height) as r:
            row = f.ptr(buffer, r * tile.row_bytes)
            inner = scope.child()
            positions = row_positions(self.epilogue, inner, first + r)
            for v, block in enumerate(blocks):
                total = f.load(Type("f32", tile.lanes), row, v * tile.lanes * F32_BYTES)
                block.finish(first + r, total, positions)
