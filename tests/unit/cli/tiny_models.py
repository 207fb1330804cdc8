"""Models of a few nodes, for tests of everything around the compiler."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper


def dense(width: int = 4) -> ModelProto:
    """y = relu(x W + b), x: f32[batch, width], y: f32[batch, 3]; the nodes are /fc/Gemm and /fc/Relu."""
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((width, 3)).astype(np.float32)
    bias = rng.standard_normal(3).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="/fc/Gemm"),
        helper.make_node("Relu", ["h"], ["y"], name="/fc/Relu"),
    ]
    return model(nodes, {"x": ["batch", width]}, {"y": ["batch", 3]}, {"w": weight, "b": bias})


def model(
    nodes: list[NodeProto],
    inputs: dict[str, list[int | str]],
    outputs: dict[str, list[int | str]],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    dtype: int = TensorProto.FLOAT,
) -> ModelProto:
    """A model of float tensors."""
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, dtype, dims) for name, dims in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, dims) for name, dims in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("my.ops", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
