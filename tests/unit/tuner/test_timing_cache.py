from pathlib import Path

from hagane.tuner.timing_cache import Setting, TimingCache

SETTING = Setting("cpu:x86-64-v4", 2, "hagane-0")


def test_records_survive_writing_and_reading(tmp_path: Path) -> None:
    cache = TimingCache()
    cache.add(SETTING, "k1", "direct(a=1)", 12.5)
    cache.add(SETTING, "k1", "direct(a=2)", 11.0)
    cache.write(tmp_path / "t.txt")
    again = TimingCache.read(tmp_path / "t.txt")
    assert again.text() == cache.text()
    assert again.best(SETTING, "k1") == "direct(a=2)"


def test_writing_keeps_what_others_wrote(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    first, second = TimingCache(), TimingCache()
    first.add(SETTING, "k1", "x", 1.0)
    second.add(SETTING, "k2", "y", 2.0)
    first.write(path)
    second.write(path)
    assert TimingCache.read(path).best(SETTING, "k1") == "x"


def test_unreadable_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(b"\xff\xfe junk\nhagane-timing-1 k t two g c 1.0\nhagane-timing-0 k t 2 g c 1.0\n")
    assert TimingCache.read(path).times == {}


def test_another_setting_is_another_record() -> None:
    cache = TimingCache()
    cache.add(SETTING, "k", "x", 1.0)
    assert cache.best(Setting(SETTING.target, 1, SETTING.generator), "k") is None


def test_what_can_not_run_is_never_the_best() -> None:
    cache = TimingCache()
    cache.add(SETTING, "k", "x", float("inf"))
    assert cache.best(SETTING, "k") is None
    cache.add(SETTING, "k", "y", 3.0)
    assert cache.best(SETTING, "k") == "y"
