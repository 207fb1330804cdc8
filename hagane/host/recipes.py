"""Makes packed constants from canonical weights by running recipes with NumPy.

Each operation is one function from (inputs, attributes) to an array. Rounding happens where a recipe says
so: an operation on two arrays wants one dtype, and what is computed in float64 inside is rounded once, to
the dtype of its first input. An intermediate result may be a bounded number of times larger than what goes
in, so that a damaged recipe can't exhaust memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import EngineError
from hagane.plan.model import Attrs, Constant, Recipe, RecipeNode

Array = np.ndarray[Any, Any]
_Operation = Callable[[Sequence[Array], Attrs], Array]

# the Winograd transform of float32 weights to float64 needs 8 times the input; padding small dims to a
# block of 16
_MOST_GROWTH = 16
_FREE_BYTES = 64 << 20


def run_recipe(constant: Constant, weights: Mapping[str, Array]) -> Array:
    """The content of a packed constant, in C order; may be the weight itself, if the recipe changes nothing.

    Raises: EngineError if the recipe fails or gives another dtype or shape than the constant has.
    """
    results: list[Array] = []
    nodes = constant.recipe.nodes
    try:
        for node in nodes:
            inputs = [weights[i] if isinstance(i, str) else _earlier(results, i) for i in node.inputs]
            results.append(_run_node(node, inputs))
        result = results[-1]
        with np.errstate(all="ignore"):
            result = np.ascontiguousarray(result).reshape(result.shape)
    except EngineError:
        raise
    except (
        KeyError,
        IndexError,
        TypeError,
        ValueError,
        OverflowError,
        MemoryError,
        ArithmeticError,
    ) as error:
        raise EngineError(
            f"the recipe of constant {constant.name} fails at node {len(results)}: {error!r}",
            where={"recipe": " -> ".join(node.op for node in nodes) or "(empty)"},
            next_step="the engine file is damaged; build it anew",
        ) from error
    if result.dtype != constant.dtype.np or result.shape != constant.shape:
        raise EngineError(
            f"the recipe of constant {constant.name} gives {result.dtype}{list(result.shape)}, "
            f"the plan says {constant.dtype.np}{list(constant.shape)}",
            next_step="the engine file is damaged; build it anew",
        )
    return result


def weights_of(recipe: Recipe) -> list[str]:
    """Names of the canonical weights that a recipe reads, in order of first use."""
    return list(dict.fromkeys(i for node in recipe.nodes for i in node.inputs if isinstance(i, str)))


def is_identity(recipe: Recipe) -> bool:
    """True if the constant is one canonical weight's bytes, perhaps of another shape."""
    first, *rest = recipe.nodes or (RecipeNode("", ()),)
    return first.op == "weight" and all(
        node.op == "reshape" and node.inputs == (place,) for place, node in enumerate(rest)
    )


def _earlier(results: list[Array], index: int) -> Array:
    if not 0 <= index < len(results):
        raise IndexError(f"no earlier node {index}")
    return results[index]


def _run_node(node: RecipeNode, inputs: list[Array]) -> Array:
    operation = _OPERATIONS.get(node.op)
    if operation is None:
        raise EngineError(f"this version knows no recipe operation {node.op}")
    with np.errstate(all="ignore"):  # overflow to infinity is what a cast means
        return operation(inputs, node.attrs)


def _ints(attrs: Attrs, name: str) -> tuple[int, ...]:
    value = attrs[name]
    if not isinstance(value, tuple) or not all(type(item) is int for item in value):
        raise TypeError(f"{name} must be a list of integers")
    return value  # type: ignore[return-value]


def _int(attrs: Attrs, name: str) -> int:
    value = attrs[name]
    if type(value) is not int:
        raise TypeError(f"{name} must be an integer")
    return value


def _check_growth(shape: Sequence[int], itemsize: int, inputs: Sequence[Array]) -> None:
    size = prod(shape) * itemsize
    if size > _MOST_GROWTH * sum(item.nbytes for item in inputs) + _FREE_BYTES or min(shape, default=0) < 0:
        raise ValueError(f"a result of shape {list(shape)} is out of proportion to its inputs")


def _only(inputs: Sequence[Array]) -> Array:
    (value,) = inputs
    return value


def _pad(inputs: Sequence[Array], attrs: Attrs) -> Array:
    value, before, after = _only(inputs), _ints(attrs, "before"), _ints(attrs, "after")
    if not len(before) == len(after) == value.ndim or min(before + after, default=0) < 0:
        raise ValueError("before and after must have one non-negative entry for each axis")
    shape = [low + size + high for low, size, high in zip(before, value.shape, after, strict=True)]
    _check_growth(shape, value.itemsize, inputs)
    result = np.zeros(shape, value.dtype)
    result[tuple(slice(low, low + size) for low, size in zip(before, value.shape, strict=True))] = value
    return result


