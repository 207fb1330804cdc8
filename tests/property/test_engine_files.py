"""Damaged engine files: each works or raises an error of ours; none crashes, hangs or takes endless memory.

The checksums of header, manifest and plan are recomputed after each mutation, so that what stands behind
them is tested. Twice: with the code's record of its plan left alone, where files that open are also run,
and with that record forged too, where everything but the kernels is run.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hagane.core.errors import HaganeError
from hagane.core.symbolic import const
from hagane.engine.layout import HEADER_BYTES, Header, read_header
from hagane.engine.read import read_engine
from hagane.engine.write import write_engine
from hagane.plan.model import Collective, Fill, If
from hagane.runtime import Session
from tests.unit.engine.engines import engine
from tests.unit.plan.plans import everything
from tests.unit.runtime.kernels import TARGET

NUM_MUTATIONS = 200
MEMORY_BYTES = 4 << 30
SECONDS_EACH = 5.0
NUMBERS = [
    0,
    1,
    -1,
    2,
    63,
    64,
    65,
    255,
    4096,
    65536,
    1 << 31,
    1 << 32,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    10**30,
]
SNIPPETS = [
    "",
    '"',
    "{",
    "}",
    "[",
    "]",
    "(",
    "//",
    "% 0",
    "max(",
    "1e999",
    "null",
    "true",
    "\x00",
    "é",
    "B",
    "-",
]


class Parts:
    """A file taken apart, and put together again with checksums that match."""

    def __init__(self, data: bytes) -> None:
        self.header = read_header(data[:HEADER_BYTES], len(data))
        self.body = data[HEADER_BYTES : self.header.manifest_offset]
        self.manifest = data[self.header.manifest_offset :]
        sections = json.loads(self.manifest)["sections"]
        self.plan_at, self.plan_size = self._extent(sections, "plan")
        self.code_at, self.code_size = self._extent(sections, "code")
        self.plan = self._part(self.plan_at, self.plan_size)

    @staticmethod
    def _extent(sections: list[dict[str, int]], kind: str) -> tuple[int, int]:
        (found,) = (s for s in sections if s["kind"] == kind)
        return found["offset"], found["size"]

    def _part(self, offset: int, size: int) -> bytes:
        return self.body[offset - HEADER_BYTES : offset - HEADER_BYTES + size]

    def _replace(self, body: bytes, offset: int, old_size: int, new: bytes) -> bytes:
        """Puts other bytes in place of a part, which the padding up to the next section leaves room for."""
        start = offset - HEADER_BYTES
        room = -(-(offset + old_size) // 65536) * 65536 - offset
        assert len(new) <= room
        return body[:start] + new.ljust(room, b"\0") + body[start + room :]

    def build(self, manifest: bytes, plan: bytes, forge: bool) -> bytes:
        body = self._replace(self.body, self.plan_at, self.plan_size, plan)
        sums = {hashlib.sha256(self.plan).hexdigest(): hashlib.sha256(plan).hexdigest()}
        manifest = self._resize(manifest, self.plan_at, self.plan_size, len(plan))
        if forge:
            code = self._part(self.code_at, self.code_size)
            forged = code
            for old, new in sums.items():
                forged = forged.replace(old.encode(), new.encode())
            body = self._replace(body, self.code_at, self.code_size, forged)
            sums[hashlib.sha256(code).hexdigest()] = hashlib.sha256(forged).hexdigest()
        for old, new in sums.items():
            manifest = manifest.replace(old.encode(), new.encode())
        size = HEADER_BYTES + len(body) + len(manifest)
        header = Header(HEADER_BYTES + len(body), len(manifest), hashlib.sha256(manifest).digest(), size)
        return header.pack() + body + manifest

    @staticmethod
    def _resize(manifest: bytes, offset: int, old: int, new: int) -> bytes:
        before = f'"offset":{offset},"size":{old},"raw_size":{old}'
        return manifest.replace(before.encode(), f'"offset":{offset},"size":{new},"raw_size":{new}'.encode())


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to three changes of bytes, numbers, words or lines."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind = rng.randrange(6)
        if kind == 0:
            at = rng.randrange(len(data))
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        elif kind == 1:
            numbers = list(re.finditer(rb"\d+", data))
            found = rng.choice(numbers)
            data = data[: found.start()] + str(rng.choice(NUMBERS)).encode() + data[found.end() :]
        elif kind == 2:
            words = list(re.finditer(rb'"[^"]*"|\w+', data))
            one, other = rng.choice(words), rng.choice(words)
            data = data[: one.start()] + other.group() + data[one.end() :]
        elif kind == 3:
            at = rng.randrange(len(data))
            data = data[:at] + rng.choice(SNIPPETS).encode() + data[at:]
        elif kind == 4:
            start = rng.randrange(len(data))
            data = data[:start] + data[start + rng.randrange(1, 40) :]
        else:
            lines = re.split(rb"(?<=[\n,])", data)
            one_line, other_line = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[one_line] = lines[other_line] if rng.random() < 0.5 else lines[one_line] * 2
            data = b"".join(lines)
    return data


def try_file(path: Path, forge: bool) -> str:
    """Opens, runs and reads all of a file; gives the name of the error, if there is one."""
    try:
        image = read_engine(path)
        with Session(image, threads=1, memory_limit=1 << 30) as session:
            shapes = [
                [min(d, 64) if isinstance(d, int) else 2 for d in port.shape] for port in session.inputs
            ]
            feed = {
                port.name: np.ones(shape, port.dtype.np)
                for port, shape in zip(session.inputs, shapes, strict=True)
            }
            if forge:
                session._main.bind(tuple(array.shape for array in feed.values()))
            else:
                session.run(feed)
        image.verify_weights()
    except HaganeError as error:
        assert str(error)
        return type(error).__name__
    return "works"


def run_all(kind: str, forge: bool) -> None:
    """In a process of its own: prints each seed before and the outcome after."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.hgn"
        if kind == "runs":
            write_engine(engine(), path)
        else:
            write_full(path)
        parts = Parts(path.read_bytes())
        for seed in range(NUM_MUTATIONS):
            print(seed, end=" ", flush=True)
            rng = random.Random(seed)
            manifest, plan = parts.manifest, parts.plan
            if rng.random() < (0.3 if forge else 0.5):
                manifest = mutate(manifest, rng)
            else:
                plan = mutate(plan, rng)
            path.write_bytes(parts.build(manifest, plan, forge))
            start = time.process_time()
            outcome = try_file(path, forge)
            assert time.process_time() - start < SECONDS_EACH, f"{outcome} took too long"
            print(outcome, flush=True)


