"""Replaces weights of an engine without building it anew: the recipes that use them run again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from hagane.core.errors import EngineError
from hagane.engine.image import EngineImage
from hagane.engine.read import read_engine
from hagane.engine.write import write_engine
from hagane.host.recipes import weights_of

Array = np.ndarray[Any, Any]


def refit(
    engine: str | os.PathLike[str] | EngineImage,
    weights: Mapping[str, Array],
    out: str | os.PathLike[str] | None = None,
) -> EngineImage:
    """The engine with other values of some weights, by their names in the model; written to `out` if given.

    Raises: EngineError if a weight doesn't exist, has another dtype or shape, or such values that the builder
    may have simplified the network by them.
    """
    image = engine if isinstance(engine, EngineImage) else read_engine(engine)
    for name, value in weights.items():
        _check(image, name, value)
    changed = {
        (target, constant.name)
        for target, plan in image.plans.items()
        for constant in plan.constants
        if weights.keys() & set(weights_of(constant.recipe))
    }
    fitted = EngineImage(
        plans=image.plans,
        code=image.code,
        graph_text=image.graph_text,
        weights={**image.weights, **weights},
        sources=image.sources,
        metadata=image.metadata,
        tuning=image.tuning,
        verification=image.verification,
        pack=image.pack,
        packed={key: value for key, value in image.packed.items() if key not in changed},
    )
    if out is not None:
        write_engine(fitted, out)
    return fitted


def _check(image: EngineImage, name: str, value: Array) -> None:
    known = image.weights.get(name)
    if known is None:
        raise EngineError(
            f"the engine has no weight {name}",
            where={"weights": ", ".join(sorted(image.weights)[:20])},
            next_step="use a name from the model file; what the builder folded away can't be replaced",
        )
    if value.dtype != known.dtype or value.shape != known.shape:
        raise EngineError(
            f"weight {name} is {known.dtype}{list(known.shape)}, given {value.dtype}{list(value.shape)}",
            next_step="convert it first; a refit can't change dtypes or shapes",
        )
    reason = _why_frozen(known)
    if reason:
        raise EngineError(
            f"weight {name} can't be replaced: {reason}",
            where={"weight": f"{name}: {known.dtype}{list(known.shape)}"},
            next_step="build the engine anew with the new weight",
        )


def _why_frozen(values: Array) -> str:
    """Why passes may have looked at the values, or nothing: x * 1 is x, a division by 4 a product ..."""
    if values.dtype.kind in "biu":
        return "integers and bools decide shapes, positions and branches"
    wide = np.asarray(values, np.float64)
    if wide.size == 0 or np.all(wide == wide.flat[0]):
        return "it holds one number everywhere, by which the builder may have simplified the network"
    if np.all(np.abs(np.frexp(wide)[0]) == 0.5):
        return "it holds powers of two, by which the builder may have turned divisions into products"
    return ""
