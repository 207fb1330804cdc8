"""Claim: fp32 engines on CPUs are faster than ONNX Runtime, and about as fast as OpenVINO or faster.

Every model of the golden cases and the generated networks, batch 1, two threads; each side in a process of
its own, in alternating blocks of one run. Writes benchmarks/results/cpu_models.json. Run: ./dev bench
cpu_models [NAME ...]
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import hagane
from hagane import zoo
from hagane.core.targets import native_cpu
from hagane.debug.duel import duel
from hagane.debug.feeds import default_dims, make_feed
from tests.models.golden_cases import CASES

RESULTS = Path(__file__).parent / "results"
GENERATED = ("mlp", "dlrm", "resnet50", "mobilenet_v2", "bert_base", "unet")
BERT_SEQUENCE = 128
THREADS = 2


def entries() -> dict[str, tuple[Path, dict[str, np.ndarray[Any, Any]] | None]]:
    """Each model's file, and its golden feed if it has one."""
    found: dict[str, tuple[Path, dict[str, np.ndarray[Any, Any]] | None]] = {}
    for case in CASES:
        try:
            found[case.name] = (case.model_path(), case.golden_arrays()[0])
        except BaseException as error:  # pytest.skip, where the model is not beside the checkout
            print(f"{case.name}: left out ({error})")
    for name in GENERATED:
        found[name] = (zoo.pull(name), None)
    return found


def measure(
    name: str, path: Path, feed: dict[str, np.ndarray[Any, Any]] | None, budget: float, seconds: float
) -> dict[str, Any]:
    """Times of one model on all sides, and the ratios to the peers by minimum time."""
    with tempfile.TemporaryDirectory() as folder:
        engine = Path(folder) / "model.hgn"
        start = time.perf_counter()
        hagane.build(path, time_budget=budget, verify="off").save(engine)
        build_seconds = time.perf_counter() - start
        if feed is None:
            with hagane.load(engine, threads=1) as session:
                dims = default_dims(session.inputs, session.symbols, {"sequence": BERT_SEQUENCE})
                feed = make_feed(session.inputs, dims)
        sides = [("hagane", str(engine)), ("onnxruntime", str(path))]
        if _has_openvino():
            sides.append(("openvino", str(path)))
        times = _duel(sides, feed, seconds)
    row: dict[str, Any] = {side: t.as_dict() for side, t in times.items()}
    row["build_seconds"] = round(build_seconds, 2)
    for peer in ("onnxruntime", "openvino"):
        if peer in times:
            row[f"ratio_{peer}"] = round(times[peer].min_us / times["hagane"].min_us, 3)
    return row


def _duel(sides: list[tuple[str, str]], feed: dict[str, Any], seconds: float) -> dict[str, Any]:
    try:
        return {t.kind: t for t in duel(sides, feed, threads=THREADS, seconds=seconds)}
    except hagane.errors.RunError as error:  # OpenVINO does not take every model
        print(f"  {error.what[:160]}")
        return {t.kind: t for t in duel(sides[:2], feed, threads=THREADS, seconds=seconds)}


def _has_openvino() -> bool:
    try:
        metadata.version("openvino")
    except metadata.PackageNotFoundError:
        return False
    return True


def environment() -> dict[str, str | int]:
    """Machine, versions and commit."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    versions = {p: metadata.version(p) for p in ("numpy", "llvmlite", "onnxruntime")}
    if _has_openvino():
        versions["openvino"] = metadata.version("openvino")
    cores = len(os.sched_getaffinity(0))
    return {
        "commit": commit,
        "python": platform.python_version(),
        "cpu": str(native_cpu()),
        "cores": cores,
    } | versions


def main() -> None:
    names = [a for a in sys.argv[1:] if not a.startswith("--")]
    budget = float(next((a.split("=")[1] for a in sys.argv if a.startswith("--budget=")), "30"))
    seconds = float(next((a.split("=")[1] for a in sys.argv if a.startswith("--seconds=")), "3"))
    rows: dict[str, Any] = {}
    for name, (path, feed) in entries().items():
        if names and name not in names:
            continue
        rows[name] = row = measure(name, path, feed, budget, seconds)
        print(
            f"{name:28} {row['hagane']['min_us']:10.1f} us  "
            f"onnxruntime {row.get('ratio_onnxruntime', 0):5.2f}  "
            f"openvino {row.get('ratio_openvino', 0):5.2f}  built in {row['build_seconds']} s",
            flush=True,
        )
    ratios = [row["ratio_onnxruntime"] for row in rows.values()]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 0.0
    print(f"geometric mean of the ratio to onnxruntime: {mean:.3f}, smallest {min(ratios, default=0):.2f}")
    if not names:
        RESULTS.mkdir(exist_ok=True)
        content = {
            "environment": environment(),
            "threads": THREADS,
            "geometric_mean": round(mean, 3),
            "models": rows,
        }
        (RESULTS / "cpu_models.json").write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
