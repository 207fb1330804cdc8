from pathlib import Path

from hagane.tuner.search import Problem, search
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


def _problem(key: str, weight: float, times: dict[str, float | None], log: list[str]) -> Problem[str]:
    def measure(candidates):  # type: ignore[no-untyped-def]
        log.append(key)
        return [times[c] for c in candidates]

    return Problem(key, weight, {name: name for name in times}, measure)


def test_search_takes_the_fastest_and_the_heaviest_first() -> None:
    log: list[str] = []
    problems = [_problem("a", 1, {"x": 5.0, "y": 3.0}, log), _problem("b", 9, {"x": 1.0, "y": None}, log)]
    chosen = search(problems, TimingCache(), SETTING, 10.0, lambda done, total: None)
    assert (chosen, log) == ({"a": "y", "b": "x"}, ["b", "a"])


def test_search_measures_nothing_without_time_and_nothing_twice() -> None:
    log: list[str] = []
    cache = TimingCache()
    problem = _problem("a", 1, {"x": 5.0, "y": 3.0}, log)
    assert search([problem], cache, SETTING, 0.0, lambda done, total: None) == {}
    search([problem], cache, SETTING, 10.0, lambda done, total: None)
    assert search([problem], cache, SETTING, 10.0, lambda done, total: None) == {"a": "y"}
    assert log == ["a"]
