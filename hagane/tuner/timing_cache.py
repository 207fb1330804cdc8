"""The timing cache: what each candidate took for a region, as text that can be merged and kept.

One record a line: version, region key, target, threads, generator, candidate, microseconds. Lines of other
versions and lines that can't be read are kept out, never an error: a cache only ever saves time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

VERSION = "hagane-timing-1"


@dataclass(frozen=True)
class Setting:
    """What timings depend on beside the region: the target, the thread count, and what generated the code."""

    target: str
    threads: int
    generator: str


@dataclass
class TimingCache:
    """Timings by setting and region key: candidate text to microseconds."""

    times: dict[tuple[Setting, str], dict[str, float]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> TimingCache:
        """The cache in a file; an empty one if there is no such file."""
        cache = cls()
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return cache
        for line in text.splitlines():
            cache._add_line(line)
        return cache

    def _add_line(self, line: str) -> None:
        fields = line.split(" ")
        if len(fields) != 7 or fields[0] != VERSION:
            return
        _, key, target, threads, generator, candidate, us = fields
        try:
            self.add(Setting(target, int(threads), generator), key, candidate, float(us))
        except ValueError:
            return

    def add(self, setting: Setting, key: str, candidate: str, us: float) -> None:
        """Records a time; of two for one candidate the smaller stays."""
        known = self.times.setdefault((setting, key), {})
        known[candidate] = min(us, known.get(candidate, us))

    def records(self, setting: Setting, key: str) -> Mapping[str, float]:
        """What is known of a region: microseconds by candidate, inf for those that can't run."""
        return self.times.get((setting, key), {})

    def best(self, setting: Setting, key: str) -> str | None:
        """The fastest candidate known for a region; ties go to the first by name."""
        known = self.records(setting, key)
        best = min(known, key=lambda c: (known[c], c), default=None)
        return None if best is None or math.isinf(known[best]) else best

    def merge(self, other: TimingCache) -> None:
        """Takes in all records of another cache."""
        for (setting, key), known in other.times.items():
            for candidate, us in known.items():
                self.add(setting, key, candidate, us)

    def text(self) -> str:
        """All records, sorted."""
        lines = [
            f"{VERSION} {key} {s.target} {s.threads} {s.generator} {candidate} {us:.2f}"
            for (s, key), known in self.times.items()
            for candidate, us in known.items()
        ]
        return "".join(line + "\n" for line in sorted(lines))

    def write(self, path: Path) -> None:
        """Writes the cache atomically, with what others wrote to the file in the meantime."""
        self.merge(TimingCache.read(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(self.text(), encoding="utf-8")
        os.replace(temporary, path)
