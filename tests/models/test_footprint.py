"""What a process that runs an engine takes: little beside weights and arena, and an arena packed tightly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hagane
from hagane import zoo
from hagane.runtime.inputs import evaluate

pytestmark = pytest.mark.models

_BESIDE_MB = 60
_SCRIPT = """
import json, re, sys
from pathlib import Path
import numpy as np
import hagane

with hagane.load(sys.argv[1], threads=2) as session:
    (x,) = session.inputs
    feed = {x.name: np.zeros([d if isinstance(d, int) else 1 for d in x.shape], x.dtype.np)}
    for _ in range(5):
        session.run(feed)
    # not getrusage, whose maximum includes the process that this one was started from
    peak = re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())
    print(json.dumps({**session.memory, "peak": int(peak[1]) << 10}))
"""


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet50"])
def test_peak_memory(name: str, tmp_path: Path) -> None:
    engine = tmp_path / "net.hgn"
    hagane.build(zoo.pull(name), verify="off").save(engine)
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(engine)], capture_output=True, text=True, check=True
    )
    memory = json.loads(done.stdout)
    allowed = memory["weights"] + memory["packed"] + memory["arena"] + (_BESIDE_MB << 20)
    assert memory["peak"] <= allowed, memory


@pytest.mark.parametrize("name", ["mlp", "mobilenet_v2", "unet"])
def test_arena_is_close_to_what_lives_at_once(name: str) -> None:
    engine = hagane.build(zoo.pull(name), verify="off")
    with hagane.load(engine, threads=1) as session, session.exclusive() as (_, program):
        dims = dict.fromkeys(session.symbols, 1)
        buffers = [b for b in program.buffers if b.kind == "arena"]
        sizes = evaluate([b.size_bytes for b in buffers], dims)
    steps = range(max(b.last_step for b in buffers) + 1)
    live = [
        sum(s for b, s in zip(buffers, sizes, strict=True) if b.first_step <= step <= b.last_step)
        for step in steps
    ]
    with hagane.load(engine, threads=1) as session:
        feed = {
            x.name: np.zeros([d if isinstance(d, int) else 1 for d in x.shape], x.dtype.np)
            for x in session.inputs
        }
        session.run(feed)
        assert session.memory["arena"] <= 1.2 * max(live) + 4096
