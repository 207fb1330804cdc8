"""Loops in engines: scanned rows, conditions, computed trip counts, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import hagane
from hagane.build.builder import build_graph
from hagane.build.options import BuildOptions
from hagane.core.dtypes import DType
from hagane.frontends.onnx import load_onnx
from hagane.ir import interpreter
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, tensor
from hagane.runtime.session import Session

Array = np.ndarray[Any, Any]


def _model(cond_name: str, trip_name: str) -> bytes:
    """Doubles x in each trip and collects its sums; the body goes on while the sum is below a limit."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "state"], ["next"]),
            helper.make_node("ReduceSum", ["next", "axes"], ["row"], keepdims=0),
            helper.make_node("ReduceSum", ["row", "first"], ["total"], keepdims=0),
            helper.make_node("Less", ["total", "limit"], ["going_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, ["N", 3]),
        ],
        [
            helper.make_tensor_value_info("going_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, ["N", 3]),
            helper.make_tensor_value_info("row", TensorProto.FLOAT, ["N"]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", [trip_name, cond_name, "x"], ["last", "rows"], body=body)],
        "loops",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3]),
            helper.make_tensor_value_info("trips", TensorProto.INT64, []),
            helper.make_tensor_value_info("limit", TensorProto.FLOAT, []),
        ],
        [
            helper.make_tensor_value_info("last", TensorProto.FLOAT, ["N", 3]),
            helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["T", "N"]),
        ],
        [
            helper.make_tensor("axes", TensorProto.INT64, [1], [1]),
            helper.make_tensor("first", TensorProto.INT64, [1], [0]),
            helper.make_tensor("always", TensorProto.BOOL, [], [True]),
            helper.make_tensor("four", TensorProto.INT64, [], [4]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("trip_name", ["trips", "four"])
@pytest.mark.parametrize("cond_name", ["", "always"])
def test_loop_collects_rows(cond_name: str, trip_name: str) -> None:
    source = _model(cond_name, trip_name)
    graph = load_onnx(source)
    with hagane.load(hagane.build(source), threads=2) as session:
        for n, trips, limit in ((2, 5, 1e9), (1, 0, 1e9), (3, 7, 40.0), (2, -3, 1.0)):
            feed: dict[str, Array] = {
                "x": np.ones((n, 3), np.float32),
                "trips": np.array(trips),
                "limit": np.array(limit, np.float32),
            }
            want = interpreter.run(graph, feed)
            got = session.run(feed)
            for name, array in want.items():
                np.testing.assert_array_equal(got[name], array, err_msg=f"{name} {n} {trips} {limit}")


def test_carried_values_change_places() -> None:
    """A turn's results are all from before it, whichever state they were: swapped, kept, or the condition."""
    builder = Builder(Graph("swaps", output_names=["a", "b", "kept", "was"]))
    a, b, kept = (builder.input(n, tensor(DType.F32, 4)) for n in ("x", "y", "z"))
    body = Graph("body")
    inner = Builder(body, builder)
    inner.input("turn", tensor(DType.I64))
    going = inner.input("going", tensor(DType.BOOL))
    first, second, third = (inner.input(n, tensor(DType.F32, 4)) for n in ("first", "second", "third"))
    was = inner.input("was", tensor(DType.BOOL))
    one = inner.const(np.float32(1))
    body.outputs = [was, second, inner.op("add", first, one), third, going]
    trips, yes = builder.const(np.int64(5)), builder.const(True)
    state = builder.input("state", tensor(DType.BOOL))
    graph = builder.graph
    graph.outputs = builder.ops("loop", trips, yes, a, b, kept, state, graphs={"body": body})
    feeds: list[dict[str, Array]] = [
        {"x": np.full(4, 0, np.float32), "y": np.full(4, 1, np.float32), "z": np.full(4, 2, np.float32)}
        | {"state": np.array(going_on)}
        for going_on in (False, True)
    ]
    wanted = [interpreter.run(graph, feed) for feed in feeds]
    assert [int(w["a"][0] + w["b"][0]) for w in wanted] == [1 + 1, 1 + 5]
    with Session(build_graph(graph, BuildOptions(verify="off")).image, threads=2) as session:
        for feed, want in zip(feeds, wanted, strict=True):
            for name, array in session.run(feed).items():
                np.testing.assert_array_equal(array, want[name], err_msg=name)
