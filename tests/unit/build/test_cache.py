from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import convert_model_to_external_data

from hagane import api
from hagane.build import cache
from hagane.build.cache import cache_key, cached_engine, external_files, place_in_cache
from hagane.build.options import BuildOptions
from hagane.core.dims import Dim
from hagane.core.errors import BuildError, ModelError
from tests.unit.cli.tiny_models import dense


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(dense(), tmp_path / "dense.onnx")
    return tmp_path / "dense.onnx"


def test_an_engine_is_built_once(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = cached_engine(model, tmp_path / "engines")
    content = first.read_bytes()
    monkeypatch.setattr(cache, "build_engine", None)
    assert cached_engine(model, tmp_path / "engines") == first
    assert first.read_bytes() == content
    with api.load(model, cache_dir=tmp_path / "engines") as session:
        assert session.run({"x": np.zeros((2, 4), np.float32)})["y"].shape == (2, 3)


def test_what_decides_the_content_is_in_the_key(model: Path):
    options = [
        BuildOptions(),
        BuildOptions(shapes={"x": (2, 4)}),
        BuildOptions(shapes={"x": (Dim("b", max=4), 4)}),
        BuildOptions(target="cpu:x86-64-v3"),
        BuildOptions(fuse=False),
        BuildOptions(pack="on-load"),
        BuildOptions(verify="off"),
    ]
    keys = [cache_key(model, o) for o in options]
    onnx.save(dense(5), model)
    keys.append(cache_key(model, BuildOptions()))
    assert len(set(keys)) == len(keys)


def test_what_does_not_decide_it_is_not(model: Path):
    plain = cache_key(model, BuildOptions())
    assert plain == cache_key(model, BuildOptions(progress=lambda *args: None, threads=3))
    moved = model.rename(model.with_name("other.onnx"))
    assert plain == cache_key(moved, BuildOptions())


def test_external_data_counts(tmp_path: Path):
    model = dense()
    convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save(model, tmp_path / "m.onnx")
    assert external_files(tmp_path / "m.onnx") == [tmp_path / "weights.bin"]
    before = cache_key(tmp_path / "m.onnx", BuildOptions())
    data = bytearray((tmp_path / "weights.bin").read_bytes())
    data[0] ^= 1
    (tmp_path / "weights.bin").write_bytes(data)
    assert cache_key(tmp_path / "m.onnx", BuildOptions()) != before


def test_a_failing_build_leaves_no_engine(tmp_path: Path):
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(ModelError):
        cached_engine(tmp_path / "bad.onnx", tmp_path / "engines")
    assert not list((tmp_path / "engines").glob("*.hgn"))


def test_a_folder_that_cannot_be_used(model: Path):
    with pytest.raises(BuildError, match="can't be kept"):
        cached_engine(model, model / "engines")


def test_missing_models(tmp_path: Path):
    with pytest.raises(ModelError, match="can't read"):
        place_in_cache(tmp_path / "none.onnx", tmp_path, BuildOptions())
