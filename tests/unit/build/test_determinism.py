"""The same model and timing cache give the same bytes, whatever the hash seed."""

import os
import subprocess
import sys
from pathlib import Path

from tests.unit.build.models import small_model

_SCRIPT = """
import sys, hagane
model, output, cache, budget = sys.argv[1:]
hagane.build(model, timing_cache=cache, time_budget=float(budget)).save(output)
"""


def _build(model: Path, output: Path, cache: Path, budget: float, seed: str) -> bytes:
    command = [sys.executable, "-c", _SCRIPT, str(model), str(output), str(cache), str(budget)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": seed})
    return output.read_bytes()


def test_equal_inputs_give_equal_engines(tmp_path: Path) -> None:
    model = tmp_path / "small.onnx"
    model.write_bytes(small_model().SerializeToString())
    cache = tmp_path / "times.txt"
    tuned = _build(model, tmp_path / "a.hgn", cache, 60.0, "1")
    assert cache.read_text()
    assert _build(model, tmp_path / "b.hgn", cache, 0.0, "2") == tuned
    assert _build(model, tmp_path / "c.hgn", cache, 60.0, "3") == tuned
