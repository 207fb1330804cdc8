"""Offsets of layouts against NumPy's idea of the same arrangement."""

import itertools

import numpy as np
import pytest

from hagane.core.symbolic import const, sym
from hagane.ir.layout import (
    ANY,
    Layout,
    blocked_channels,
    merge_halos,
    num_elements,
    offset_of,
    parse_layout,
    satisfies,
)

SHAPE = (2, 10, 3, 4)
HALO = ((0, 0), (0, 0), (1, 0), (2, 1))


def stored(array: np.ndarray, layout: Layout) -> np.ndarray:
    """The memory of an array in a layout, padding zero."""
    factors = dict(layout.blocks)
    widths = [
        layout.halo_of(axis) if axis not in factors else (0, -array.shape[axis] % factors[axis])
        for axis in range(array.ndim)
    ]
    padded = np.pad(array, widths)
    for axis, factor in layout.blocks:
        padded = padded.reshape(*padded.shape[:axis], -1, factor, *padded.shape[axis + 1 :])
        padded = np.moveaxis(padded, axis + 1, -1)
    return padded.transpose(*layout.order, *range(array.ndim, padded.ndim)).reshape(-1)


@pytest.mark.parametrize(
    "layout",
    [
        None,
        Layout((0, 2, 3, 1)),
        Layout((0, 1, 2, 3), (), HALO),
        blocked_channels(4, 4),
        blocked_channels(4, 16, HALO),
        Layout((0, 2, 3, 1), ((1, 8),), HALO),
    ],
    ids=str,
)
def test_offsets(layout):
    array = np.arange(1, np.prod(SHAPE) + 1).reshape(SHAPE)
    dims = tuple(map(const, SHAPE))
    memory = array.reshape(-1) if layout is None else stored(array, layout)
    assert num_elements(layout, dims).value == memory.size
    for index in itertools.product(*map(range, SHAPE)):
        offset = offset_of(layout, dims, tuple(map(const, index)))
        assert memory[offset.value] == array[index]


def test_offsets_over_symbolic_dims():
    batch, row = sym("B", 1), sym("i", bound=sym("B", 1))
    layout = blocked_channels(3, 4)
    offset = layout.offset((batch, const(8), const(5)), (row, const(6), const(2)))
    assert str(offset) == "40*i + 30"
    assert str(layout.num_elements((batch, const(8), const(5)))) == "40*B"


def test_text_reads_back():
    for layout in (Layout((0, 2, 3, 1)), blocked_channels(4, 16, HALO), Layout((1, 0), ((0, 2), (1, 4)))):
        assert parse_layout(str(layout), len(layout.order)) == layout
    with pytest.raises(ValueError, match="is no part of a layout"):
        parse_layout("01_x2", 2)


def test_a_halo_that_is_larger_than_required_is_fine():
    small, large = blocked_channels(4, 8, ((0, 0), (0, 0), (1, 1), (1, 1))), blocked_channels(4, 8, HALO)
    both = merge_halos(small, large)
    assert both == blocked_channels(4, 8, ((0, 0), (0, 0), (1, 1), (2, 1)))
    assert satisfies(both, small) and satisfies(both, large) and not satisfies(small, large)
    assert satisfies(small, ANY) and satisfies(None, None) and not satisfies(small, None)
    assert not satisfies(None, small) and not satisfies(blocked_channels(4, 4), blocked_channels(4, 8))
    assert merge_halos(blocked_channels(4, 4), blocked_channels(4, 8)) is None
