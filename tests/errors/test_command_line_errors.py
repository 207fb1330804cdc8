"""What the command line prints for mistakes, as a whole, and with which exit status."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.unit.cli.calling import Call
from tests.unit.cli.tiny_models import model as tiny


def test_an_unknown_option(hagane: Call, model: Path):
    outcome = hagane("build", model, "-o", "x.hgn", "--optimise")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.splitlines()[-1] == "Error: No such option: --optimise"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["--target", "tpu"],
            "Error: Invalid value for '--target': unknown target 'tpu'; use native, cpu, or cpu: followed by "
            "one of x86-64-v3, x86-64-v4, aarch64",
        ),
        (
            ["--verify", "maybe"],
            "Error: Invalid value for '--verify': 'maybe' is unknown; use off or quick or full",
        ),
        (
            ["--shapes", "x:3"],
            "Error: Invalid value: --shapes 'x:3' is not of the form input=1x3x224x224",
        ),
        (
            ["--shapes", "x=1:3"],
            "Error: Invalid value: --shapes x: '1:3' is no dim: use a number, a name, or min:opt:max",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value),
)
def test_wrong_values(hagane: Call, model: Path, tmp_path: Path, arguments: list[str], text: str):
    outcome = hagane("build", model, "-o", tmp_path / "x.hgn", *arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert (
        outcome.err
        == f"Usage: hagane build [OPTIONS] {{model}}\nTry 'hagane build --help' for help.\n\n{text}\n"
    )


@pytest.mark.parametrize("verb", ["build", "run", "bench", "compare", "check", "inspect", "profile"])
def test_a_file_that_is_not_there(hagane: Call, tmp_path: Path, verb: str):
    np.save(tmp_path / "x.npy", np.zeros(3))
    more = {"build": ["-o", tmp_path / "x.hgn"], "run": ["--input", f"x={tmp_path}/x.npy"]}
    outcome = hagane(verb, tmp_path / "none.onnx", *more.get(verb, []))
    assert (outcome.status, outcome.out) == (3, "")
    assert outcome.err == (
        f"ModelError: there is no file {tmp_path}/none.onnx\n"
        "  next: hagane zoo list shows example models to pull\n"
    )


def test_a_folder_instead_of_a_file(hagane: Call, tmp_path: Path):
    outcome = hagane("check", tmp_path)
    assert outcome.status == 3
    assert outcome.err == (
        f"ModelError: {tmp_path} is a folder, not a file\n  next: give the path of the file itself\n"
    )


def test_an_unsupported_op(hagane: Call, tmp_path: Path):
    node = helper.make_node("Sigmoidd", ["x"], ["y"], name="/head/act")
    onnx.save(tiny([node], {"x": [2, 3]}, {"y": [2, 3]}), tmp_path / "net.onnx")
    outcome = hagane("build", tmp_path / "net.onnx", "-o", tmp_path / "x.hgn")
    assert (outcome.status, outcome.out) == (3, "")
    assert outcome.err == (
        "ModelError: the op Sigmoidd is not supported\n"
        "  node:   /head/act (Sigmoidd) in net.onnx\n"
        "  inputs: x f32[2, 3]\n"
        "  tried:  a converter, a function of the model, and the function that ONNX defines the op by\n"
        "  next:   the closest supported op is Sigmoid; hagane check lists every unsupported op of a model\n"
    )


def test_inputs_that_do_not_fit(hagane: Call, engine: Path, tmp_path: Path):
    np.save(tmp_path / "x.npy", np.zeros((2, 4)))
    outcome = hagane("run", engine, "--input", f"x={tmp_path}/x.npy")
    assert (outcome.status, outcome.out) == (3, "")
    assert outcome.err == (
        "RunError: input x has dtype float64, expected float32\n"
        "  expected: x: f32[batch, 4]\n"
        "  given:    float64[2, 4]\n"
        "  next:     convert it with .astype(); dtypes are never changed silently\n"
    )


def test_an_unknown_model_of_the_zoo(hagane: Call):
    outcome = hagane("zoo", "pull", "resnet5")
    assert (outcome.status, outcome.out) == (3, "")
    assert outcome.err.startswith("ModelError: ") and "resnet50" in outcome.err


def test_a_picture_that_is_none(hagane: Call, model: Path):
    outcome = hagane("demo", "--image", model)
    assert (outcome.status, outcome.out) == (3, "")
    assert outcome.err == (
        f"ModelError: {model} can't be read as a picture\n  next: give a PNG or JPEG file\n"
    )
