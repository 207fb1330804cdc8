from pathlib import Path

import onnx
import pytest
from onnx import helper

from hagane.core.errors import BuildError, ModelError, ShapeError
from hagane.debug.checking import CheckedRegion, ModelCheck, check_model
from tests.unit.cli.tiny_models import model as tiny


def save(tmp_path: Path, *nodes: onnx.NodeProto, **ports: list[int | str]) -> Path:
    inputs = {name: dims for name, dims in ports.items() if name != "y"}
    onnx.save(tiny(list(nodes), inputs, {"y": ports["y"]}), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_supported_model(model: Path):
    found = check_model(model, batch=2)
    assert found.ports == [("x", "f32[batch, 4]"), ("y", "f32[batch, 3]")]
    assert found.dims == {"batch": 2}
    (region,) = found.regions
    assert region.kind == "contraction" and region.share == 1.0
    assert region.flops == 2 * 2 * 3 * 4 + 2 * 3 * 2
    assert region.where == "/fc/Gemm (Gemm), /fc/Relu (Relu)"
    assert not found.problems and not found.host_steps


def test_errors_that_follow_from_errors_are_not_listed(tmp_path: Path):
    path = save(
        tmp_path,
        helper.make_node("Wobble", ["x"], ["a"], name="/first"),
        helper.make_node("Relu", ["a"], ["b"], name="/after"),
        helper.make_node("Wobble", ["x"], ["c"], name="/second"),
        helper.make_node("Add", ["b", "c"], ["y"], name="/sum"),
        x=[2, 3],
        y=[2, 3],
    )
    found = check_model(path)
    assert [p.where["node"] for p in found.problems] == [
        "/first (Wobble) in m.onnx",
        "/second (Wobble) in m.onnx",
    ]


def test_every_shape_conflict_is_listed(tmp_path: Path):
    path = save(
        tmp_path,
        helper.make_node("Add", ["x", "z"], ["a"], name="/one"),
        helper.make_node("MatMul", ["x", "z"], ["b"], name="/two"),
        helper.make_node("Relu", ["x"], ["y"], name="/fine"),
        x=[2, 3],
        z=[4, 5],
        y=[2, 3],
    )
    found = check_model(path)
    assert [type(p) for p in found.problems] == [ShapeError, ShapeError]


def test_unsupported_ops_in_branches(tmp_path: Path):
    def branch(op: str) -> onnx.GraphProto:
        return helper.make_graph(
            [helper.make_node(op, ["x"], [op], name=f"/{op}")],
            op,
            [],
            [helper.make_tensor_value_info(op, onnx.TensorProto.FLOAT, [2])],
        )

    nodes = [
        helper.make_node("Greater", ["x", "x"], ["g"]),
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["c"], to=onnx.TensorProto.BOOL),
        helper.make_node(
            "If", ["c"], ["y"], then_branch=branch("Wobble"), else_branch=branch("Relu"), name="/if"
        ),
    ]
    found = check_model(save(tmp_path, *nodes, x=[2], y=[2]))
    assert [p.what for p in found.problems] == ["the op Wobble is not supported"]


def test_shapes_narrow_the_model(model: Path):
    assert check_model(model, shapes={"x": (7, 4)}).ports[0] == ("x", "f32[7, 4]")


def test_unreadable_files_and_unknown_targets(model: Path, tmp_path: Path):
    (tmp_path / "m.onnx").write_bytes(b"\x08nothing")
    with pytest.raises(ModelError):
        check_model(tmp_path / "m.onnx")
    with pytest.raises(BuildError, match="unknown target"):
        check_model(model, "tpu")


def test_slow_regions_are_fallbacks_with_more_than_memory_to_do():
    check = ModelCheck(
        regions=[
            CheckedRegion("contraction", "generic", "a", 5, 0.05),
            CheckedRegion("contraction", "generic", "b", 20, 0.2),
            CheckedRegion("contraction", "generic", "tiny", 1, 0.001),
            CheckedRegion("contraction", "matmul_packed(rows=14)", "c", 50, 0.5),
            CheckedRegion("pointwise", "generic", "d", 30, 0.3),
        ]
    )
    assert [r.where for r in check.slow] == ["b", "a"]
    assert [r["where"] for r in check.as_dict()["slow"]] == ["b", "a"]
