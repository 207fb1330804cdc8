"""A softmax over nothing but minus infinity is NaN, also where it has become part of an attention kernel."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

import hagane


def test_a_row_that_is_masked_everywhere_is_nan() -> None:
    heads = [1, 2, 5, 8]
    names = ("q", "k", "v")
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, heads) for n in names]
    mask_info = helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1, 1, 5, 5])
    nodes = [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"]),
        helper.make_node("Add", ["scores", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, heads)]
    graph = helper.make_graph(nodes, "masked", [*inputs, mask_info], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    engine = hagane.build(model)
    assert any(r.tactic.startswith("attention") for p in engine.image.plans.values() for r in p.regions)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(heads).astype(np.float32) for _ in names)
    mask = np.zeros((1, 1, 5, 5), np.float32)
    mask[..., 3, :] = -np.inf
    mask[..., 1, 2:] = -np.inf
    with hagane.load(engine) as session:
        y = session.run({"q": q, "k": k, "v": v, "mask": mask})["y"]
    with np.errstate(invalid="ignore"):
        scores = q.astype(np.float64) @ np.swapaxes(k, -1, -2) + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        want = weights / weights.sum(-1, keepdims=True) @ v
    assert np.isnan(y[:, :, 3]).all()
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
