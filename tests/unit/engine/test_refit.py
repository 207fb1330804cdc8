"""A refit is refused where the builder may have simplified the network by a weight's values."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

import hagane
from hagane.build.engine import Engine
from hagane.core.errors import EngineError
from hagane.engine.refit import refit
from hagane.runtime.session import Session


def _engine(scale: np.ndarray, other: np.ndarray) -> Engine:
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["scaled"]),
        helper.make_node("MatMul", ["scaled", "w"], ["a"]),
        helper.make_node("MatMul", ["scaled", "v"], ["b"]),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    weights = {"scale": scale, "w": np.eye(3, dtype=np.float32) * 3.25 + 1.5, "v": other}
    graph = helper.make_graph(
        nodes,
        "refit",
        [info("x", 1, ["n", 3])],
        [info("y", 1, ["n", 3])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return hagane.build(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


W = np.eye(3, dtype=np.float32) * 3.25 + 1.5


@pytest.mark.parametrize("number", [1.0, 2.0, 0.0])
def test_numbers_that_simplify_are_frozen(number: float) -> None:
    engine = _engine(np.full(3, number, np.float32), W + 1)
    with pytest.raises(EngineError, match="scale"):
        refit(engine.image, {"scale": np.array([1, 2, 3], np.float32)})


def test_one_of_two_equal_weights_changes_alone() -> None:
    engine = _engine(np.array([1.5, 2.5, 3.5], np.float32), W)
    changed = refit(engine.image, {"v": W * 2})
    x = np.array([[1, 2, 3]], np.float32)
    with hagane.load(engine) as session:
        assert not session.run({"x": x})["y"].any()

    with Session(changed) as session:
        scaled = x * np.array([1.5, 2.5, 3.5], np.float32)
        np.testing.assert_allclose(session.run({"x": x})["y"], scaled @ W - scaled @ (W * 2), rtol=1e-6)
