"""Builds the recipes of packed constants: chains of array operations on a constant of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hagane.core.dtypes import DType
from hagane.core.errors import InternalError
from hagane.ir.graph import Value
from hagane.kernels.tactic import Packed
from hagane.plan.model import Attr, Recipe, RecipeNode


@dataclass(frozen=True)
class Packing:
    """A recipe in the making, with the dtype and shape of its result; each method gives a longer one."""

    recipe: Recipe
    dtype: DType
    shape: tuple[int, ...]

    def reshape(self, *shape: int) -> Packing:
        return self._then("reshape", shape, shape=shape)

    def transpose(self, *perm: int) -> Packing:
        return self._then("transpose", tuple(self.shape[p] for p in perm), perm=perm)

    def pad_to(self, *shape: int) -> Packing:
        """Zeros behind the elements of each axis, up to a shape."""
        if shape == self.shape:
            return self
        after = tuple(want - have for want, have in zip(shape, self.shape, strict=True))
        return self._then("pad", shape, before=(0,) * len(shape), after=after)

    def reverse(self, *axes: int) -> Packing:
        """The elements of some axes in reverse order."""
        start = tuple(d - 1 if k in axes else 0 for k, d in enumerate(self.shape))
        stop = tuple(-d - 1 if k in axes else d for k, d in enumerate(self.shape))
        step = tuple(-1 if k in axes else 1 for k in range(len(self.shape)))
        return self._then("slice", self.shape, start=start, stop=stop, step=step)

    def take(self, start: tuple[int, ...], stop: tuple[int, ...], step: tuple[int, ...]) -> Packing:
        """Every step-th element of each axis from start up to stop."""
        shape = [max(0, -(-(b - a) // s)) for a, b, s in zip(start, stop, step, strict=True)]
        return self._then("slice", shape, start=start, stop=stop, step=step)

    def winograd_f43(self) -> Packing:
        """w[..., 3, 3] as [..., 6, 6] for F(4x4, 3x3)."""
        return self._then("winograd_f43", (*self.shape[:-2], 6, 6))

    def finish(self) -> Packed:
        """The kernel argument."""
        return Packed(self.recipe, self.dtype, self.shape)

    def _then(self, op: str, shape: Sequence[int], /, **attrs: Attr) -> Packing:
        node = RecipeNode(op, (len(self.recipe.nodes) - 1,), attrs)
        return Packing(Recipe((*self.recipe.nodes, node)), self.dtype, tuple(shape))


def packing_of(value: Value) -> Packing:
    """The start: a constant as the graph has it. Raises: InternalError if the value is no constant."""
    shape = value.static_shape
    if not value.is_const or shape is None:
        raise InternalError(f"{value} is no constant, it can't be packed")
    recipe = value.recipe or Recipe((RecipeNode("weight", (value.name,)),))
    return Packing(recipe, value.dtype, shape)
