"""Reading model files: what is refused, with which error, and in which order nodes are imported."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from hagane.core.errors import ModelError
from hagane.frontends.onnx import load_onnx
from hagane.ir.interpreter import run
from tests.unit.frontends.onnx_models import graph_of, model, node

X = {"x": (TensorProto.FLOAT, [2, 3])}


def chain() -> ModelProto:
    return model([node("Relu", ["x"], ["h"]), node("Neg", ["h"], ["y"])], X, ["y"])


def test_sources(tmp_path: Path) -> None:
    proto = chain()
    path = tmp_path / "net.onnx"
    onnx.save(proto, path)
    for source in (proto, proto.SerializeToString(), path, str(path)):
        assert [n.op for n in load_onnx(source).nodes] == ["relu", "neg"]
    assert load_onnx(path).nodes[0].loc.file == "net.onnx"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00" * 64,
        b"not a model at all",
        b"<html></html>",
        b"version https://git-lfs.github.com/spec/v1\n",
    ],
)
def test_no_model(data: bytes) -> None:
    with pytest.raises(ModelError):
        load_onnx(data)


def test_git_lfs_pointer() -> None:
    with pytest.raises(ModelError, match="pointer of Git LFS"):
        load_onnx(b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n")


def test_missing_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none.onnx", tmp_path):
        with pytest.raises(ModelError, match="can't read the model"):
            load_onnx(path)


def test_truncated() -> None:
    data = chain().SerializeToString()
    for length in range(len(data)):
        try:
            load_onnx(data[:length])
        except ModelError:
            continue


def test_wrong_source() -> None:
    with pytest.raises(ModelError, match="can't be read from int"):
        load_onnx(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("opset", [6, 999])
def test_opset_range(opset: int) -> None:
    with pytest.raises(ModelError, match=f"uses opset {opset}"):
        load_onnx(model([node("Relu", ["x"], ["y"])], X, ["y"], opset=opset))


def test_nodes_out_of_order() -> None:
    proto = chain()
    proto.graph.node.append(proto.graph.node[0])
    del proto.graph.node[0]
    x = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
    np.testing.assert_array_equal(run(load_onnx(proto), {"x": x})["y"], -np.maximum(x, 0))


def test_cycle() -> None:
    nodes = [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])]
    with pytest.raises(ModelError, match="circle") as info:
        load_onnx(model(nodes, X, ["b"]))
    assert info.value.where["circle"] == "a_node (Add) <- b_node (Relu) <- a_node (Add)"


def test_deep_chain() -> None:
    """The order of nodes is found without recursion."""
    names = ["x", *(f"h{k}" for k in range(3000))]
    nodes = [node("Neg", [a], [b]) for a, b in pairwise(names)]
    assert len(load_onnx(model(nodes[::-1], X, [names[-1]])).nodes) == 3000


def test_names_defined_twice() -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])]
    with pytest.raises(ModelError, match="'y' is computed twice"):
        load_onnx(model(nodes, X, ["y"]))
    with pytest.raises(ModelError, match="'x' is computed twice"):
        load_onnx(model([node("Relu", ["x"], ["x"])], X, ["x"]))


def test_undefined_names() -> None:
    with pytest.raises(ModelError, match="input 'z' is defined nowhere"):
        load_onnx(model([node("Relu", ["z"], ["y"])], X, ["y"]))
    with pytest.raises(ModelError, match="is computed nowhere"):
        load_onnx(model([node("Relu", ["x"], ["y"])], X, ["q"]))


def test_inputs_that_are_initializers_are_constants() -> None:
    inputs = {**X, "w": (TensorProto.FLOAT, [3])}
    graph = graph_of(model([node("Add", ["x", "w"], ["y"])], inputs, ["y"], {"w": np.ones(3, np.float32)}))
    assert [v.name for v in graph.inputs] == ["x"]


def test_outputs_have_their_own_names() -> None:
    """An output that is an input, a constant, or another output too."""
    proto = model(
        [node("Relu", ["x"], ["a"]), node("Identity", ["a"], ["b"])],
        X,
        ["x", "a", "b", "c"],
        {"c": np.float32(2)},
    )
    graph = graph_of(proto)
    assert [v.name for v in graph.outputs] == ["x", "a", "b", "c"]
    out = run(graph, {"x": -np.ones((2, 3), np.float32)})
    assert out["x"].min() == -1 and out["a"].max() == out["b"].max() == 0 and out["c"] == 2


def test_names_with_any_characters() -> None:
    proto = model([node("Relu", ["a:0 %"], ["b/1;2"])], {"a:0 %": X["x"]}, ["b/1;2"])
    assert list(run(graph_of(proto), {"a:0 %": np.ones((2, 3), np.float32)})) == ["b/1;2"]


def test_metadata() -> None:
    proto = chain()
    helper.set_model_props(proto, {"character": "a\nb", "author": "me"})
    assert load_onnx(proto).metadata == {"character": "a\nb", "author": "me"}


def test_unnamed_nodes() -> None:
    proto = chain()
    for made in proto.graph.node:
        made.name = ""
    assert [n.loc.nodes for n in load_onnx(proto).nodes] == [("Relu_0 (Relu)",), ("Neg_1 (Neg)",)]


def external(tmp_path: Path, location: str, offset: int = 0, length: int | None = None) -> Path:
    weight = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "w")
    (tmp_path / "weights.bin").write_bytes(b"\0" * 8 + weight.raw_data)
    proto = model([node("Add", ["x", "w"], ["y"])], X, ["y"])
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "offset": str(offset)} | (
        {} if length is None else {"length": str(length)}
    )
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    proto.graph.initializer.append(weight)
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data(tmp_path: Path) -> None:
    graph = load_onnx(external(tmp_path, "weights.bin", 8, 24))
    data = graph.constants()[0].data
    assert data is not None and not data.flags.owndata
    np.testing.assert_array_equal(data, np.arange(6).reshape(2, 3))


@pytest.mark.parametrize(
    "location,offset,length,message",
    [
        ("../weights.bin", 0, None, "outside the model's folder"),
        ("/etc/hostname", 0, None, "outside the model's folder"),
        ("a/../../weights.bin", 0, None, "outside the model's folder"),
        ("", 0, None, "outside the model's folder"),
        ("other.bin", 0, None, "doesn't exist"),
        ("weights.bin", 16, 24, "has 32 bytes"),
        ("weights.bin", 8, 20, "needs 24 bytes"),
        ("weights.bin", -1, 24, "is no size"),
    ],
)
def test_bad_external_data(
    tmp_path: Path, location: str, offset: int, length: int | None, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        load_onnx(external(tmp_path, location, offset, length))


def test_external_data_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    path = external(tmp_path / "m", "link.bin", 8, 24)
    (tmp_path / "secret.bin").write_bytes(b"\0" * 64)
    (tmp_path / "m" / "link.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(ModelError, match="outside the model's folder"):
        load_onnx(path)


def test_external_data_of_bytes(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="came without a path"):
        load_onnx(external(tmp_path, "weights.bin", 8, 24).read_bytes())
