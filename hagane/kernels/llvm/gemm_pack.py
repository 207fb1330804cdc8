"""Copies a panel of a computed B into scratch memory, row k after row k, so that the product reads it in
order."""

from __future__ import annotations

from hagane.codegen.llvm import Function, Type, Value
from hagane.codegen.llvm.value import Operand
from hagane.kernels.llvm.gemm_tile import F32_BYTES, Tile


def pack_rows(
    f: Function,
    tile: Tile,
    target: Value,
    source: Value,
    depth: Value,
    step: Operand,
    masks: tuple[Value | None, ...],
) -> None:
    """From a B whose columns are adjacent; step: bytes from row to row. Columns that a mask excludes become
    0."""
    kind = Type("f32", tile.lanes)
    unroll = 4
    whole = depth // unroll * unroll

    def copy(k: Value, count: int) -> None:
        for u in range(count):
            row, place = f.ptr(source, (k + u) * step), f.ptr(target, (k + u) * tile.row_bytes)
            for v in range(tile.vectors):
                where = v * tile.lanes * F32_BYTES
                mask = masks[v] if masks else None
                value = f.load(kind, row, where) if mask is None else f.masked_load(kind, row, mask, where)
                f.store(value, place, where)

    with f.loop(0, whole, unroll) as k:
        copy(k, unroll)
    with f.loop(whole, depth) as k:
        copy(k, 1)


def pack_columns(
    f: Function, tile: Tile, target: Value, source: Value, depth: Value, column: Operand, last: Value
) -> None:
    """From a B whose rows k are adjacent, by transposing square blocks; column: bytes from column to column.

    Columns after number `last` repeat it: their sums are never stored. The target has room for depth rounded
    up to whole vectors.
    """
    lanes = tile.lanes
    kind = Type("f32", lanes)
    whole = depth // lanes * lanes
    for v in range(tile.vectors):
        starts = [f.ptr(source, f.imin(last, v * lanes + r) * column) for r in range(lanes)]
        goal = f.ptr(target, v * lanes * F32_BYTES)

        def block(k: Value, mask: Value | None, starts: list[Value] = starts, goal: Value = goal) -> None:
            rows = [
                f.load(kind, start, k * F32_BYTES)
                if mask is None
                else f.masked_load(kind, start, mask, k * F32_BYTES)
                for start in starts
            ]
            place = f.ptr(goal, k * tile.row_bytes)
            for j, row in enumerate(f.transpose(rows)):
                f.store(row, place, j * tile.row_bytes)

        with f.loop(0, whole, lanes) as k:
            block(k, None)
        if depth.const is None or int(depth.const) % lanes:
            with f.if_(whole.lt(depth)):
                block(whole, f.mask_below(depth - whole, lanes))


def pack_any(
    f: Function,
    tile: Tile,
    target: Value,
    source: Value,
    depth: Value,
    strides: tuple[Operand, Operand],
    last: Value,
) -> None:
    """From any B, element by element; strides: bytes from row to row and from column to column."""
    step, column = strides
    with f.loop(0, depth) as k:
        row, place = f.ptr(source, k * step), f.ptr(target, k * tile.row_bytes)
        with f.loop(0, tile.columns) as n:
            value = f.load("f32", row, f.imin(last, n) * column)
            f.store(value, place, n * F32_BYTES)
