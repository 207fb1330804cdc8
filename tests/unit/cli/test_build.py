from pathlib import Path

import onnx
import pytest

from hagane import api
from tests.unit.cli.calling import Call
from tests.unit.cli.tiny_models import dense


def test_it_writes_an_engine(hagane: Call, model: Path, tmp_path: Path):
    output = tmp_path / "out.hgn"
    outcome = hagane("build", model, "-o", output, "--summary", "--shapes", "x=2x4")
    assert outcome.status == 0
    assert "/fc/Gemm (Gemm), /fc/Relu (Relu)" in outcome.out
    assert outcome.out.splitlines()[-1].startswith(f"{output}: 0.")
    with api.load(output) as session:
        assert session.inputs[0].shape == (2, 4)


def test_json(hagane: Call, model: Path, tmp_path: Path):
    output = tmp_path / "out.hgn"
    found = hagane("build", model, "-o", output, "--json", "--target", "cpu:x86-64-v3").json
    assert found["engine"] == str(output)
    assert found["bytes"] == output.stat().st_size
    assert found["regions"] == {"cpu:x86-64-v3": 1}


@pytest.mark.parametrize(
    "options",
    [
        ["--target", "tpu"],
        ["--precision", "fp12"],
        ["--verify", "maybe"],
        ["--pack", "tight"],
        ["--time-budget", "-1"],
        ["--shapes", "x:3"],
    ],
    ids=lambda options: options[0],
)
def test_wrong_values_are_wrong_usage(hagane: Call, model: Path, tmp_path: Path, options: list[str]):
    outcome = hagane("build", model, "-o", tmp_path / "out.hgn", *options)
    assert outcome.status == 2
    assert options[0] in outcome.err
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written_are_refused_at_once(hagane: Call, model: Path, tmp_path: Path):
    for place in (tmp_path, tmp_path / "none" / "out.hgn"):
        assert hagane("build", model, "-o", place).status == 2


def test_a_failing_build_leaves_nothing(hagane: Call, tmp_path: Path):
    broken = dense()
    broken.graph.node[0].op_type = "Gemmm"
    onnx.save(broken, tmp_path / "broken.onnx")
    output = tmp_path / "out.hgn"
    output.write_bytes(b"before")
    outcome = hagane("build", tmp_path / "broken.onnx", "-o", output)
    assert outcome.status == 3
    assert outcome.err.startswith("ModelError: the op Gemmm is not supported\n  node:   /fc/Gemm (Gemmm)")
    assert output.read_bytes() == b"before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken.onnx", "out.hgn"]


def test_an_interrupted_build_leaves_nothing(
    hagane: Call, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "build", interrupt)
    outcome = hagane("build", model, "-o", tmp_path / "out.hgn")
    assert outcome.status == 130
    assert outcome.err == "interrupted; nothing was written\n"
    assert not list(tmp_path.iterdir())


def test_our_own_faults_leave_a_report(
    hagane: Call, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("tiles")

    monkeypatch.setattr(api, "build", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    outcome = hagane("build", model, "-o", tmp_path / "out.hgn")
    assert outcome.status == 3
    assert outcome.err.startswith("InternalError: ZeroDivisionError: tiles\n  next: ")
    report = Path(outcome.err.split()[-1])
    assert "Traceback" in report.read_text() and "'build'" in report.read_text()
