import sys
from pathlib import Path

import onnx
import pytest

from hagane import zoo
from hagane.core.errors import ModelError
from hagane.zoo.fetch import file_sha256

FETCHED = [model.name for model in zoo.models() if isinstance(model.source, zoo.WheelFile)]


def test_the_cache_folder_is_what_the_user_chose(monkeypatch):
    monkeypatch.setenv("HAGANE_CACHE", "/somewhere")
    assert zoo.cache_folder() == Path("/somewhere")


def test_the_cache_folder_is_hagane_in_the_users_cache(monkeypatch):
    monkeypatch.delenv("HAGANE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert zoo.cache_folder() == Path("/caches/hagane")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert zoo.cache_folder() == Path("/home/someone/.cache/hagane")


def test_a_generated_network_is_written_once(tmp_path, monkeypatch):
    path = zoo.pull("mlp", cache=tmp_path)
    onnx.checker.check_model(onnx.load(path))
    assert [p.name for p in path.parent.iterdir()] == ["mlp.onnx"]
    monkeypatch.setattr("hagane.zoo.networks.mlp", lambda: pytest.fail("written again"))
    assert zoo.pull("mlp", cache=tmp_path) == path


def test_without_onnx_a_generated_network_says_what_to_install(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("hagane.zoo.networks")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("hagane.zoo.networks", raising=False)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ModelError) as caught:
        zoo.pull("mlp", cache=tmp_path)
    assert str(caught.value) == (
        "writing the network 'mlp' needs the package onnx, which isn't installed\n"
        "  next: pip install 'hagane[build]'"
    )


def test_a_cache_that_cannot_be_written_is_an_error_with_the_remedy(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(ModelError, match=r"mlp\.onnx can't be put into the cache") as caught:
        zoo.pull("mlp", cache=blocker)
    assert "set HAGANE_CACHE" in str(caught.value)


@pytest.mark.models
@pytest.mark.parametrize("name", FETCHED)
def test_every_fetched_model_arrives_intact(name):
    path = zoo.pull(name)
    assert file_sha256(path) == zoo.info(name).source.sha256
    assert onnx.load(path).graph.node
