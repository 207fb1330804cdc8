from pathlib import Path

import numpy as np
import pytest

from hagane.debug.compare import reference_outputs
from tests.unit.cli.calling import Call


@pytest.fixture
def x(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32))
    return tmp_path / "x.npy"


@pytest.mark.parametrize("kind", ["engine", "model"])
def test_it_writes_the_outputs(hagane: Call, model: Path, x: Path, kind: str, request: pytest.FixtureRequest):
    folder = x.parent / "results"
    outcome = hagane("run", request.getfixturevalue(kind), "--input", f"x={x}", "--output", folder)
    assert outcome.status == 0
    assert outcome.out.splitlines()[1].split()[:3] == ["y", "float32", "5x3"]
    want = reference_outputs(model, {"x": np.load(x)})["y"]
    np.testing.assert_allclose(np.load(folder / "y.npy"), want, rtol=1e-5)


def test_an_archive_holds_all_inputs(hagane: Call, engine: Path, x: Path):
    np.savez(x.parent / "all.npz", x=np.load(x))
    outcome = hagane("run", engine, "--input", x.parent / "all.npz", "--json")
    (output,) = outcome.json["outputs"]
    assert (output["name"], output["dtype"], output["shape"]) == ("y", "float32", "5x3")


def test_inputs_are_needed(hagane: Call, engine: Path):
    assert hagane("run", engine).status == 2


def test_inputs_that_do_not_fit(hagane: Call, engine: Path, tmp_path: Path):
    np.save(tmp_path / "x.npy", np.zeros((5, 7), np.float32))
    outcome = hagane("run", engine, "--input", f"x={tmp_path}/x.npy")
    assert outcome.status == 3
    assert outcome.err.startswith("RunError: ")


def test_build_options_need_a_model(hagane: Call, engine: Path, x: Path):
    outcome = hagane("run", engine, "--input", f"x={x}", "--shapes", "x=5x4")
    assert outcome.status == 2
    assert "--shapes needs the model" in outcome.err


def test_outputs_that_cannot_be_written(hagane: Call, engine: Path, x: Path):
    outcome = hagane("run", engine, "--input", f"x={x}", "--output", x)
    assert outcome.status == 3
    assert outcome.err.startswith("RunError: can't write output 'y' to")
