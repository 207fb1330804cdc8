"""Small ONNX models for tests, and comparison of an imported graph with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from hagane.frontends.onnx import load_onnx
from hagane.ir.graph import Graph
from hagane.ir.interpreter import run
from hagane.ir.verify import verify

Dims = Sequence[int | str | None]
MS = "com.microsoft"


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> NodeProto:
    """A node named after its first output."""
    return helper.make_node(
        op, list(inputs), list(outputs), name=f"{outputs[0]}_node" if outputs else "", **attrs
    )


def model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[int, Dims]],
    outputs: Sequence[str] | Mapping[str, tuple[int, Dims | None]],
    constants: Mapping[str, Any] | None = None,
    opset: int = 17,
    **more: Any,
) -> ModelProto:
    """A model; outputs without a type are f32 of unknown shape."""
    typed = outputs if isinstance(outputs, Mapping) else dict.fromkeys(outputs, (TensorProto.FLOAT, None))
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(n, t, d) for n, (t, d) in inputs.items()],
        [helper.make_tensor_value_info(n, t, d) for n, (t, d) in typed.items()],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )
    opsets = [
        helper.make_opsetid("", opset),
        helper.make_opsetid(MS, 1),
        helper.make_opsetid("ai.onnx.ml", 3),
    ]
    return helper.make_model(graph, opset_imports=[*opsets, *more.pop("opsets", [])], ir_version=8, **more)


def graph_of(proto: ModelProto, **options: Any) -> Graph:
    """The verified graph of a model."""
    graph = load_onnx(proto.SerializeToString(), **options)
    verify(graph)
    return graph


def compare_with_ort(
    proto: ModelProto, feed: dict[str, Any], rtol: float = 1e-4, atol: float = 1e-5
) -> Graph:
    """Runs a model in the interpreter and in ONNX Runtime without optimisations; outputs must agree."""
    graph = graph_of(proto)
    got = run(graph, feed)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = dict(zip([o.name for o in session.get_outputs()], session.run(None, feed), strict=True))
    for name, array in wanted.items():
        assert got[name].shape == array.shape, name
        assert got[name].dtype == array.dtype, name
        np.testing.assert_allclose(
            got[name].astype(np.float64), array.astype(np.float64), rtol, atol, err_msg=name
        )
    return graph


def typed_inputs(feed: Mapping[str, Any]) -> dict[str, tuple[int, Dims]]:
    """Declarations of inputs with the arrays' own types and shapes."""
    return {n: (helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape)) for n, a in feed.items()}


def check_op(
    op: str,
    feed: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    *,
    constants: Sequence[str] = (),
    inputs: Sequence[str] | None = None,
    outputs: int | Sequence[str] = 1,
    output_type: int = TensorProto.FLOAT,
    opset: int = 17,
    domain: str = "",
    rtol: float = 1e-4,
    atol: float = 1e-5,
) -> Graph:
    """One op against ONNX Runtime. constants: inputs given as initializers; inputs: "" for an absent one."""
    names = [f"y{k}" for k in range(outputs)] if isinstance(outputs, int) else list(outputs)
    made = node(op, inputs or list(feed), names, domain=domain, **(attrs or {}))
    fixed = {n: feed[n] for n in constants}
    free = {n: np.asarray(a) for n, a in feed.items() if n not in constants}
    types = {n: (output_type, None) for n in names if n}
    proto = model([made], typed_inputs(free), types, fixed, opset)
    for output in proto.graph.output:  # ONNX Runtime finds the types out
        output.type.Clear()
    inferred = onnx.shape_inference.infer_shapes(proto) if not domain else proto
    for output, found in zip(proto.graph.output, inferred.graph.output, strict=True):
        elem = found.type.tensor_type.elem_type or output_type
        output.type.tensor_type.elem_type = elem
    return compare_with_ort(proto, free, rtol, atol)
