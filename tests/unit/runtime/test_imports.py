"""The runtime stays lean: what a process that only runs engines imports, and how much memory that takes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from hagane.engine.write import write_engine
from tests.unit.engine.engines import engine

CODE = """
    import sys
    import numpy as np
    from hagane.runtime import load
    with load({path!r}, threads=2) as session:
        session.run({{"x": np.zeros(16, np.float32)}})
    loaded = {{name.partition(".")[0] for name in sys.modules}}
    ours = {{name.split(".")[1] for name in sys.modules if name.startswith("hagane.")}}
    print(sorted(loaded & {{"onnx", "torch", "triton", "llvmlite", "elftools", "typer", "rich", "logging",
                            "concurrent", "asyncio", "subprocess", "tempfile", "ml_dtypes"}}))
    print(sorted(ours))
    with open("/proc/self/status") as file:
        print([line.split()[1] for line in file if line.startswith("VmHWM")][0])
    """


def test_a_process_that_runs_an_engine_is_lean(tmp_path: Path) -> None:
    path = tmp_path / "net.hgn"
    image = engine()
    image.weights = {name: image.weights[name] for name in ("v", "/net/w")}
    write_engine(image, path)
    command = [sys.executable, "-c", textwrap.dedent(CODE.format(path=str(path)))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    heavy, ours, peak_kb = done.stdout.splitlines()
    assert heavy == "[]"
    assert ours == "['core', 'engine', 'host', 'plan', 'runtime']"
    assert int(peak_kb) < 60 << 10
