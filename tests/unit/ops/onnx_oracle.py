"""Runs one ONNX operator in ONNX's own reference evaluator, to compare our references with."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator


def run_onnx(
    op: str, inputs: list[np.ndarray | None], num_outputs: int = 1, opset: int = 22, **attrs: Any
) -> list[np.ndarray]:
    """Outputs of the operator; None stands for an absent optional input."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(inputs)]
    outputs = [f"y{i}" for i in range(num_outputs)]
    node = helper.make_node(op, names, outputs, **attrs)
    present = [(n, a) for n, a in zip(names, inputs, strict=True) if a is not None]
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in present
        ],
        [helper.make_tensor_value_info(n, onnx.TensorProto.UNDEFINED, None) for n in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, dict(present))
