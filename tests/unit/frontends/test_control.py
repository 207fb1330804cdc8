"""If, Loop and Scan: captures, shadowing, branches known at import, shapes that change from trip to trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from hagane.core.errors import ModelError, RunError, ShapeError
from hagane.frontends.onnx import load_onnx
from hagane.ir.interpreter import run
from tests.unit.frontends.onnx_models import compare_with_ort, graph_of, model, node

F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL  # noqa: E741
Typed = tuple[str, int, list[Any]]


def graph(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Typed],
    outputs: Sequence[Typed],
    constants: dict[str, Any] | None = None,
) -> GraphProto:
    return helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*o) for o in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )


def choice(then: GraphProto, other: GraphProto) -> NodeProto:
    return node("If", ["c"], ["y"], then_branch=then, else_branch=other)


def branch(op: str, *inputs: str, dims: Sequence[Any] = (2, 3)) -> GraphProto:
    return graph([node(op, inputs, ["r"])], [], [("r", F, list(dims))])


X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("c", [False, True])
def test_if_captures_outer_values(c: bool) -> None:
    nodes = [node("Add", ["x", "x"], ["d"]), choice(branch("Neg", "d"), branch("Abs", "x"))]
    proto = model(nodes, {"x": (F, [2, 3]), "c": (B, [])}, ["y"])
    made = compare_with_ort(proto, {"x": X, "c": np.array(c)})
    assert [n.op for n in made.nodes] == ["add", "if"]


def test_if_known_at_import_is_inlined() -> None:
    nodes = [choice(branch("Neg", "x"), branch("Abs", "x"))]
    proto = model(nodes, {"x": (F, [2, 3])}, ["y"], {"c": np.array(True)})
    made = graph_of(proto)
    assert [n.op for n in made.nodes] == ["neg"]
    assert made.nodes[0].loc.nodes == ("y_node/then_branch/r_node (Neg)",)


def test_a_branch_that_is_not_taken_may_be_broken() -> None:
    nodes = [choice(branch("Neg", "x"), branch("NoSuchOp", "x"))]
    graph_of(model(nodes, {"x": (F, [2, 3])}, ["y"], {"c": np.array([True])}))


def test_inner_names_shadow_outer_ones() -> None:
    inner = graph(
        [node("Neg", ["x"], ["h"]), node("Mul", ["h", "two"], ["r"])],
        [],
        [("r", F, [2, 3])],
        {"two": np.float32(2)},
    )
    nodes = [node("Abs", ["x"], ["h"]), choice(inner, branch("Abs", "h")), node("Add", ["y", "h"], ["z"])]
    proto = model(nodes, {"x": (F, [2, 3]), "c": (B, [])}, ["z"])
    out = run(graph_of(proto), {"x": X, "c": np.array(True)})["z"]
    np.testing.assert_array_equal(out, -2 * X + np.abs(X))


def test_branches_of_different_shapes() -> None:
    nodes = [choice(branch("Concat", "x", "x", dims=[4, 3]), branch("Identity", "x"))]
    for made in nodes[0].attribute[0].g.node, nodes[0].attribute[1].g.node:
        for inner in made:
            if inner.op_type == "Concat":
                inner.attribute.append(helper.make_attribute("axis", 0))
    proto = model(nodes, {"x": (F, [2, 3]), "c": (B, [])}, ["y"])
    for c, rows in ((True, 4), (False, 2)):
        assert run(graph_of(proto), {"x": X, "c": np.array(c)})["y"].shape == (rows, 3)


def test_squeeze_that_depends_on_a_dim() -> None:
    """The exporter's If(dim == 1) around a Squeeze: the squeezed rank is assumed, and checked at run time."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["d"]),
        node("Equal", ["d", "one"], ["c"]),
        choice(
            graph([node("Squeeze", ["x", "axes"], ["r"])], [], [("r", F, None)], {"axes": np.array([1])}),
            branch("Identity", "x"),
        ),  # type: ignore[list-item]
    ]
    made = graph_of(model(nodes, {"x": (F, ["n", "d"])}, ["y"], {"one": np.int64(1)}))
    assert str(made.outputs[0].type) == "f32[n]"
    assert run(made, {"x": X[:, :1]})["y"].shape == (2,)
    with pytest.raises(RunError, match="unless this dim fits"):
        run(made, {"x": X})


def test_branches_of_different_ranks() -> None:
    nodes = [choice(branch("Identity", "v"), branch("Identity", "x"))]
    with pytest.raises(ShapeError, match="of an if"):
        load_onnx(model(nodes, {"x": (F, [2, 3]), "v": (F, [2]), "c": (B, [])}, ["y"]))


def body(nodes: Sequence[NodeProto], carried: Sequence[Typed], results: Sequence[Typed]) -> GraphProto:
    return graph(
        nodes, [("i", I, []), ("go", B, []), *carried], [("more", B, []), *results], {"limit": np.float32(9)}
    )


