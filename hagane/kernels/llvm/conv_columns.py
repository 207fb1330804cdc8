"""Cuts a row of unknown or known length into tiles, each size of which has code of its own."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Protocol

from hagane.codegen.llvm import Function, Value
from hagane.kernels.llvm.conv_problem import near_equal

Body = Callable[[int, Value], None]
_GRANULE = 4  # sizes of tiles are multiples of it if the extent is one: few sizes, so little code


class Columns(Protocol):
    """Numbers the tiles of an extent; `visit` runs over a range of numbers."""

    count: Value

    def visit(self, lo: Value, hi: Value, body: Body) -> None:
        """Calls body(size, first column) for the tiles lo <= number < hi."""
        ...


def cut_columns(f: Function, extent: Value, largest: int, divisor: int = 1, long: bool = False) -> Columns:
    """Tiles of at most `largest` columns of an extent that is a multiple of `divisor`.

    long: it has many tiles, so that how the last ones are cut doesn't matter.
    """
    if extent.const is not None:
        return _Known(f, int(extent.const), largest)
    granule = gcd(divisor, _GRANULE)
    while granule > largest:
        granule //= 2
    if long:
        return _Long(f, extent, largest // granule * granule, granule)
    return _NearEqual(f, extent, largest, granule)


class _Known:
    """A known extent: near-equal tiles, of two sizes at most."""

    def __init__(self, f: Function, extent: int, largest: int) -> None:
        self.f = f
        self.parts = near_equal(extent, largest)
        self.count = f.const("i64", sum(n for _, n in self.parts))

    def visit(self, lo: Value, hi: Value, body: Body) -> None:
        f, number, start = self.f, 0, 0
        for size, count in self.parts:
            with f.loop(f.imax(lo, number), f.imin(hi, number + count)) as tile:
                body(size, (tile - number) * size + start)
            number += count
            start += size * count


class _NearEqual:
    """An unknown extent in near-equal tiles, whose sizes are multiples of a granule.

    If nothing is known of the extent, they are even, and an odd last column is a tile by itself: half the
    sizes, and so half the code.
    """

    def __init__(self, f: Function, extent: Value, largest: int, granule: int) -> None:
        self.f, self.extent = f, extent
        self.single = granule == 1 and largest > 1
        self.granule = 2 if self.single else granule
        self.most = largest // self.granule
        units = extent // self.granule
        self.num_even = (units + (self.most - 1)) // self.most
        self.size = units // f.imax(self.num_even, 1)
        self.num_larger = units - self.size * self.num_even
        self.count = self.num_even + extent % 2 if self.single else self.num_even

    def visit(self, lo: Value, hi: Value, body: Body) -> None:
        f = self.f
        with f.loop(lo, f.imin(hi, self.num_even)) as tile:
            size = f.select(tile.lt(self.num_larger), self.size + 1, self.size)
            start = (tile * self.size + f.imin(tile, self.num_larger)) * self.granule
            self._dispatch(size, 1, self.most, lambda units: body(units * self.granule, start))
        if self.single:
            with f.if_(hi.gt(self.num_even)):
                body(1, self.extent - 1)

    def _dispatch(self, size: Value, low: int, high: int, body: Callable[[int], None]) -> None:
        """Branches on a size known to lie in [low, high]."""
        if low == high:
            body(low)
            return
        middle = (low + high) // 2
        with self.f.if_else(size.le(middle)) as (then, otherwise):
            with then:
                self._dispatch(size, low, middle, body)
            with otherwise:
                self._dispatch(size, middle + 1, high, body)


class _Long:
    """A long unknown extent: tiles of one size; the last number stands for what is left, in powers of two."""

    def __init__(self, f: Function, extent: Value, size: int, granule: int) -> None:
        self.f, self.size, self.granule = f, size, granule
        self.num_full = extent // size
        self.rest = extent - self.num_full * size
        self.count = self.num_full + f.cast(self.rest.gt(0), "i64", signed=False)

    def visit(self, lo: Value, hi: Value, body: Body) -> None:
        f = self.f
        with f.loop(lo, f.imin(hi, self.num_full)) as tile:
            body(self.size, tile * self.size)
        if self.size == self.granule:
            return
        with f.if_(hi.gt(self.num_full)):
            part = 1 << ((self.size - 1).bit_length() - 1)
            while part >= self.granule:
                with f.if_((self.rest & part).ne(0)):
                    # the larger parts come first
                    body(part, self.num_full * self.size + (self.rest & -2 * part))
                part //= 2
