"""Engine files: round trips, determinism, atomic writes, verification, refit."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hagane.core.errors import EngineError, InternalError
from hagane.core.targets import native_cpu
from hagane.engine import write
from hagane.engine.image import EngineImage
from hagane.engine.layout import HEADER_BYTES, SECTION_ALIGN
from hagane.engine.read import is_engine_file, read_engine
from hagane.engine.refit import refit
from hagane.engine.write import write_engine
from hagane.plan.model import Plan
from hagane.runtime import load
from tests.unit.engine.engines import engine, expected
from tests.unit.plan.plans import everything
from tests.unit.runtime.kernels import TARGET, blob

X = np.arange(16, dtype=np.float32)


@pytest.mark.parametrize("pack", ["embed", "on-load"])
def test_round_trip(tmp_path: Path, pack: str) -> None:
    image = engine(pack)
    path = tmp_path / "net.hgn"
    write_engine(image, path)
    assert is_engine_file(path)
    again = read_engine(path)
    assert dict(again.plans) == image.plans
    for name in ("graph_text", "sources", "metadata", "tuning", "verification", "pack"):
        assert getattr(again, name) == getattr(image, name), name
    assert again.weights.keys() == image.weights.keys()
    for name, value in image.weights.items():
        found = again.weights[name]
        assert found.dtype == value.dtype and found.shape == value.shape
        assert np.array_equal(found, value)
        assert not found.flags.writeable or not found.size
    assert len(again.packed) == (2 if pack == "embed" else 0)
    again.verify_weights()
    for threads in (1, 2):
        with load(path, threads=threads) as session:
            assert np.array_equal(session.run({"x": X})["y"], expected(image, X))
            assert session.metadata == image.metadata


def test_writing_what_was_read_gives_the_same_bytes(tmp_path: Path) -> None:
    for pack in ("embed", "on-load"):
        write_engine(engine(pack), tmp_path / "a")
        write_engine(read_engine(tmp_path / "a"), tmp_path / "b")
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_order_of_dicts_does_not_matter(tmp_path: Path) -> None:
    image = engine()
    write_engine(image, tmp_path / "a")
    for name in ("weights", "sources", "metadata"):
        setattr(image, name, dict(reversed(getattr(image, name).items())))
    write_engine(image, tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_equal_packed_constants_are_stored_once_and_blobs_are_aligned(tmp_path: Path) -> None:
    write_engine(engine(), tmp_path / "a")
    image = read_engine(tmp_path / "a")
    first, second = (image.packed[TARGET, name] for name in ("v.packed", "v.again"))
    assert first.ctypes.data == second.ctypes.data
    for array in (*image.packed.values(), *image.weights.values()):
        assert array.ctypes.data % 64 == 0 or not array.size


def other_target(name: str) -> Plan:
    (plan,) = engine().plans.values()
    return Plan(name, plan.symbols, plan.constants, plan.programs, plan.regions)


def test_several_targets_in_one_file(tmp_path: Path) -> None:
    """One for here, one for another architecture, and one of which this version knows nothing."""
    image = engine()
    targets = ["cpu:aarch64", "cuda:sm90", "cpu:x86-64-v3", TARGET]
    image.plans = {name: other_target(name) for name in targets}
    image.code = dict.fromkeys(targets, blob())
    write_engine(image, tmp_path / "a")
    again = read_engine(tmp_path / "a")
    assert set(again.plans) == set(targets)
    assert again.plans["cuda:sm90"] == image.plans["cuda:sm90"]
    with load(tmp_path / "a", threads=1) as session:
        assert session.target == str(native_cpu())
        assert np.array_equal(session.run({"x": X})["y"], expected(image, X))


def test_reserved_things_survive(tmp_path: Path) -> None:
    """State values, collectives, other devices, calls: stored and read back."""
    plan = everything()
    image = engine(plans={plan.target: plan}, code={plan.target: renamed()}, weights=odd_weight())
    write_engine(image, tmp_path / "a")
    assert read_engine(tmp_path / "a").plans[plan.target] == plan


def odd_weight() -> dict[str, Any]:
    return {'odd "name"\n\\ é/weight': np.zeros((3, 5), np.float32)}


def renamed() -> Any:
    """The blob with its functions under the names that the plan launches."""
    from types import SimpleNamespace

    known = blob()
    symbols = dict(known.symbols) | dict.fromkeys(("k", "k_even", "serial"), 0)
    return SimpleNamespace(
        code=known.code, symbols=symbols, imports=known.imports, import_table_offset=known.import_table_offset
    )


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.hgn"
    write_engine(engine(), path)
    before = path.read_bytes()

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write._Writer, "_weights", fail)
    with pytest.raises(EngineError, match="No space left"):
        write_engine(engine(), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["net.hgn"]
    with pytest.raises(EngineError, match="can't write"):
        write_engine(engine(), tmp_path / "missing" / "net.hgn")


def test_the_new_file_replaces_a_mapped_one(tmp_path: Path) -> None:
    path = tmp_path / "net.hgn"
    image = engine()
    write_engine(image, path)
    with load(path, threads=1) as session:
        refit(path, {"v": np.ones(12, np.float32)}, path)
        assert np.array_equal(session.run({"x": X})["y"], expected(image, X))
    assert path.stat().st_mode & 0o777 == 0o666 & ~write._umask()


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_engine(engine(), tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and is_engine_file(tmp_path / "real")


def test_invalid_engines_are_not_written(tmp_path: Path) -> None:
    (plan,) = engine().plans.values()
    with pytest.raises(InternalError, match="no code with a driver"):
        write_engine(engine(code={}), tmp_path / "a")
    with pytest.raises(EngineError, match="pack='never'"):
        write_engine(engine(pack="never"), tmp_path / "a")
    with pytest.raises(EngineError, match=r"the recipe of constant v.packed fails"):
        write_engine(engine(weights={"/net/w": np.zeros((4, 4), np.float32)}), tmp_path / "a")
    broken = Plan(plan.target, (), plan.constants, plan.programs, plan.regions)
    with pytest.raises(InternalError, match="the plan is invalid"):
        write_engine(engine(plans={TARGET: Plan(TARGET, (), (), {})}), tmp_path / "a")
    assert broken.symbols == () and not os.listdir(tmp_path)


@pytest.mark.parametrize("pack", ["embed", "on-load"])
def test_refit(tmp_path: Path, pack: str) -> None:
    path = tmp_path / "net.hgn"
    write_engine(engine(pack), path)
    fresh = {"v": np.full(12, 3, np.float32), "/net/w": np.full((4, 4), -1, np.float32)}
    for source in (path, engine(pack)):
        fitted = refit(source, fresh, tmp_path / "out.hgn")
        with load(fitted, threads=1) as session:
            assert np.array_equal(session.run({"x": X})["y"], expected(fitted, X))
        with load(tmp_path / "out.hgn", threads=1) as session:
            assert np.array_equal(session.run({"x": X})["y"], expected(fitted, X))
    write_engine(engine(pack, weights={**engine().weights, **fresh}), tmp_path / "built.hgn")
    assert (tmp_path / "out.hgn").read_bytes() == (tmp_path / "built.hgn").read_bytes()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"z": np.zeros(3)}, "no weight z"),
        ({"v": np.zeros(12)}, r"v is float32\[12\], given float64\[12\]"),
        ({"v": np.zeros(11, np.float32)}, r"given float32\[11\]"),
    ],
)
def test_refit_refuses(weights: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        refit(engine(), weights)


def flipped(path: Path, offset: int) -> Path:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    other = path.with_suffix(".bad")
    other.write_bytes(data)
    return other


def test_damage_is_found(tmp_path: Path) -> None:
    path = tmp_path / "net.hgn"
    write_engine(engine(), path)
    good = read_engine(path)._reader.manifest
    sections = {section.kind: section for section in good.sections}
    with pytest.raises(EngineError, match="checksum of section code") as caught:
        load(flipped(path, sections["code"].offset + 100), threads=1)
    assert "net.bad" in str(caught.value)
    with pytest.raises(EngineError, match="checksum of section plan"):
        load(flipped(path, sections["plan"].offset + 5), threads=1)
    with pytest.raises(EngineError, match="header's checksum"):
        read_engine(flipped(path, 20))
    with pytest.raises(EngineError, match="manifest's checksum"):
        read_engine(flipped(path, len(path.read_bytes()) - 5))
    for kind in ("graph", "sources", "tuning", "verification"):
        image = read_engine(flipped(path, sections[kind].offset + 3))
        with pytest.raises(EngineError, match=f"checksum of section {kind}"):
            getattr(image, "graph_text" if kind == "graph" else kind)
        with pytest.raises(EngineError):
            image.verify_weights()
    for kind, entry in (("weights", good.weights["v"]), ("packed", good.packed[TARGET, "v.packed"])):
        bad = flipped(path, sections[kind].offset + entry.offset + 8)
        load(bad, threads=1).close()
        with pytest.raises(EngineError, match=r"the content of v.* doesn't match its hash"):
            read_engine(bad).verify_weights()


def test_what_is_no_engine(tmp_path: Path) -> None:
    for content in (b"", b"\x08\x07", b"x" * 1000):
        (tmp_path / "a").write_bytes(content)
        assert not is_engine_file(tmp_path / "a")
        with pytest.raises(EngineError, match="no engine file"):
            read_engine(tmp_path / "a")
    with pytest.raises(EngineError, match="No such file"):
        read_engine(tmp_path / "b")
    with pytest.raises(EngineError, match="can't open"):
        read_engine(tmp_path)
    assert not is_engine_file(tmp_path / "b")


def test_truncated_files(tmp_path: Path) -> None:
    write_engine(engine(), tmp_path / "a")
    data = (tmp_path / "a").read_bytes()
    for size in (9, HEADER_BYTES - 1, HEADER_BYTES, SECTION_ALIGN, len(data) // 2, len(data) - 1):
        (tmp_path / "b").write_bytes(data[:size])
        with pytest.raises(EngineError, match="damaged"):
            read_engine(tmp_path / "b")


def test_another_version(tmp_path: Path) -> None:
    write_engine(engine(), tmp_path / "a")
    data = bytearray((tmp_path / "a").read_bytes())
    data[8] = 9
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(EngineError, match="has format 9, this version of hagane reads format 1"):
        read_engine(tmp_path / "a")


def test_reading_leaks_no_handles(tmp_path: Path) -> None:
    write_engine(engine(), tmp_path / "a")
    gc.collect()
    gc.disable()  # files close by reference counts alone
    try:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            with load(tmp_path / "a", threads=1) as session:
                session.run({"x": X})
            del session
            image: EngineImage = read_engine(tmp_path / "a")
            assert image.plans[TARGET] and image.graph_text
            del image
        assert len(os.listdir("/proc/self/fd")) <= before + 1
    finally:
        gc.enable()
