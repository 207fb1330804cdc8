"""Speed of an engine beside its peers: each in a process of its own, in alternating blocks of one run."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hagane.core.errors import RunError


@dataclass
class Times:
    """Microseconds of single runs."""

    kind: str
    all_us: list[float] = field(default_factory=list)

    @property
    def min_us(self) -> float:
        return min(self.all_us)

    @property
    def median_us(self) -> float:
        return statistics.median(self.all_us)

    @property
    def p99_us(self) -> float:
        return sorted(self.all_us)[min(len(self.all_us) - 1, int(len(self.all_us) * 0.99))]

    def as_dict(self) -> dict[str, float | int]:
        """Figures for JSON."""
        return {
            "min_us": self.min_us,
            "median_us": self.median_us,
            "p99_us": self.p99_us,
            "runs": len(self.all_us),
        }


class _Child:
    def __init__(self, kind: str, path: str, threads: int, feed_path: str) -> None:
        self.times = Times(kind)
        command = [sys.executable, "-m", "hagane.debug.contender", kind, path, str(threads), feed_path]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, error = self._process.communicate()
            raise RunError(f"{self.times.kind} failed on this model: {error.strip()[-400:]}")
        answer = json.loads(line)
        if isinstance(answer, dict):
            raise RunError(f"{self.times.kind} failed on this model: {answer['failed']}")
        return answer

    def block(self, runs: int, idle_ms: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"runs": runs, "idle_ms": idle_ms}) + "\n")
        self._process.stdin.flush()
        self.times.all_us += self._answer()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def duel(
    sides: Sequence[tuple[str, str]],
    feed: Mapping[str, np.ndarray[Any, Any]],
    *,
    threads: int,
    seconds: float = 4.0,
    blocks: int = 6,
    idle_ms: float = 0.0,
) -> list[Times]:
    """Times of (kind, path) sides on one feed.

    kinds: hagane (path is an engine file), onnxruntime and openvino (path is a model). seconds: for each
    side, in `blocks` alternating blocks. Raises: RunError if a side fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        feed_path = str(Path(folder) / "feed.npz")
        np.savez(feed_path, **{k: np.asarray(v) for k, v in feed.items()})  # type: ignore[arg-type]
        children: list[_Child] = []
        try:
            for kind, path in sides:
                children.append(_Child(kind, path, threads, feed_path))
            runs = [_runs_per_block(child, seconds / blocks, idle_ms) for child in children]
            for _ in range(blocks):
                for child, count in zip(children, runs, strict=True):
                    child.block(count, idle_ms)
        finally:
            for child in children:
                child.close()
    return [child.times for child in children]


def _runs_per_block(child: _Child, seconds: float, idle_ms: float) -> int:
    child.block(1, idle_ms)
    one = child.times.min_us / 1e6 + idle_ms / 1e3
    child.times.all_us.clear()
    return max(1, min(20_000, int(seconds / one)))
