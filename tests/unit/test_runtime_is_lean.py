"""A process that runs an engine needs NumPy and ml_dtypes, nothing else, and starts quickly."""

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from hagane import api
from tests.unit.cli.tiny_models import dense

# Generous beside the 0.25 s that we want on a quiet machine: tests share theirs
MOST_SECONDS = 2.5

PROGRAM = """
import importlib.abc, json, sys, time

BLOCKED = set("onnx torch triton llvmlite elftools onnxruntime openvino typer rich PIL".split())
COMPILER = set("build frontends quant plugins tuner lower kernels passes codegen ops ir".split())
TOOLS = set("cli debug zoo surgery serve llm cluster compat".split())


class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        ours = parts[0] == "hagane" and len(parts) > 1 and parts[1] in COMPILER | TOOLS
        if parts[0] in BLOCKED or ours:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)


sys.meta_path.insert(0, Block())
start = time.perf_counter()
import numpy
numpy_s = time.perf_counter() - start
import hagane
with hagane.load(sys.argv[1], threads=2) as session:
    loaded_s = time.perf_counter() - start
    y = session.run({"x": numpy.ones((2, 4), numpy.float32)})["y"]
    session.run({"x": numpy.ones((7, 4), numpy.float32)})
total_s = time.perf_counter() - start
found = sorted({m.partition(".")[0] for m in sys.modules} & BLOCKED)
found += sorted(m for m in sys.modules if m.startswith("hagane.") and m.split(".")[1] in COMPILER | TOOLS)
print(json.dumps({"found": found, "shape": y.shape, "numpy": numpy_s, "load": loaded_s, "total": total_s}))
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lean")
    onnx.save(dense(), folder / "dense.onnx")
    api.build(folder / "dense.onnx").save(folder / "dense.hgn")
    return folder / "dense.hgn"


def run(engine: Path) -> dict[str, object]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSTARTUP"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(engine)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_an_engine_runs_where_nothing_of_the_compiler_can_be_imported(engine: Path):
    found = run(engine)
    assert found["found"] == []
    assert found["shape"] == [2, 3]


def test_it_starts_quickly(engine: Path, capsys: pytest.CaptureFixture[str]):
    best = min((run(engine) for _ in range(3)), key=lambda found: float(str(found["total"])))
    numpy_s, load_s, total_s = (float(str(best[key])) for key in ("numpy", "load", "total"))
    with capsys.disabled():
        print(
            f"\nimport, load and first run: {total_s:.3f} s; NumPy {numpy_s:.3f}, load {load_s - numpy_s:.3f}"
        )
    assert total_s < MOST_SECONDS
