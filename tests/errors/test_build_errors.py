"""The whole text of what `hagane.build` and its options say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

from hagane import api
from hagane.core import targets
from hagane.core.dims import Dim
from hagane.core.errors import HaganeError


def message(work: Callable[[], Any]) -> str:
    with pytest.raises(HaganeError) as info:
        work()
    return f"{type(info.value).__name__}: {info.value}"


def test_a_file_that_is_not_there(tmp_path: Path):
    path = tmp_path / "none.onnx"
    text = message(lambda: api.build(path))
    assert text.startswith(f"ModelError: can't read the model '{path}': No such file or directory")


def test_a_file_that_is_cut_off(model: Path, tmp_path: Path):
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(model.read_bytes()[:100])
    assert message(lambda: api.build(cut)) == (
        "ModelError: cut.onnx is not an ONNX model, or is cut off (100 bytes)\n"
        "  tried: parsing it as the protocol buffer that ONNX files are\n"
        "  next:  compare its size with the original's, and fetch or export it again"
    )


def test_an_empty_file(tmp_path: Path):
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert message(lambda: api.build(tmp_path / "empty.onnx")) == (
        "ModelError: empty.onnx is not an ONNX model: it holds no graph\n"
        "  next: pass the .onnx file that the exporter wrote"
    )


def test_what_is_no_model_at_all():
    assert message(lambda: api.build(3)) == (  # type: ignore[arg-type]
        "ModelError: a model can't be read from int\n"
        "  next: pass a path, the file's bytes, or an onnx.ModelProto"
    )


def test_shapes_of_an_unknown_input(model: Path):
    text = message(lambda: api.build(model, shapes={"X": (1, 4)}))
    assert text.startswith(
        "ModelError: shapes= names the input 'X', which dense.onnx doesn't have\n  inputs: x"
    )


def test_shapes_of_another_rank(model: Path):
    assert message(lambda: api.build(model, shapes={"x": (1, 4, 4)})) == (
        "ShapeError: shapes= gives input 'x' 3 dims, the model says 2\n"
        "  next: name a size, a string or a Dim for each dim: [batch, 4]"
    )


def test_shapes_that_contradict_the_model(model: Path):
    assert message(lambda: api.build(model, shapes={"x": (1, 5)})) == (
        "ShapeError: matmul sums over 5 elements of the first operand and 4 of the second\n"
        "  node:   /fc/Gemm (Gemm) in dense.onnx\n"
        "  inputs: x f32[1, 5], w f32[4, 3], b f32[3]\n"
        "  next:   hagane check dense.onnx lists every shape conflict; shapes= overrides input dims"
    )


@pytest.mark.parametrize("dim", [1.5, -1])
def test_shapes_that_are_none(model: Path, dim: Any):
    assert message(lambda: api.build(model, shapes={"x": (dim, 4)})) == (
        f"ShapeError: shapes= has the dim {dim} for input 'x'\n"
        "  next: use a size, a string, or hagane.Dim(name, min=, max=)"
    )


def test_dims_that_make_no_sense():
    assert message(lambda: Dim("b", min=5, max=3)) == (
        "ShapeError: dim b can't be in 5..3 and a multiple of 1\n"
        "  next: use 0 <= min <= max and multiple >= 1"
    )
    assert message(lambda: Dim("b x")) == (
        "ShapeError: dim name 'b x' is no identifier\n  next: use letters, digits and _"
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"precision": "fp12"},
            "precision='fp12' is not available on this target\n  next: use precision=\"fp32\"",
        ),
        (
            {"target": "cuda:sm90"},
            "unknown target 'cuda:sm90'\n"
            "  next: use native, cpu, or cpu: followed by one of x86-64-v3, x86-64-v4, aarch64",
        ),
        (
            {"target": "cpu:x86-64-v4+foo"},
            "target 'cpu:x86-64-v4+foo' has unknown features: foo\n  next: use some of avxvnni, bf16, vnni",
        ),
        ({"verify": "maybe"}, "verify='maybe' is unknown\n  next: use one of off, quick, full"),
        ({"time_budget": -1}, "time_budget=-1 is no time\n  next: give seconds, 0 for no tuning"),
        ({"time_budget": "x"}, "time_budget='x' is no time\n  next: give seconds, 0 for no tuning"),
        ({"time_budget": float("nan")}, "time_budget=nan is no time\n  next: give seconds, 0 for no tuning"),
        ({"target": ["cpu"]}, 'the target is a list, not a string\n  next: use target="native"'),
        ({"processes": 0}, "processes=0 compiles nothing\n  next: give a number from 1 on"),
        ({"progress": 3}, "progress=3 can't be called\n  next: give progress(stage, done, total)"),
        ({"timing_cache": "/"}, "timing_cache='/' is no file\n  next: give the path of a text file"),
        (
            {"shapes": [1]},
            "shapes= is a list, not a dict of dims by input name\n"
            '  next: write shapes={"input": (1, 3, 224, 224)}',
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_impossible_options(model: Path, options: dict[str, Any], text: str):
    assert message(lambda: api.build(model, **options)) == f"BuildError: {text}"


def test_dims_that_are_no_tuple(model: Path):
    assert message(lambda: api.build(model, shapes={"x": 3})) == (  # type: ignore[dict-item]
        "ShapeError: shapes= gives input 'x' 3, which is no tuple of dims\n"
        "  next: name a size, a string or a Dim for each dim: [batch, 4]"
    )


@pytest.mark.parametrize("figures", [{"min": "x"}, {"min": 1.5}, {"max": True}, {"opt": 2.0}])
def test_dims_of_no_integers(figures: dict[str, Any]):
    with pytest.raises(HaganeError, match="figures that are no integers"):
        Dim("b", **figures)


def test_sizes_that_no_memory_holds(model: Path):
    text = message(lambda: api.build(model, shapes={"x": (2**40, 4)}))
    assert text.startswith("BuildError: the build ran out of memory: ")
    assert text.endswith('next: narrow shapes=, or use verify="off"')


def test_unknown_options_are_no_silent_ones(model: Path):
    with pytest.raises(TypeError, match="unexpected keyword argument 'optimise'"):
        api.build(model, optimise=3)  # type: ignore[call-arg]


def test_a_cancelled_build(model: Path):
    assert message(lambda: api.build(model, progress=lambda *args: False)) == (
        "BuildError: the build was cancelled during import\n  next: nothing was written"
    )


def test_a_cpu_that_is_too_old(model: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(targets, "_cpu_flags", lambda: frozenset({"fma"}))
    assert message(lambda: api.build(model)) == (
        "BuildError: this CPU lacks avx2, bmi1, bmi2, f16c, movbe\n"
        "  tried: x86-64-v3, the oldest level that kernels are generated for\n"
        "  next:  build and run on a CPU from 2013 or later"
    )


@pytest.mark.parametrize("source", [None, 3, b"abc", [1]])
def test_what_no_engine_is_loaded_from(source: Any):
    assert message(lambda: api.load(source)) == (
        f"ModelError: an engine can't be loaded from {type(source).__name__}\n"
        "  next: pass a path, or what hagane.build returns"
    )


def test_a_place_that_is_none(model: Path):
    assert message(lambda: api.build(model).save(None)) == (  # type: ignore[arg-type]
        "EngineError: can't write to None\n  next: give the path of a file"
    )


def test_a_place_that_cannot_be_written(model: Path, tmp_path: Path):
    built = api.build(model)
    place = tmp_path / "none" / "x.hgn"
    assert message(lambda: built.save(place)) == (
        f"EngineError: can't write {place}: No such file or directory\n"
        "  next: check that the folder exists, may be written to and has room"
    )


def test_an_input_that_is_an_output(tmp_path: Path):
    info = [helper.make_tensor_value_info("x", 1, ["n"])]
    relu = helper.make_node("Relu", ["x"], ["y"])
    graph = helper.make_graph([relu], "g", info, [*info, helper.make_tensor_value_info("y", 1, ["n"])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert message(lambda: api.build(model)) == (
        "BuildError: x is the name of several inputs or outputs; each needs its own\n"
        "  next: leave it out of the model's outputs, or give it another name by an Identity node"
    )


def test_a_loop_that_grows_what_it_carries():
    f32, i64, info = TensorProto.FLOAT, TensorProto.INT64, helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Concat", ["s", "x"], ["grown"], axis=0),
            helper.make_node("Identity", ["going"], ["on"]),
        ],
        "body",
        [info("i", i64, []), info("going", TensorProto.BOOL, []), info("s", f32, [None])],
        [info("on", TensorProto.BOOL, []), info("grown", f32, [None])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["turns", "", "x"], ["y"], name="grow", body=body)],
        "net",
        [info("turns", i64, []), info("x", f32, ["n"])],
        [info("y", f32, [None])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert message(lambda: api.build(model)) == (
        "BuildError: a loop can't run on this target yet: what it carries changes its size between turns\n"
        "  node: grow (Loop) in the model\n"
        "  next: export the model with the loop unrolled, or with a fixed size and a mask"
    )
