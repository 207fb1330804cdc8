"""Host steps against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from hagane.core.errors import EngineError
from hagane.host.steps import HOST_STEPS, find_step


def test_nonzero() -> None:
    x = np.array([[0, 2], [3, 0], [0, 5]])
    (got,) = find_step("nonzero")({}, x)
    assert got.dtype == np.int64 and got.tolist() == [[0, 1, 2], [1, 0, 1]]
    assert find_step("nonzero")({}, np.zeros((2, 2)))[0].shape == (2, 0)
    assert find_step("nonzero")({}, np.array(5.0))[0].shape == (0, 1)


@pytest.mark.parametrize("sorted_", [True, False])
def test_unique(sorted_: bool) -> None:
    x = np.array([[3, 1], [1, 2]], np.float32)
    values, first, inverse, counts = find_step("unique")({"sorted": sorted_}, x)
    assert values.tolist() == ([1, 2, 3] if sorted_ else [3, 1, 2])
    assert values.dtype == np.float32
    assert np.array_equal(values[inverse], x.reshape(-1))
    assert np.array_equal(x.reshape(-1)[first], values)
    assert counts.sum() == 4


def test_unique_along_an_axis() -> None:
    x = np.array([[2, 1], [1, 1], [2, 1]], np.int64)
    values, first, inverse, counts = find_step("unique")({"axis": 0, "sorted": False}, x)
    assert values.tolist() == [[2, 1], [1, 1]]
    assert first.tolist() == [0, 1] and inverse.tolist() == [0, 1, 0] and counts.tolist() == [2, 1]
    with pytest.raises(EngineError):
        find_step("unique")({"axis": "x"}, x)


def test_strings() -> None:
    a, b = np.array(["x", "yy"], object), np.array("z", object)
    assert find_step("string_concat")({}, a, b)[0].tolist() == ["xz", "yyz"]
    assert find_step("string_equal")({}, a, np.array(["x", "y"], object))[0].tolist() == [True, False]


def test_unknown_step() -> None:
    with pytest.raises(EngineError, match="host step fly"):
        find_step("fly")
    assert set(HOST_STEPS) >= {"nonzero", "unique"}
