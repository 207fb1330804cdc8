"""Register tiles of contractions over blocked channels: pixels times vectors of output channels.

Weights lie as [output block][input block][taps][input lane][output lane], each vector of output channels in
a stream of its own, so that one packing serves every tile shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from hagane.codegen.llvm import Function, Type, Value, Var
from hagane.kernels.llvm.conv_problem import ConvProblem

F32_BYTES = 4
# terms of a partial sum, and up to how many a sum stays in one
_PART_DEPTH, _LONG_DEPTH = 96, 160


@dataclass(frozen=True)
class Tap:
    """Where one kernel tap reads: byte offsets into input and weights.

    pixels: those it touches, None for all. guarded: addresses for pixels that may lie in the padding.
    """

    x_offset: Value | int
    w_offset: Value | int
    pixels: tuple[int, ...] | None = None
    guarded: Mapping[int, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Channels:
    """The input channels that a tile sums over.

    count: channels; lanes: of a block; unroll: channels whose code is written out. block_bytes: from one
    block of the input to the next; weight_block_bytes: likewise for the weights; vector_bytes: between the
    streams of output vectors; element_bytes: between channels of the input; prefetch_bytes: how far ahead
    weights are asked for, 0 for not at all.
    """

    count: int
    lanes: int
    unroll: int
    block_bytes: Value | int
    weight_block_bytes: int
    vector_bytes: int
    element_bytes: int = F32_BYTES
    prefetch_bytes: int = 0


class Tile:
    """Accumulators of `pixels` byte offsets (from the tile's first pixel) by `vectors` output blocks."""

    def __init__(
        self, f: Function, pixels: Sequence[int], vectors: int, lanes: int, init: Sequence[Value]
    ) -> None:
        self.f = f
        self.pixels = list(pixels)
        self.vectors = vectors
        self.type = Type("f32", lanes)
        self.sums = [[Var(f, self.type, init[v]) for v in range(vectors)] for _ in pixels]

    def accumulate(
        self, x: Value, w: Value, channels: Channels, taps: Callable[[Value, Value, Value], None]
    ) -> None:
        """Loops over blocks of input channels; taps(x, w, count) then adds that block's taps.

        A long sum is one of partial sums, each of some blocks: its rounding error grows with the square root
        of the length then, rather than with the length.
        """
        f = self.f
        blocks = -(-channels.count // channels.lanes)
        rest = channels.count % channels.lanes

        def add(first: Value | int, end: Value | int) -> None:
            with f.loop(first, end) as block:
                count = f.const("i64", channels.lanes)
                if rest:
                    count = f.select(block.eq(blocks - 1), f.const("i64", rest), count)
                x_block = f.ptr(x, block * channels.block_bytes)
                taps(x_block, f.ptr(w, block * channels.weight_block_bytes), count)

        self.sum_in_parts(blocks, _blocks_of_part(blocks, channels), add)

    def sum_in_parts(self, steps: int, part: int, add: Callable[[Value | int, Value | int], None]) -> None:
        """add(first, end) adds steps to the sums; each `part` of them are summed by themselves first."""
        f = self.f
        if part >= steps:
            add(0, steps)
            return
        totals = f.stack(len(self.pixels) * self.vectors * self.type.nbytes)
        places = [(var, k * self.type.nbytes) for k, var in enumerate(chain(*self.sums))]
        for var, place in places:
            f.store(var.value, totals, place)
        with f.loop_nonempty(0, steps, part) as first:
            for var, _ in places:
                var.set(f.const(self.type, 0.0))
            add(first, first + part if steps % part == 0 else f.imin(first + part, steps))
            for var, place in places:
                var.set(f.load(self.type, totals, place) + var.value)
                f.store(var.value, totals, place)

    def add_tap(self, x: Value, w: Value, count: Value, tap: Tap, channels: Channels) -> None:
        """Adds one kernel tap for one block of input channels, in a loop of its own.

        The loop is kept even for one turn: in straight code LLVM merges the taps' loads, and registers spill.
        """
        f = self.f
        x, w = f.ptr(x, tap.x_offset), f.ptr(w, tap.w_offset)
        lane_bytes = channels.lanes * F32_BYTES
        with f.loop_nonempty(0, count, channels.unroll, keep=True) as first:
            self._add_channels(x, f.ptr(w, first * lane_bytes), first * channels.element_bytes, tap, channels)

    def _add_channels(self, x: Value, w: Value, offset: Value, tap: Tap, channels: Channels) -> None:
        """Adds some channels from a byte offset on, written out."""
        f, lane_bytes = self.f, channels.lanes * F32_BYTES
        live = range(len(self.pixels)) if tap.pixels is None else tap.pixels
        plain = f.ptr(x, offset)
        guarded = {p: f.ptr(address, offset) for p, address in tap.guarded.items()}
        sums = {p: [var.value for var in self.sums[p]] for p in live}
        for channel in range(channels.unroll):
            weights = [
                f.load(self.type, w, channel * lane_bytes + v * channels.vector_bytes)
                for v in range(self.vectors)
            ]
            if channels.prefetch_bytes:
                for v in range(self.vectors):
                    ahead = channel * lane_bytes + v * channels.vector_bytes + channels.prefetch_bytes
                    f.prefetch(w, ahead, locality=2)
            for p in live:
                within = channel * channels.element_bytes
                base, place = (guarded[p], within) if p in guarded else (plain, self.pixels[p] + within)
                element = f.load_broadcast("f32", self.type.lanes, base, place)
                sums[p] = [f.fma(element, b, s) for b, s in zip(weights, sums[p], strict=True)]
        for p in live:
            for var, value in zip(self.sums[p], sums[p], strict=True):
                var.set(value)


def _blocks_of_part(blocks: int, channels: Channels) -> int:
    """Blocks of input channels in a partial sum: all parts about alike; all blocks if the sum isn't long."""
    terms = channels.weight_block_bytes // (channels.lanes * F32_BYTES)
    if blocks * terms <= _LONG_DEPTH:
        return blocks
    parts = min(round(blocks * terms / _PART_DEPTH), blocks)
    return -(-blocks // parts)


def kernel_rows(
    f: Function, problem: ConvProblem, y: Value, in_height: Value
) -> tuple[Value | int, Value | int]:
    """The range of kernel rows that meet the input at output row y; all, where none can miss it."""
    rows, dilation, begin = problem.kernel[0], problem.dilations[0], problem.pads_begin[0]
    top = y * problem.strides[0] - begin
    lo: Value | int = 0
    hi: Value | int = rows
    if begin > 0:
        lo = f.imin(f.imax(_ceil(f, -top, dilation), 0), rows)
    if problem.pads_end[0] > 0:
        hi = f.imin(f.imax(_ceil(f, in_height - top, dilation), 0), rows)
    return lo, hi


def _ceil(f: Function, value: Value, divisor: int) -> Value:
    return value if divisor == 1 else f.floor_div(value + (divisor - 1), divisor)


def visit_group(
    f: Function, groups: Sequence[tuple[int, int]], number: Value, body: Callable[[int, Value], None]
) -> None:
    """Calls body(vectors, first block) for a group of output blocks; groups: (vectors, count), one or two."""
    vectors, count = groups[0]
    if len(groups) == 1:
        body(vectors, number * vectors)
        return
    with f.if_else(number.lt(count)) as (then, otherwise):
        with then:
            body(vectors, number * vectors)
        with otherwise:
            body(groups[1][0], (number - count) * groups[1][0] + vectors * count)
