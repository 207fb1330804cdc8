"""Places buffers with known sizes and lifetimes in one arena.

Greedy in several orders, each buffer into the tightest gap among those alive at the same time, then small
changes of the best order. The search ends early at the lower bound, the largest sum of live bytes, and its
length is bounded by work, not time: the result depends on the input alone.
"""

from __future__ import annotations

from collections.abc import Sequence

# (size in bytes, first step, last step, alignment); both steps belong to the lifetime
Request = tuple[int, int, int, int]

_GOOD_ENOUGH = 1.02  # times the lower bound; further search costs more than it saves
_PAIRS_PER_SEARCH = 40_000  # bounds the work of a search to about 10 ms


def assign_offsets(buffers: Sequence[Request]) -> tuple[list[int], int]:
    """Offsets, and the size of the arena; buffers that are alive at one step don't overlap."""
    if not any(size for size, _, _, _ in buffers):
        return [0] * len(buffers), 0
    neighbours = _neighbours(buffers)
    enough = int(peak_live_bytes(buffers) * _GOOD_ENOUGH)
    tries = _PAIRS_PER_SEARCH // (sum(map(len, neighbours)) // 2 + len(buffers) + 1)
    best_offsets, best_total, best_order = [0] * len(buffers), -1, list(range(len(buffers)))
    moves = _Moves()
    for number in range(max(1, tries)):
        order = _start_order(number, buffers) or moves.change(best_order)
        offsets, total = _place(order, buffers, neighbours)
        if total <= best_total or best_total < 0:
            best_offsets, best_total, best_order = offsets, total, order
        if best_total <= enough:
            break
    return best_offsets, best_total


class _Moves:
    """Small changes of an order, the same in every run: some buffer is placed earlier."""

    def __init__(self) -> None:
        self._state = 1

    def _next(self, limit: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % limit

    def change(self, order: list[int]) -> list[int]:
        source = self._next(len(order))
        target = self._next(source + 1)
        return [*order[:target], order[source], *order[target:source], *order[source + 1 :]]


def peak_live_bytes(buffers: Sequence[Request]) -> int:
    """The largest sum of the sizes of buffers that are alive at one step: no arena is smaller."""
    changes: dict[int, int] = {}
    for size, first, last, _ in buffers:
        changes[first] = changes.get(first, 0) + size
        changes[last + 1] = changes.get(last + 1, 0) - size
    live = peak = 0
    for step in sorted(changes):
        live += changes[step]
        peak = max(peak, live)
    return peak


def _neighbours(buffers: Sequence[Request]) -> list[list[int]]:
    """For each buffer, those alive at some step together with it; empty buffers have none."""
    result: list[list[int]] = [[] for _ in buffers]
    active: list[int] = []
    for index in sorted(range(len(buffers)), key=lambda i: buffers[i][1]):
        size, first, _, _ = buffers[index]
        if not size:
            continue
        active = [other for other in active if buffers[other][2] >= first]
        for other in active:
            result[other].append(index)
        result[index].extend(active)
        active.append(index)
    return result


def _start_order(number: int, buffers: Sequence[Request]) -> list[int] | None:
    """The first orders to try: by size, by size times lifetime, by lifetime, by start."""

    def rank(index: int) -> tuple[int, int]:
        size, first, last, _ = buffers[index]
        length = last - first + 1
        return ((-size, first), (-size * length, first), (-length, -size), (first, -size))[number]

    return sorted(range(len(buffers)), key=rank) if number < 4 else None


def _place(
    order: list[int], buffers: Sequence[Request], neighbours: list[list[int]]
) -> tuple[list[int], int]:
    offsets = [-1] * len(buffers)
    taken: list[list[tuple[int, int]]] = [[] for _ in buffers]
    total = 0
    for index in order:
        size, _, _, align = buffers[index]
        spans = taken[index]
        spans.sort()
        place = _tightest_gap(spans, size, align)
        offsets[index] = place
        span = (place, place + size)
        total = max(total, place + size)
        for other in neighbours[index]:
            if offsets[other] < 0:
                taken[other].append(span)
    return offsets, total


def _tightest_gap(taken: list[tuple[int, int]], size: int, align: int) -> int:
    """The start of the smallest gap between taken spans that fits, else the first place after all of them."""
    best, best_gap, end = -1, 0, 0
    for start, stop in taken:
        place = -(-end // align) * align
        gap = start - place
        if gap >= size and (best < 0 or gap < best_gap):
            best, best_gap = place, gap
        if stop > end:
            end = stop
    return best if best >= 0 else -(-end // align) * align
