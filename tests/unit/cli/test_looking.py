"""check, inspect, zoo, doctor."""

import json
from pathlib import Path

import onnx
import pytest
from onnx import helper

from hagane import api
from hagane.plan.parse import parse_plan
from tests.unit.cli.calling import Call
from tests.unit.cli.tiny_models import model as tiny


def test_check(hagane: Call, model: Path):
    outcome = hagane("check", model)
    assert outcome.status == 0
    assert "x     f32[batch, 4]" in outcome.out
    assert outcome.out.splitlines()[-1] == "supported"
    found = hagane("check", model, "--json").json
    assert [r["kind"] for r in found["regions"]] == ["contraction"] and not found["problems"]


def test_check_lists_every_problem(hagane: Call, tmp_path: Path):
    nodes = [
        helper.make_node("Wobble", ["x"], ["a"], name="/first"),
        helper.make_node("Relu", ["x"], ["b"], name="/fine"),
        helper.make_node("Shake", ["b"], ["c"], name="/second", domain="my.ops"),
        helper.make_node("Add", ["a", "c"], ["y"], name="/sum"),
    ]
    onnx.save(tiny(nodes, {"x": [2, 3]}, {"y": [2, 3]}), tmp_path / "m.onnx")
    outcome = hagane("check", tmp_path / "m.onnx")
    assert outcome.status == 1
    assert "ModelError: the op Wobble is not supported\n  node:   /first (Wobble) in m.onnx" in outcome.out
    assert "ModelError: the op my.ops.Shake is not supported\n  node:   /second (Shake)" in outcome.out
    assert outcome.out.splitlines()[-1] == "2 problems"
    problems = hagane("check", tmp_path / "m.onnx", "--json").json["problems"]
    assert [p["error"] for p in problems] == ["ModelError", "ModelError"]


def test_inspect_summary(hagane: Call, engine: Path):
    outcome = hagane("inspect", engine)
    assert outcome.status == 0
    assert "input x f32[batch, 4]" in outcome.out
    assert "/fc/Gemm (Gemm), /fc/Relu (Relu)" in outcome.out


def test_inspect_one_region(hagane: Call, engine: Path):
    out = hagane("inspect", engine, "--region", "0").out
    assert "node:   /fc/Gemm (Gemm)" in out and "kernel: " in out
    outcome = hagane("inspect", engine, "--region", "9")
    assert outcome.status == 3
    assert "EngineError: there is no region 9" in outcome.err and "from 0 to 0" in outcome.err


def test_inspect_plan_parses_back(hagane: Call, engine: Path):
    plan = parse_plan(hagane("inspect", engine, "--plan").out)
    assert plan.programs["main"].inputs[0].name == "x"


def test_inspect_graph_kernels_and_memory(hagane: Call, engine: Path):
    assert hagane("inspect", engine, "--graph").out.startswith("graph @main(%x: f32[batch, 4]) -> y:")
    kernels = hagane("inspect", engine, "--kernels", "--region", "0").out
    assert "define dso_local void @contraction_" in kernels
    memory = hagane("inspect", engine, "--memory", "--dim", "batch=7").out
    assert memory.startswith("memory of main at batch=7\n")
    assert hagane("inspect", engine, "--memory", "--dim", "T=7").status == 3


def test_inspect_json(hagane: Call, engine: Path):
    found = hagane("inspect", engine, "--json", "--memory", "--batch", "2").json
    (target,) = found["targets"].values()
    assert target["regions"][0]["nodes"] == ["/fc/Gemm (Gemm)", "/fc/Relu (Relu)"]
    assert found["memory"][0]["dims"] == {"batch": 2}


def test_inspect_verify(hagane: Call, engine: Path, tmp_path: Path):
    outcome = hagane("inspect", engine, "--verify")
    assert outcome.status == 0
    assert outcome.out.splitlines()[-1] == "all hashes match"


def test_inspect_diff(hagane: Call, engine: Path, model: Path, tmp_path: Path):
    assert hagane("inspect", engine, "--diff", engine).out == "equal but for numbering\n"
    api.build(model, fuse=False).save(tmp_path / "other.hgn")
    outcome = hagane("inspect", engine, "--diff", tmp_path / "other.hgn")
    assert outcome.status == 1
    assert outcome.out.startswith("plan for cpu:")
    assert hagane("inspect", engine, "--diff", tmp_path / "other.hgn", "--json").json["equal"] is False


def test_inspect_wants_an_engine(hagane: Call, model: Path):
    outcome = hagane("inspect", model)
    assert outcome.status == 3
    assert outcome.err.startswith("EngineError: ")


def test_zoo(hagane: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HAGANE_CACHE", str(tmp_path))
    assert "mlp " in hagane("zoo", "list").out
    assert "Apache-2.0" in {m["licence"] for m in hagane("zoo", "list", "--json").json}
    path = Path(hagane("zoo", "pull", "mlp").out.strip())
    assert path.is_relative_to(tmp_path) and path.is_file()
    assert hagane("zoo", "pull", "mlp", "--json").json["path"] == str(path)
    outcome = hagane("zoo", "pull", "mpl")
    assert outcome.status == 3 and outcome.err.startswith("ModelError: ")


def test_doctor(hagane: Call):
    outcome = hagane("doctor", "--json")
    found = json.loads(outcome.out)
    assert outcome.status == 0
    assert found["target"]["found"].startswith("cpu:")
    assert found["numpy (runtime)"]["found"]
