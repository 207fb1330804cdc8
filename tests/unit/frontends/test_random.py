"""Random ops: the right distribution, the same numbers on every run, others for another node."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from hagane.ir.interpreter import run
from tests.unit.frontends.onnx_models import graph_of, model, node

F = TensorProto.FLOAT
SHAPE = [100, 200]


@pytest.mark.parametrize("seed", [None, 7.0])
def test_normal(seed: float | None) -> None:
    attrs = {} if seed is None else {"seed": seed}
    nodes = [
        node("RandomNormal", [], ["a"], shape=SHAPE, mean=1.0, scale=2.0, **attrs),
        node("RandomNormalLike", ["a"], ["b"]),
    ]
    graph = graph_of(model(nodes, {}, ["a", "b"]))
    first, second = run(graph, {}), run(graph, {})
    a, b = first["a"], first["b"]
    assert a.shape == b.shape == (100, 200) and a.dtype == np.float32
    assert abs(a.mean() - 1) < 0.05 and abs(a.std() - 2) < 0.05
    assert abs(b.mean()) < 0.03 and abs(b.std() - 1) < 0.03
    assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.03
    assert abs(np.corrcoef(a.ravel()[1:], a.ravel()[:-1])[0, 1]) < 0.03
    assert np.isfinite(a).all()
    np.testing.assert_array_equal(a, second["a"])


def test_uniform() -> None:
    nodes = [node("RandomUniformLike", ["x"], ["y"], low=-1.0, high=3.0)]
    graph = graph_of(model(nodes, {"x": (F, ["n", 5])}, ["y"]))
    y = run(graph, {"x": np.zeros((4000, 5), np.float32)})["y"]
    assert y.min() >= -1 and y.max() <= 3
    assert abs(y.mean() - 1) < 0.05 and abs(np.quantile(y, 0.25)) < 0.06
