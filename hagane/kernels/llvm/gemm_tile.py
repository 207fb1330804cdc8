"""The inner kernel of every matrix product: a block of C in registers, a row of B and broadcasts of A at each
step.

Each element is a chain of fused multiply-adds over k in ascending order, the same in tiles of every height;
only the lowest tiles, which never meet another height in one run, split the chain to hide its latency (see
`phases`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hagane.codegen.llvm import Function, Type, Value, Var
from hagane.codegen.llvm.value import Operand
from hagane.core.targets import CpuTarget

F32_BYTES = 4
# an FMA takes 4 cycles and two start in each
_CHAINS_TO_FILL = 8
_MAX_ROWS = 14
# steps of a partial sum, and up to how many a sum stays in one
_PART_DEPTH, _LONG_DEPTH = 128, 192
_LINE_BYTES = 64


@dataclass(frozen=True)
class Rows:
    """Operand A of a tile: element (r, k) is at pointer + r * row + k * step, in bytes."""

    pointer: Value
    row: Operand
    step: Operand = F32_BYTES


@dataclass(frozen=True)
class Panel:
    """Operand B of a tile: vector v of row k is at pointer + k * step + v vectors.

    masks: for each vector the lanes that may be read; empty if all may. ahead: memory to fetch into the
    second-level cache meanwhile, `lines` cache lines for each turn of the loop.
    """

    pointer: Value
    step: Operand
    masks: tuple[Value | None, ...] = ()
    ahead: Value | None = None
    lines: int = 1


@dataclass(frozen=True)
class Tile:
    """rows x vectors accumulators of `lanes` floats; the loop over k takes `unroll` steps a turn."""

    rows: int
    vectors: int
    lanes: int
    unroll: int = 4
    phases: int = 1

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    @property
    def row_bytes(self) -> int:
        return self.columns * F32_BYTES


def max_rows(target: CpuTarget, vectors: int) -> int:
    """The most rows whose accumulators leave registers for a row of B and one broadcast."""
    return min(_MAX_ROWS, (target.num_vector_registers - 1) // vectors - 1)


def phases(rows: int, vectors: int, most_rows: int) -> int:
    """Into how many chains a tile splits the sum over k.

    Rows are spread evenly over tiles, so tiles lower than half of most_rows stand alone: identical rows of
    one run always take the same way.
    """
    if rows >= (most_rows + 1) // 2:
        return 1
    return max(1, min(4, _CHAINS_TO_FILL // (rows * vectors)))


@dataclass(frozen=True)
class Sums:
    """Where a tile's sums are stored: element (r, c) at pointer + r * row bytes + c floats."""

    pointer: Value
    row: Operand


def multiply(f: Function, tile: Tile, depth: Operand, a: Rows, b: Panel) -> list[list[Value]]:
    """The tile's sums over k in [0, depth): a vector per row and column block."""
    if _is_short(depth):
        return _multiply_part(f, tile, f.literal(depth, "i64"), a, b)
    buffer = Sums(f.stack(tile.rows * tile.row_bytes), tile.row_bytes)
    multiply_into(f, tile, depth, a, b, buffer)
    kind = Type("f32", tile.lanes)
    return [
        [f.load(kind, buffer.pointer, r * tile.row_bytes + v * kind.nbytes) for v in range(tile.vectors)]
        for r in range(tile.rows)
    ]


