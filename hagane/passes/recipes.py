"""Recipes for constants: how a folded tensor is made again from the model's weights."""

from __future__ import annotations

from typing import Any

from hagane.core.symbolic import Expr
from hagane.ir.graph import Node, Value
from hagane.ops.primitives import SATURATING
from hagane.plan.model import Attrs, Recipe, RecipeNode

_ELEMENTWISE = {"add", "sub", "mul", "div", "neg", "sqrt"}


def recipe_of(value: Value) -> Recipe:
    """The recipe of a constant; a constant without one is a weight of that name."""
    return value.recipe or Recipe((RecipeNode("weight", (value.name,)),))


def derived(op: str, inputs: list[Recipe], attrs: Attrs) -> Recipe:
    """The recipe that applies one op to the results of others."""
    numbers: dict[str, int] = {}
    nodes: list[RecipeNode] = []
    heads: list[int | str] = []
    for recipe in inputs:
        places: list[int] = []  # of this recipe's nodes in the joint one, where equal nodes stand once
        for node in recipe.nodes:
            moved = tuple(places[i] if isinstance(i, int) else i for i in node.inputs)
            joined = RecipeNode(node.op, moved, node.attrs)
            number = numbers.setdefault(repr(joined), len(nodes))
            if number == len(nodes):
                nodes.append(joined)
            places.append(number)
        heads.append(places[-1])
    return Recipe((*nodes, RecipeNode(op, tuple(heads), attrs)))


def recipe_for(node: Node) -> Recipe | None:
    """The recipe of a node over constants; None if its op is not one that engines repeat."""
    attrs = _attrs(node)
    if attrs is None:
        return None
    return derived(node.op, [recipe_of(v) for v in node.inputs if v is not None], attrs)


def _attrs(node: Node) -> dict[str, Any] | None:
    if node.op in _ELEMENTWISE:
        return {} if node.output.dtype.is_float else None
    if node.op == "reshape":
        return {"shape": _ints(node.attrs["shape"])}
    if node.op == "broadcast_to":
        return {"shape": _ints(node.attrs["shape"])}
    if node.op == "transpose":
        return {"perm": tuple(node.attrs["perm"])}
    if node.op == "cast":
        source, target = node.input(0).dtype, node.output.dtype
        if target in SATURATING or target.bits < 8:  # there a recipe's cast overflows or wraps differently
            return None
        return {"dtype": target.value} if target.is_float or source.is_int else None
    return None


def _ints(dims: tuple[Expr | int, ...]) -> tuple[int, ...]:
    return tuple(d.value if isinstance(d, Expr) else d for d in dims)
