"""From a map of text probabilities to the boxes of text lines, in NumPy.

Threshold, connected regions, the smallest turned rectangle around each, grown to what the detector shrank.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

# PP-OCR's own settings
PIXEL_THRESHOLD = 0.3
BOX_THRESHOLD = 0.5
GROWTH = 1.6  # the detector is trained on boxes shrunk by area * ratio / perimeter
MIN_SIDE = 3.0  # pixels


class Box(NamedTuple):
    """corners: f32[4, 2] as x and y, clockwise from the upper left of the text. score: mean probability."""

    corners: Array
    score: float


def text_boxes(probability: Array) -> list[Box]:
    """The boxes of text in a map f32[H, W], in reading order."""
    found = []
    for rows, columns in components(probability > PIXEL_THRESHOLD):
        score = float(probability[rows, columns].mean())
        corners = smallest_rectangle(np.stack([columns, rows], axis=1).astype(np.float64))
        width, height = sides(corners)
        if score >= BOX_THRESHOLD and min(width, height) >= MIN_SIDE:
            found.append(Box(grow(corners, width * height * GROWTH / (2 * (width + height))), score))
    return reading_order(found)


def components(mask: Array) -> Iterator[tuple[Array, Array]]:
    """Rows and columns of each 8-connected region: runs of pixels, merged where they touch."""
    edges = np.diff(np.pad(mask.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    rows, starts = np.nonzero(edges == 1)
    stops = np.nonzero(edges == -1)[1]
    first_of_row = np.searchsorted(rows, np.arange(mask.shape[0] + 1))
    pairs = [
        (run, above)
        for run, row in enumerate(rows)
        for above in (range(first_of_row[row - 1], first_of_row[row]) if row else ())
        if starts[above] <= stops[run] and starts[run] <= stops[above]
    ]
    for runs in _groups(len(rows), pairs):
        yield (
            np.concatenate([np.full(stops[r] - starts[r], rows[r]) for r in runs]),
            np.concatenate([np.arange(starts[r], stops[r]) for r in runs]),
        )


def _groups(count: int, pairs: list[tuple[int, int]]) -> list[list[int]]:
    """The numbers 0 .. count in groups such that the two of each pair are in one, by union and find."""
    parents = list(range(count))

    def root(item: int) -> int:
        while parents[item] != item:
            parents[item] = parents[parents[item]]
            item = parents[item]
        return item

    for a, b in pairs:
        parents[root(a)] = root(b)
    groups: dict[int, list[int]] = {}
    for item in range(count):
        groups.setdefault(root(item), []).append(item)
    return list(groups.values())


def convex_hull(points: Array) -> Array:
    """The corners of the hull of f64[N, 2], in order (Andrew's monotone chain)."""
    ordered = np.unique(points, axis=0)
    if len(ordered) < 3:
        return ordered
    return np.array(_half_hull(ordered)[:-1] + _half_hull(ordered[::-1])[:-1])


def _half_hull(points: Array) -> list[Array]:
    chain: list[Array] = []
    for p in points:
        while len(chain) > 1:
            a, b = chain[-2], chain[-1]
            if (b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0]) > 0:
                break
            chain.pop()
        chain.append(p)
    return chain


def smallest_rectangle(points: Array) -> Array:
    """The corners f64[4, 2] of the rectangle of least area around points; a side of it lies on the hull."""
    hull = convex_hull(points)
    edges = np.roll(hull, -1, axis=0) - hull
    angles = np.unique(np.mod(np.arctan2(edges[:, 1], edges[:, 0]), np.pi / 2))
    cos, sin = np.cos(angles), np.sin(angles)
    turns = np.stack([cos, sin, -sin, cos], axis=1).reshape(-1, 2, 2)
    turned = hull @ turns.transpose(0, 2, 1)
    low, high = turned.min(axis=1), turned.max(axis=1)
    best = int(np.prod(high - low, axis=1).argmin())
    (left, top), (right, bottom) = low[best], high[best]
    corners = np.array([[left, top], [right, top], [right, bottom], [left, bottom]]) @ turns[best]
    return _upper_left_first(corners)


def _upper_left_first(corners: Array) -> Array:
    """The same rectangle, clockwise, from the upper one of the two corners on the left."""
    by_x = corners[np.argsort(corners[:, 0], kind="stable")]
    left, right = by_x[:2], by_x[2:]
    top_left, bottom_left = left[np.argsort(left[:, 1])]
    top_right, bottom_right = right[np.argsort(right[:, 1])]
    return np.array([top_left, top_right, bottom_right, bottom_left])


def sides(corners: Array) -> tuple[float, float]:
    """Width and height of a rectangle by its corners."""
    top, side = corners[1] - corners[0], corners[3] - corners[0]
    return float(np.hypot(*top)), float(np.hypot(*side))


def grow(corners: Array, distance: float) -> Array:
    """The rectangle with every side moved outwards by a distance."""
    width, height = sides(corners)
    along = (corners[1] - corners[0]) / width * distance
    down = (corners[3] - corners[0]) / height * distance
    moved: Array = corners + np.array([-along - down, along - down, along + down, down - along])
    return moved


def reading_order(boxes: list[Box]) -> list[Box]:
    """Boxes block by block (those that are less than two line heights apart), each line by line."""
    reach = [
        (b.corners.min(axis=0) - sides(b.corners)[1], b.corners.max(axis=0) + sides(b.corners)[1])
        for b in boxes
    ]
    near = [
        (i, j)
        for i, (low, high) in enumerate(reach)
        for j in range(i)
        if (low <= reach[j][1]).all() and (reach[j][0] <= high).all()
    ]
    blocks = [[boxes[i] for i in group] for group in _groups(len(boxes), near)]
    blocks.sort(key=lambda block: (min(b.corners[:, 0].min() for b in block), block[0].corners[0, 1]))
    return [box for block in blocks for box in _line_by_line(block)]


def _line_by_line(boxes: list[Box]) -> list[Box]:
    rest = sorted(boxes, key=lambda box: float(box.corners[:, 1].mean()))
    ordered: list[Box] = []
    while rest:
        middle, height = float(rest[0].corners[:, 1].mean()), sides(rest[0].corners)[1]
        line = [box for box in rest if float(box.corners[:, 1].mean()) - middle < height / 2]
        ordered += sorted(line, key=lambda box: float(box.corners[:, 0].min()))
        rest = rest[len(line) :]
    return ordered
