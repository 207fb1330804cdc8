"""What recipes give, for the packed constants of kernels under test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hagane.plan.model import Recipe

Array = np.ndarray[Any, Any]


def evaluate(recipe: Recipe, weights: Mapping[str, Array]) -> Array:
    """The array that a recipe makes from weights by name."""
    try:
        from hagane.host.recipes import run_recipe  # type: ignore[attr-defined]
    except ImportError:
        return _evaluate(recipe, weights)
    return np.asarray(run_recipe(recipe, weights))


def _evaluate(recipe: Recipe, weights: Mapping[str, Array]) -> Array:
    made: list[Array] = []
    for node in recipe.nodes:
        args = [made[i] if isinstance(i, int) else weights[i] for i in node.inputs]
        made.append(_OPS[node.op](node.attrs, *args))
    return np.ascontiguousarray(made[-1])


def _winograd(attrs: Mapping[str, Any], w: Array) -> Array:
    g = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24
    return np.einsum("ai,ocij,bj->aboc", g, w.astype(np.float64), g).astype(np.float32)


_OPS: dict[str, Any] = {
    "weight": lambda attrs, w: w,
    "reshape": lambda attrs, x: x.reshape(attrs["shape"]),
    "transpose": lambda attrs, x: x.transpose(attrs["perm"]),
    "pad": lambda attrs, x: np.pad(x, list(zip(attrs["before"], attrs["after"], strict=True))),
    "broadcast_to": lambda attrs, x: np.broadcast_to(x, attrs["shape"]),
    "flip": lambda attrs, x: np.flip(x, attrs["axes"]),
    "winograd_f43": _winograd,
}
