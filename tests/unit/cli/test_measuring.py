from pathlib import Path

import pytest

from hagane.cli import compare
from hagane.debug.compare import Difference
from tests.unit.cli.calling import Call


def test_bench_an_engine(hagane: Call, engine: Path):
    outcome = hagane("bench", engine, "--seconds", "0.05", "--batch", "3", "--threads", "1")
    assert outcome.status == 0
    head, names, row = outcome.out.splitlines()
    assert head == "1 threads, batch 3; microseconds"
    assert names.split() == ["min", "median", "p99", "after", "idle", "items/s", "time", "ratio"]
    assert row.split()[0] == "hagane" and row.split()[-1] == "1.00"


def test_bench_beside_a_peer(hagane: Call, model: Path):
    found = hagane("bench", model, "--seconds", "0.05", "--against", "onnxruntime", "--json").json
    assert found["batch"] == 1
    for side in ("hagane", "onnxruntime"):
        times = found["times"][side]
        assert 0 < times["min_us"] <= times["median_us"] <= times["p99_us"]
        assert times["after_idle_median_us"] > 0 and times["runs"] > 0


def test_bench_refuses_unknown_peers_dims_and_engines_beside_peers(hagane: Call, engine: Path, model: Path):
    assert "use onnxruntime or openvino" in hagane("bench", model, "--against", "torch").err
    assert "needs the ONNX file" in hagane("bench", engine, "--against", "onnxruntime").err
    outcome = hagane("bench", engine, "--dim", "T=3")
    assert outcome.status == 2 and "no dim T; it has batch" in outcome.err


@pytest.mark.parametrize("against", ["reference", "onnxruntime"])
def test_compare(hagane: Call, model: Path, against: str):
    outcome = hagane("compare", model, "--against", against, "--batch", "5")
    assert outcome.status == 0
    assert outcome.out.splitlines()[1].split()[0] == "y"
    assert outcome.out.split()[-1] == "ok"


def test_compare_per_node(hagane: Call, model: Path):
    outcome = hagane("compare", model, "--per-node")
    assert outcome.status == 0
    assert "/fc/Gemm (Gemm) in dense.onnx" in outcome.out
    assert outcome.out.splitlines()[-1].startswith("all ")


def test_compare_says_what_differs(hagane: Call, model: Path, monkeypatch: pytest.MonkeyPatch):
    wrong = Difference("h", "/fc/Gemm (Gemm) in dense.onnx", 0.5, 0.25, True)
    monkeypatch.setattr(compare, "compare_nodes", lambda *args: [wrong])
    outcome = hagane("compare", model, "--per-node")
    assert outcome.status == 1
    assert outcome.out.splitlines()[-1] == "first that differs: h, /fc/Gemm (Gemm) in dense.onnx"
    found = hagane("compare", model, "--per-node", "--json").json
    assert [node["ok"] for node in found["nodes"]] == [False]


def test_profile(hagane: Call, engine: Path):
    outcome = hagane("profile", engine, "--batch", "8", "--threads", "1", "--repeats", "3")
    assert outcome.status == 0
    head, row, total = outcome.out.splitlines()
    assert head.split() == ["#", "us", "share", "GFLOP/s", "GB/s", "roofline", "tactic", "nodes"]
    assert row.endswith("/fc/Gemm (Gemm), /fc/Relu (Relu)")
    assert total.startswith("total ") and total.endswith(" us in 1 regions")
    (region,) = hagane("profile", engine, "--json", "--top", "1").json
    assert region["region"] == 0