GOES_ON = node("Identity", ["go"], ["more"])


def test_loop_with_a_count() -> None:
    nodes = [GOES_ON, node("Add", ["a", "step"], ["b"]), node("Mul", ["b", "b"], ["s"])]
    loop = node(
        "Loop",
        ["n", "", "x"],
        ["y", "rows"],
        body=body(nodes, [("a", F, [3])], [("b", F, [3]), ("s", F, [3])]),
    )
    inputs = {"x": (F, [3]), "step": (F, [3]), "n": (I, [])}
    proto = model([loop], inputs, ["y", "rows"])
    compare_with_ort(proto, {"x": X[0], "step": X[1], "n": np.array(4)})


def test_loop_with_a_condition() -> None:
    nodes = [
        node("Add", ["a", "a"], ["b"]),
        node("ReduceSum", ["b"], ["t"], keepdims=0),
        node("Less", ["t", "limit"], ["more"]),
    ]
    loop = node("Loop", ["", "c", "x"], ["y"], body=body(nodes, [("a", F, [3])], [("b", F, [3])]))
    proto = model([loop], {"x": (F, [3]), "c": (B, [])}, ["y"])
    for c in (True, False):
        compare_with_ort(proto, {"x": X[0], "c": np.array(c)})


def test_a_condition_that_nobody_asked_for_is_ignored() -> None:
    nodes = [node("Not", ["go"], ["more"]), node("Add", ["a", "a"], ["b"])]
    loop = node("Loop", ["n", "", "x"], ["y"], body=body(nodes, [("a", F, [3])], [("b", F, [3])]))
    out = run(graph_of(model([loop], {"x": (F, [3])}, ["y"], {"n": np.int64(3)})), {"x": X[0]})["y"]
    np.testing.assert_array_equal(out, 8 * X[0])


def test_carried_values_that_grow() -> None:
    nodes = [GOES_ON, node("Concat", ["a", "x"], ["b"], axis=0)]
    loop = node("Loop", ["n", "", "x"], ["y"], body=body(nodes, [("a", F, [None])], [("b", F, [None])]))
    made = graph_of(model([loop], {"x": (F, [3]), "n": (I, [])}, ["y"]))
    assert made.nodes[-1].op == "loop"
    for n in (0, 1, 5):
        assert run(made, {"x": X[0], "n": np.int64(n)})["y"].shape == (3 * (n + 1),)
    assert len(made.symbols) <= 3  # the trips, and one for what grows, inside and after


def test_loops_inside_loops() -> None:
    inner_nodes = [node("Identity", ["go2"], ["more2"]), node("Add", ["p", "a"], ["q"])]
    inner = helper.make_graph(
        inner_nodes,
        "inner",
        [helper.make_tensor_value_info(*v) for v in (("j", I, []), ("go2", B, []), ("p", F, [3]))],
        [helper.make_tensor_value_info(*v) for v in (("more2", B, []), ("q", F, [3]))],
    )
    nodes = [GOES_ON, node("Loop", ["i", "", "a"], ["b"], body=inner)]
    loop = node("Loop", ["n", "", "x"], ["y"], body=body(nodes, [("a", F, [3])], [("b", F, [3])]))
    compare_with_ort(model([loop], {"x": (F, [3]), "n": (I, [])}, ["y"]), {"x": X[0], "n": np.array(4)})


def test_endless_loop() -> None:
    loop = node("Loop", ["", "", "x"], ["y"], body=body([GOES_ON], [("a", F, [3])], [("a", F, [3])]))
    with pytest.raises(ModelError, match="would never end"):
        load_onnx(model([loop], {"x": (F, [3])}, ["y"]))


@pytest.mark.parametrize("axis,reverse", [(0, 0), (1, 0), (1, 1)])
def test_scan(axis: int, reverse: int) -> None:
    width = 3 - axis if axis else 3
    nodes = [node("Add", ["a", "v"], ["b"]), node("Mul", ["b", "v"], ["s"])]
    sizes = [width]
    inner = graph(nodes, [("a", F, sizes), ("v", F, sizes)], [("b", F, sizes), ("s", F, sizes)])
    attrs = {
        "scan_input_axes": [axis],
        "scan_input_directions": [reverse],
        "scan_output_axes": [axis],
        "scan_output_directions": [reverse],
    }
    scan = node("Scan", ["start", "x"], ["last", "y"], body=inner, num_scan_inputs=1, **attrs)
    proto = model([scan], {"start": (F, [width]), "x": (F, [2, 3])}, ["last", "y"])
    compare_with_ort(proto, {"start": np.ones(width, np.float32), "x": X})


def test_body_with_the_wrong_number_of_inputs() -> None:
    loop = node("Loop", ["n", "", "x"], ["y"], body=body([GOES_ON], [], []))
    with pytest.raises(ModelError, match="its body takes 0"):
        load_onnx(model([loop], {"x": (F, [3])}, ["y"], {"n": np.int64(1)}))
