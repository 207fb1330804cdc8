"""The whole text of what loading and running an engine say."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hagane import api
from hagane.core import targets
from hagane.core.errors import HaganeError
from hagane.engine.read import read_engine
from hagane.runtime.session import Session

DAMAGED = "  next: copy it again, or build the engine anew"


def message(work: Callable[[], Any]) -> str:
    with pytest.raises(HaganeError) as info:
        work()
    return f"{type(info.value).__name__}: {info.value}"


@pytest.fixture
def session(engine: Path) -> Iterator[Session]:
    with api.load(engine, threads=1) as opened:
        yield opened


def x(*shape: int, dtype: Any = np.float32) -> dict[str, Any]:
    return {"x": np.zeros(shape, dtype)}


def test_a_file_that_is_not_there(tmp_path: Path):
    path = tmp_path / "none.hgn"
    assert message(lambda: api.load(path)) == f"ModelError: there is no file {path}\n  next: check the path"


def test_a_file_that_is_no_engine(model: Path):
    assert message(lambda: read_engine(model)) == (
        f"EngineError: this is no engine file\n  file: {model}\n  next: hagane build makes one from a model"
    )


def test_a_file_that_is_cut_off(engine: Path, tmp_path: Path):
    path, data = tmp_path / "cut.hgn", engine.read_bytes()
    path.write_bytes(data[:-10])
    assert message(lambda: api.load(path)) == (
        f"EngineError: the engine file is damaged: it has {len(data) - 10:,} bytes, "
        f"the header says {len(data):,}\n"
        f"  file: {path}\n{DAMAGED}"
    )
    path.write_bytes(data[:50])
    assert message(lambda: api.load(path)) == (
        f"EngineError: the engine file is damaged: it ends inside the header\n  file: {path}\n{DAMAGED}"
    )


def test_a_file_with_a_flipped_bit(engine: Path, tmp_path: Path):
    path, data = tmp_path / "flipped.hgn", bytearray(engine.read_bytes())
    data[data.index(b'plan "cpu:') + 8] ^= 1
    path.write_bytes(data)
    assert message(lambda: api.load(path)) == (
        f"EngineError: the engine file is damaged: the checksum of section plan is wrong\n"
        f"  file: {path}\n{DAMAGED}"
    )


def test_a_file_of_another_version(engine: Path, tmp_path: Path):
    path, data = tmp_path / "new.hgn", bytearray(engine.read_bytes())
    data[8] = 9
    data[88:120] = hashlib.sha256(data[:88]).digest()
    path.write_bytes(data)
    assert message(lambda: api.load(path)) == (
        "EngineError: the engine file has format 9, this version of hagane reads format 1\n"
        f"  file: {path}\n"
        "  next: build the engine anew, or use the version of hagane that built it"
    )


def test_an_engine_for_another_cpu(model: Path, monkeypatch: pytest.MonkeyPatch):
    built = api.build(model, target="cpu:x86-64-v4", verify="off")
    monkeypatch.setattr(targets, "_cpu_flags", lambda: frozenset(targets._V3_FLAGS))
    assert message(lambda: api.load(built)) == (
        "EngineError: the engine is for cpu:x86-64-v4; this machine is cpu:x86-64-v3\n"
        "  next: build the model for this machine: hagane build --target native"
    )


def test_an_input_of_another_shape(session: Session):
    rest = (
        "\n  expected: x: f32[batch, 4]\n"
        "  next:     give it a shape that the engine was built for, or build with a wider shapes="
    )
    assert message(lambda: session.run(x(1, 5))) == (
        "RunError: x has shape [1, 5]: dim 1 is 5, expected 4" + rest
    )
    assert message(lambda: session.run(x(4))) == "RunError: x has shape [4]: it has 1 dims, expected 2" + rest
    assert message(lambda: session.run(x(0, 4))) == (
        "RunError: x has shape [0, 4]: dim 0 (batch) is 0, outside 1.." + rest
    )


def test_an_input_of_another_type(session: Session):
    assert message(lambda: session.run(x(1, 4, dtype=np.float64))) == (
        "RunError: input x has dtype float64, expected float32\n"
        "  expected: x: f32[batch, 4]\n"
        "  given:    float64[1, 4]\n"
        "  next:     convert it with .astype(); dtypes are never changed silently"
    )


def test_what_is_no_array(session: Session):
    assert message(lambda: session.run({"x": [1, 2]})) == (
        "RunError: input x is a list, not an array\n"
        "  expected: x: f32[batch, 4]\n"
        "  next:     pass a NumPy array of float32, or an object with __dlpack__"
    )


def test_inputs_of_other_names(session: Session):
    rest = "\n  inputs: x: f32[batch, 4]\n  next:   pass one array for each input, by name"
    assert message(lambda: session.run({"X": x(1, 4)["x"]})) == (
        "RunError: the feed lacks x: f32[batch, 4]; the engine has no input X" + rest
    )
    assert message(lambda: session.run({**x(1, 4), "z": 1})) == "RunError: the engine has no input z" + rest


def test_outputs_that_cannot_be_filled(session: Session):
    assert message(lambda: session.run(x(1, 4), out={"q": np.zeros((1, 3), np.float32)})) == (
        "RunError: out= names q, which the engine doesn't give\n"
        "  outputs: y\n"
        "  next:    name outputs of the engine"
    )
    assert message(lambda: session.run(x(1, 4), out={"y": np.zeros((2, 3), np.float32)})) == (
        "RunError: out['y'] is float32[2, 3]\n"
        "  expected: y: float32[1, 3], C-contiguous, writable, memory of its own\n"
        "  next:     leave y out of out=, or allocate it with numpy.empty"
    )


def test_a_closed_session(engine: Path):
    session = api.load(engine)
    session.close()
    assert message(lambda: session.run(x(1, 4))) == (
        "RunError: the session is closed\n  next: load the engine again"
    )


def test_impossible_options(engine: Path):
    assert message(lambda: api.load(engine, threads=0)) == (
        "RunError: threads=0\n  next: use a number from 1 to 1024"
    )
    text = message(lambda: api.load(engine, affinity=[100_000]))
    assert text.startswith(
        "RunError: affinity=[100000] names CPUs that this process may not use\n  next: use some of ["
    )


@pytest.mark.parametrize("feed", [None, [1], (1,), np.ones((1, 4), np.float32), "x", 3])
def test_a_feed_that_is_no_dict(session: Session, feed: Any):
    for run in (session.run, session.admit_feed):
        assert message(lambda run=run: run(feed)) == (
            f"RunError: the feed is a {type(feed).__name__}, not a dict of arrays by name\n"
            "  inputs: x: f32[batch, 4]\n"
            "  next:   pass {'x': array}"
        )


@pytest.mark.parametrize("out", [[np.empty((1, 3), np.float32)], 5])
def test_out_that_is_no_dict(session: Session, out: Any):
    assert message(lambda: session.run(x(1, 4), out=out)) == (
        f"RunError: out= is a {type(out).__name__}, not a dict of arrays by name\n"
        "  outputs: y\n"
        "  next:    pass out={'y': array}, or leave it out"
    )


@pytest.mark.parametrize("limit", ["1GiB", -1, 1.5])
def test_a_memory_limit_that_is_no_number_of_bytes(engine: Path, limit: Any):
    assert message(lambda: api.load(engine, memory_limit=limit)) == (
        f"RunError: memory_limit={limit!r}\n  next: use a number of bytes, such as 1 << 30"
    )
