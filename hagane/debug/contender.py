"""One side of a speed comparison, in a process of its own: reads commands, prints times.

Started by `debug.duel`. Commands on standard input, one JSON object a line: {"runs": 20, "idle_ms": 0}.
Answers: a JSON list of microseconds for each run, or an object with the reason why that failed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

WARM_UP_RUNS = 3  # the first allocates and faults memory in
WARM_UP_S = 0.5  # after which slow models are as warm as they get


def _hagane(path: str, threads: int) -> Callable[[dict[str, Any]], Any]:
    from hagane.runtime import load

    return load(path, threads=threads).run


def _onnxruntime(path: str, threads: int) -> Callable[[dict[str, Any]], Any]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


def _openvino(path: str, threads: int) -> Callable[[dict[str, Any]], Any]:
    import openvino

    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(path, "CPU", settings).create_infer_request()

    def run(feed: dict[str, Any]) -> Any:
        request.infer(feed, share_inputs=True)
        return [request.get_output_tensor(k).data for k in range(len(request.model_outputs))]

    return run


_KINDS = {"hagane": _hagane, "onnxruntime": _onnxruntime, "openvino": _openvino}


def main() -> None:
    """Loads the side that the arguments name, then serves commands until standard input ends."""
    try:
        _serve(*sys.argv[1:5])
    except Exception as error:  # a peer may raise anything; whoever started this process shows it
        print(json.dumps({"failed": f"{type(error).__name__}: {error}"}), flush=True)


def _serve(kind: str, path: str, threads: str, feed_path: str) -> None:
    with np.load(feed_path) as archive:
        feed = {name: archive[name] for name in archive.files}
    run = _KINDS[kind](path, int(threads))
    start, runs = time.perf_counter(), 0
    while runs < WARM_UP_RUNS and (runs == 0 or time.perf_counter() - start < WARM_UP_S):
        run(feed)
        runs += 1
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        times = []
        for _ in range(command["runs"]):
            if command.get("idle_ms"):
                time.sleep(command["idle_ms"] / 1e3)
            start = time.perf_counter()
            run(feed)
            times.append((time.perf_counter() - start) * 1e6)
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
