"""Recipes that kernels build, run and compared with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.host.recipes import run_recipe
from hagane.ir.graph import constant
from hagane.kernels.packing import Packing, packing_of
from hagane.plan.model import Constant

Array = np.ndarray[Any, Any]
W = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)


def run(packing: Packing, w: Array = W) -> Array:
    packed = packing.finish()
    return run_recipe(Constant("c", packed.dtype, packed.shape, packed.recipe), {"w": w})


def start(w: Array = W) -> Packing:
    return packing_of(constant("w", w, DType.F32))


def test_a_chain_of_steps() -> None:
    packing = start().pad_to(2, 4, 4).reshape(2, 2, 2, 4).transpose(1, 0, 3, 2)
    expected = np.pad(W, ((0, 0), (0, 1), (0, 0))).reshape(2, 2, 2, 4).transpose(1, 0, 3, 2)
    assert packing.shape == expected.shape
    np.testing.assert_array_equal(run(packing), expected)


def test_padding_to_the_same_shape_is_no_step() -> None:
    assert start().pad_to(2, 3, 4) == start()


def test_reverse_and_take() -> None:
    np.testing.assert_array_equal(run(start().reverse(1, 2)), W[:, ::-1, ::-1])
    taken = start().take((0, 1, 1), (2, 3, 4), (1, 1, 2))
    np.testing.assert_array_equal(run(taken), W[:, 1:3, 1:4:2])


def test_winograd_weights_have_36_points() -> None:
    w = np.ones((5, 2, 3, 3), np.float32)
    packing = start(w).winograd_f43()
    assert packing.shape == (5, 2, 6, 6)
    assert run(packing, w).shape == (5, 2, 6, 6)