def multiply_into(f: Function, tile: Tile, depth: Operand, a: Rows, b: Panel, out: Sums) -> None:
    """As multiply, with the sums in memory.

    A long sum is one of partial sums, each of a part of k: its rounding error grows with the square root of
    the length then, rather than with the length.
    """
    count = f.literal(depth, "i64")
    if _is_short(depth):
        store_sums(f, tile, _multiply_part(f, tile, count, a, b), out)
        return
    zero = f.const(Type("f32", tile.lanes), 0.0)
    store_sums(f, tile, [[zero] * tile.vectors] * tile.rows, out)
    part = _part_length(depth, tile.unroll)
    with f.loop(0, count, part) as start:
        ahead = b.ahead
        if ahead is not None:
            ahead = f.ptr(ahead, start // tile.unroll * (b.lines * _LINE_BYTES))
        here = replace(b, pointer=f.ptr(b.pointer, _scaled(f, b.step, start)), ahead=ahead)
        rows = replace(a, pointer=f.ptr(a.pointer, _scaled(f, a.step, start)))
        whole = count.const is not None and int(count.const) % part == 0
        length = f.const("i64", part) if whole else f.imin(count - start, part)
        sums = _multiply_part(f, tile, length, rows, here)
        for r, row in enumerate(sums):
            place = f.ptr(out.pointer, _scaled(f, out.row, r))
            for v, total in enumerate(row):
                where = v * tile.lanes * F32_BYTES
                f.store(f.load(total.type, place, where) + total, place, where)


def store_sums(f: Function, tile: Tile, sums: list[list[Value]], out: Sums) -> None:
    """Stores a tile's sums."""
    for r, row in enumerate(sums):
        place = f.ptr(out.pointer, _scaled(f, out.row, r))
        for v, total in enumerate(row):
            f.store(total, place, v * tile.lanes * F32_BYTES)


def _is_short(depth: Operand) -> bool:
    known = depth if isinstance(depth, int) else getattr(depth, "const", None)
    return known is not None and int(known) <= _LONG_DEPTH


def _part_length(depth: Operand, unroll: int) -> int:
    """Steps of a partial sum: about _PART_DEPTH, whole turns of the loop, all parts alike if the depth is
    known."""
    known = depth if isinstance(depth, int) else getattr(depth, "const", None)
    if known is None:
        return _PART_DEPTH
    even = -(-int(known) // -(-int(known) // _PART_DEPTH))
    return -(-even // unroll) * unroll


def _multiply_part(f: Function, tile: Tile, count: Value, a: Rows, b: Panel) -> list[list[Value]]:
    kind = Type("f32", tile.lanes)
    sums = [
        [[Var(f, kind, 0.0) for _ in range(tile.vectors)] for _ in range(tile.rows)]
        for _ in range(tile.phases)
    ]
    starts = [f.ptr(a.pointer, _scaled(f, a.row, r)) for r in range(tile.rows)]

    def step(k: Operand, first: int) -> None:
        """Steps k + first: adds one product to every accumulator of the phase."""
        column = f.ptr(b.pointer, _scaled(f, b.step, k))
        row = _load_row(f, tile, b, column, _scaled(f, b.step, first))
        offset = _scaled(f, a.step, k)
        for r in range(tile.rows):
            place = f.ptr(starts[r], offset)
            factor = f.load_broadcast("f32", tile.lanes, place, _scaled(f, a.step, first))
            for total, vector in zip(sums[first % tile.phases][r], row, strict=True):
                total.set(f.fma(factor, vector, total.value))

    whole = count // tile.unroll * tile.unroll
    with f.loop(0, whole, tile.unroll) as k:
        if b.ahead is not None:
            place = f.ptr(b.ahead, k // tile.unroll * (b.lines * _LINE_BYTES))
            for line in range(b.lines):
                f.prefetch(place, line * _LINE_BYTES, locality=2)
        for u in range(tile.unroll):
            step(k, u)
    if count.const is not None:
        for u in range(int(count.const) % tile.unroll):
            step(whole, u)
    else:
        with f.loop(whole, count) as k:
            step(k, 0)
    return [[_join([p[r][v].value for p in sums]) for v in range(tile.vectors)] for r in range(tile.rows)]


def _scaled(f: Function, stride: Operand, count: Operand) -> Operand:
    if isinstance(stride, int) and isinstance(count, int):
        return stride * count
    return f.literal(stride, "i64") * count


def _load_row(f: Function, tile: Tile, b: Panel, place: Value, offset: Operand) -> list[Value]:
    kind = Type("f32", tile.lanes)
    start = f.ptr(place, offset)
    row = []
    for v in range(tile.vectors):
        where = v * tile.lanes * F32_BYTES
        mask = b.masks[v] if b.masks else None
        row.append(f.load(kind, start, where) if mask is None else f.masked_load(kind, start, mask, where))
    return row


def _join(parts: list[Value]) -> Value:
    while len(parts) > 1:
        parts = [parts[i] + parts[i + 1] if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


def balanced_heights(rows: int, most_rows: int) -> list[tuple[int, int]]:
    """Rows spread evenly over the fewest tiles: (height, how many), the higher ones first."""
    count = -(-rows // most_rows)
    if not count:
        return []
    low, more = divmod(rows, count)
    return [(h, n) for h, n in ((low + 1, more), (low, count - more)) if n]


def cycles_per_step(rows: int, vectors: int, num_phases: int) -> float:
    """Estimated cycles of one step over k: two FMAs or two loads a cycle, and the latency of a chain."""
    return max(rows * vectors / 2, (rows + vectors) / 2, 4 / num_phases)
