"""Arrays in and out of layouts, with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from hagane.ir.layout import Layout

Array = np.ndarray[Any, Any]


def pack(array: Array, layout: Layout | None) -> Array:
    """The array as it lies in memory; halo and unused lanes are zero."""
    if layout is None:
        return np.ascontiguousarray(array).reshape(-1)
    factors = layout.block_of
    widths, split, outer, inner = [], [], {}, {}
    for axis, extent in enumerate(array.shape):
        factor = factors.get(axis)
        before, after = (0, -extent % factor) if factor else layout.halo_of(axis)
        widths.append((before, after))
        outer[axis] = len(split)
        split.append((extent + before + after) // (factor or 1))
        if factor:
            inner[axis] = len(split)
            split.append(factor)
    order = [outer[axis] for axis in layout.order] + [inner[axis] for axis, _ in layout.blocks]
    return np.ascontiguousarray(np.pad(array, widths).reshape(split).transpose(order)).reshape(-1)


def unpack(memory: Array, layout: Layout | None, shape: tuple[int, ...]) -> Array:
    """The logical array out of memory. Halo and lanes are dropped."""
    if layout is None:
        return memory.reshape(shape)
    places = pack(np.arange(1, 1 + int(np.prod(shape)), dtype=np.int64).reshape(shape), layout)
    result = np.empty(int(np.prod(shape)), memory.dtype)
    result[places[places > 0] - 1] = memory[places > 0]
    return result.reshape(shape)


def padding(memory: Array, layout: Layout | None, shape: tuple[int, ...]) -> Array:
    """The elements of halo and unused lanes."""
    ones = pack(np.ones(shape, np.int8), layout)
    return memory[ones == 0]
