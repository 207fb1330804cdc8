"""Small models for build tests."""

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper


def small_model() -> ModelProto:
    """y = softmax(sigmoid(x @ w) * x): a contraction, a pointwise op and a normalisation."""
    rng = np.random.default_rng(1)
    weight = numpy_helper.from_array(rng.standard_normal((16, 16)).astype(np.float32), "w")
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["h"], name="/fc/Gemm"),
        helper.make_node("Sigmoid", ["h"], ["s"], name="/act/Sigmoid"),
        helper.make_node("Softmax", ["s"], ["y"], name="/out/Softmax", axis=-1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 16])
    graph = helper.make_graph(nodes, "small", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
