"""The search measures one candidate of every region in each round, and nothing twice."""

from __future__ import annotations

from collections.abc import Mapping

from hagane.tuner.search import Problem, search
from hagane.tuner.timing_cache import Setting, TimingCache

SETTING = Setting("cpu:x86-64-v4", 2, "hagane-0")
INF = float("inf")


class Network:
    """Regions with a time for each candidate; keeps the rounds that it was asked to run."""

    def __init__(self, times: dict[str, dict[str, float]]) -> None:
        self.times = times
        self.rounds: list[dict[str, str]] = []

    def problems(self) -> list[Problem[str]]:
        return [Problem(key, {name: name for name in times}) for key, times in self.times.items()]

    def measure(self, wanted: Mapping[str, str]) -> dict[str, float]:
        self.rounds.append(dict(wanted))
        return {key: self.times[key][name] for key, name in wanted.items() if self.times[key][name] >= 0}

    def search(self, cache: TimingCache, seconds: float = 10.0) -> dict[str, str]:
        return search(self.problems(), cache, SETTING, seconds, self.measure, lambda done, total: None)


def test_all_regions_are_measured_in_the_same_rounds() -> None:
    network = Network({"a": {"x": 5.0, "y": 3.0}, "b": {"x": 1.0, "y": INF, "z": 2.0}})
    assert network.search(TimingCache()) == {"a": "y", "b": "x"}
    assert network.rounds == [{"a": "x", "b": "x"}, {"a": "y", "b": "y"}, {"a": "y", "b": "z"}]


def test_close_candidates_meet_once_more_with_the_best_elsewhere() -> None:
    network = Network({"a": {"x": 10.0, "y": 10.5, "z": 30.0}, "b": {"x": 7.0, "y": 3.0}})
    assert network.search(TimingCache()) == {"a": "x", "b": "y"}
    assert network.rounds[3:] == [{"a": "x", "b": "y"}, {"a": "y", "b": "y"}]


def test_nothing_is_measured_without_time_and_nothing_twice() -> None:
    network, cache = Network({"a": {"x": 5.0, "y": 3.0}}), TimingCache()
    assert network.search(cache, seconds=0.0) == {}
    network.search(cache)
    assert len(network.rounds) == 2
    assert network.search(cache) == {"a": "y"}
    assert len(network.rounds) == 2


def test_an_interrupted_search_goes_on_where_it_was() -> None:
    network, cache = Network({"a": {"x": 5.0, "y": 3.0, "z": 4.0}}), TimingCache()
    cache.add(SETTING, "a", "x", 5.0)
    cache.add(SETTING, "a", "z", 4.0)
    assert network.search(cache) == {"a": "y"}
    assert network.rounds == [{"a": "y"}]


def test_a_region_that_is_never_reached_costs_one_round() -> None:
    network = Network({"a": {"x": -1.0, "y": -1.0, "z": -1.0}})
    assert network.search(TimingCache()) == {}
    assert len(network.rounds) == 1
