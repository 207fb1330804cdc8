"""A small engine with everything that a file stores."""

from __future__ import annotations

from typing import Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.symbolic import sym
from hagane.engine.image import EngineImage
from hagane.plan.model import Constant, Launch, Plan, Program, Recipe, RecipeNode, RegionInfo, Symbol
from tests.unit.runtime.kernels import TARGET, blob, buffer, f32

B = sym("B", 1, 64)


def padded(name: str, source: str) -> Constant:
    """12 values of a weight after two zeros, halved."""
    nodes = (
        RecipeNode("weight", (source,)),
        RecipeNode("pad", (0,), {"before": (2,), "after": (2,)}),
        RecipeNode("mul", (1,), {"value": 0.5}),
    )
    return Constant(name, DType.F32, (16,), Recipe(nodes))


def program() -> Program:
    """y = (x + w) * pad(v) / 2, element by element over 16 of them."""
    x, y, h = f32("x", 16), f32("y", 16), f32("h", 16)
    n = sym("B", 16, 16)
    steps = (Launch("add", ("x", "w", "h"), (n,)), Launch("mul", ("h", "v.packed", "y"), (n,)))
    return Program(
        "main", (x,), (y,), (), (buffer(x, "input"), buffer(y, "output"), buffer(h, "arena", 0, 1)), steps
    )


def engine(pack: str = "embed", target: str = TARGET, **content: Any) -> EngineImage:
    """An engine in memory; content replaces fields."""
    import ml_dtypes

    constants = (
        Constant(
            "w",
            DType.F32,
            (16,),
            Recipe((RecipeNode("weight", ("/net/w",)), RecipeNode("reshape", (0,), {"shape": (16,)}))),
        ),
        padded("v.packed", "v"),
        padded("v.again", "v"),
    )
    regions = (RegionInfo("sum", "pointwise", "generic", ("/net/Add", "/net/Mul é")),)
    plan = Plan(target, (Symbol("B", 1, 64),), constants, {"main": program()}, regions)
    rng = np.random.default_rng(0)
    fields: dict[str, Any] = {
        "plans": {target: plan},
        "code": {target: blob()},
        "graph_text": "graph @main() {\n}\n",
        "weights": {
            "v": rng.standard_normal(12).astype(np.float32),
            "/net/w": rng.standard_normal((4, 4)).astype(np.float32),
            "unused bf16": np.arange(7).astype(ml_dtypes.bfloat16),
            "empty": np.zeros((0, 3), np.int64),
            "scalar": np.array(7, np.int8),
        },
        "sources": {"add": "define void @add", "mul": "define void @mul\n; é\n"},
        "metadata": {"author": "ü", "labels": "cat\ndog"},
        "tuning": "record 1\n",
        "verification": "region 0 ok\n",
        "pack": pack,
    }
    return EngineImage(**(fields | content))


def expected(image: EngineImage, x: Any) -> Any:
    """What the engine computes."""
    factor = np.pad(image.weights["v"], (2, 2)) * np.float32(0.5)
    return (x + image.weights["/net/w"].reshape(16)) * factor