def _slice(inputs: Sequence[Array], attrs: Attrs) -> Array:
    value, start, stop = _only(inputs), _ints(attrs, "start"), _ints(attrs, "stop")
    step = _ints(attrs, "step") if "step" in attrs else (1,) * len(start)
    if len(start) != value.ndim:
        raise ValueError("start must have one entry for each axis")
    return value[tuple(slice(a, b, c) for a, b, c in zip(start, stop, step, strict=True))]


def _shard_slice(inputs: Sequence[Array], attrs: Attrs) -> Array:
    """Part `index` of `count` equal parts along an axis: what one rank of a mesh holds."""
    value, axis, index, count = _only(inputs), _int(attrs, "axis"), _int(attrs, "index"), _int(attrs, "count")
    if not 0 <= index < count or value.shape[axis] % count:
        raise ValueError(f"axis {axis} of {list(value.shape)} has no part {index} of {count}")
    part = value.shape[axis] // count
    return np.moveaxis(np.moveaxis(value, axis, 0)[index * part : (index + 1) * part], 0, axis)


def _cast(inputs: Sequence[Array], attrs: Attrs) -> Array:
    return _only(inputs).astype(DType(attrs["dtype"]).np)


def _broadcast_to(inputs: Sequence[Array], attrs: Attrs) -> Array:
    shape = _ints(attrs, "shape")
    _check_growth(shape, inputs[0].itemsize, inputs)
    return np.broadcast_to(_only(inputs), shape)


def _concat(inputs: Sequence[Array], attrs: Attrs) -> Array:
    if len({item.dtype for item in inputs}) != 1:
        raise TypeError("the parts have different dtypes")
    return np.concatenate(list(inputs), axis=_int(attrs, "axis"))


def _binary(function: Callable[[Any, Any], Any]) -> _Operation:
    """Two arrays of one dtype, or one and the attribute `value`, which is rounded to its dtype first."""

    def run(inputs: Sequence[Array], attrs: Attrs) -> Array:
        if "value" in attrs:
            inputs = [_only(inputs), np.array(attrs["value"], inputs[0].dtype)]
        left, right = inputs
        if left.dtype != right.dtype:
            raise TypeError(f"the inputs are {left.dtype} and {right.dtype}")
        _check_growth(np.broadcast_shapes(left.shape, right.shape), left.itemsize, inputs)
        return np.asarray(function(left, right)).astype(left.dtype, copy=False)

    return run


def _fold_scale(inputs: Sequence[Array], attrs: Attrs) -> Array:
    """A weight times one factor for each index along an axis, computed in float64."""
    weight, scale = inputs
    shape = [1] * weight.ndim
    shape[_int(attrs, "axis")] = scale.size
    product = weight.astype(np.float64) * scale.astype(np.float64).reshape(shape)
    if product.shape != weight.shape:
        raise ValueError(f"a scale of {list(scale.shape)} doesn't fit a weight of {list(weight.shape)}")
    return product.astype(weight.dtype)


# Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015: 24 times the G of F(4x4,
# 3x3). Dividing at the end by 24 * 24 keeps weights that are multiples of 576 exact.
_WINOGRAD_24G = np.array(
    [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]], np.float64
)


def _winograd_f43(inputs: Sequence[Array], attrs: Attrs) -> Array:
    """[..., 3, 3] to [..., 6, 6]: G g G^T over the last two axes, computed in float64."""
    weight = _only(inputs)
    _check_growth((*weight.shape[:-2], 6, 6), 8, inputs)
    transformed: Array = _WINOGRAD_24G @ weight.astype(np.float64) @ _WINOGRAD_24G.T / 576.0
    return transformed.astype(weight.dtype)


_OPERATIONS: dict[str, _Operation] = {
    "weight": lambda inputs, attrs: _only(inputs),
    "reshape": lambda inputs, attrs: _only(inputs).reshape(_ints(attrs, "shape")),
    "transpose": lambda inputs, attrs: _only(inputs).transpose(_ints(attrs, "perm")),
    "pad": _pad,
    "slice": _slice,
    "shard_slice": _shard_slice,
    "concat": _concat,
    "cast": _cast,
    "broadcast_to": _broadcast_to,
    "mul": _binary(np.multiply),
    "add": _binary(np.add),
    "sub": _binary(np.subtract),
    "div": _binary(np.divide),
    "neg": lambda inputs, attrs: np.negative(_only(inputs)),
    "sqrt": lambda inputs, attrs: np.sqrt(_only(inputs)),
    "fold_scale": _fold_scale,
    "winograd_f43": _winograd_f43,
}
RECIPE_OPS = frozenset(_OPERATIONS)