def write_full(path: Path) -> None:
    """An engine for this machine whose plan has every kind of step that it can run."""
    from tests.unit.engine.test_files import odd_weight, renamed

    plan = replace(everything(), target=TARGET)
    main = plan.programs["main"]
    steps = []
    for step in main.steps:
        if isinstance(step, If) and isinstance(step.then[0], Collective):
            step = replace(step, then=(Fill("h", const(4)),))
        steps.append(replace(step, device="cpu:0"))
    plan = replace(plan, programs={**plan.programs, "main": replace(main, steps=tuple(steps))})
    write_engine(engine(plans={TARGET: plan}, code={TARGET: renamed()}, weights=odd_weight()), path)


@pytest.mark.parametrize(("kind", "forge"), [("runs", False), ("runs", True), ("full", True)])
def test_mutated_files(kind: str, forge: bool) -> None:
    command = [sys.executable, "-c", f"from {__name__} import run_all; run_all({kind!r}, {forge})"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout[-300:]}\n{done.stderr[-3000:]}"
    outcomes = re.findall(r"^\d+ (\w+)$", done.stdout, re.MULTILINE)
    assert len(outcomes) == NUM_MUTATIONS
    assert set(outcomes) <= {"works", "EngineError", "RunError"}
    assert outcomes.count("EngineError") > NUM_MUTATIONS // 4


def test_untouched_parts_work() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.hgn"
        write_engine(engine(), path)
        parts = Parts(path.read_bytes())
        path.write_bytes(parts.build(parts.manifest, parts.plan + b" \n", forge=True))
        assert try_file(path, forge=False) == "works"
        path.write_bytes(parts.build(parts.manifest, parts.plan + b" \n", forge=False))
        assert try_file(path, forge=False) == "EngineError"


@pytest.mark.parametrize("seed", range(50))
def test_random_bytes(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    write_engine(engine(), tmp_path / "a")
    data = bytearray((tmp_path / "a").read_bytes())
    for _ in range(rng.randrange(1, 20)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    (tmp_path / "a").write_bytes(data[: rng.randrange(len(data)) if rng.random() < 0.3 else len(data)])
    assert try_file(tmp_path / "a", forge=False) in ("works", "EngineError")
