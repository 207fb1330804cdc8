"""What a user may ask of a build."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hagane.core.errors import BuildError
from hagane.engine.image import PACK_MODES

VERIFY_LEVELS = ("off", "quick", "full")
Progress = Callable[[str, int, int], bool | None]
"""progress(stage, done, total); returning False cancels the build."""


@dataclass(frozen=True)
class BuildOptions:
    """Options of `hagane.build`; see there."""

    target: str = "native"
    shapes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    timing_cache: str | os.PathLike[str] | None = None
    time_budget: float = 0.0
    verify: str = "quick"
    fuse: bool = True
    threads: int | None = None
    pack: str = "embed"
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if self.verify not in VERIFY_LEVELS:
            raise BuildError(
                f"verify={self.verify!r} is unknown", next_step=f"use one of {', '.join(VERIFY_LEVELS)}"
            )
        if self.pack not in PACK_MODES:
            known = " or ".join(PACK_MODES)
            raise BuildError(f"pack={self.pack!r} is unknown", next_step=f"use {known}")
        if not isinstance(self.time_budget, (int, float)) or not 0 <= self.time_budget < float("inf"):
            raise BuildError(
                f"time_budget={self.time_budget!r} is no time", next_step="give seconds, 0 for no tuning"
            )
        if self.threads is not None and (not isinstance(self.threads, int) or self.threads < 1):
            raise BuildError(
                f"processes={self.threads!r} compiles nothing", next_step="give a number from 1 on"
            )
        if self.progress is not None and not callable(self.progress):
            raise BuildError(
                f"progress={self.progress!r} can't be called", next_step="give progress(stage, done, total)"
            )
        if self.timing_cache is not None and (
            not isinstance(self.timing_cache, (str, os.PathLike)) or os.path.isdir(self.timing_cache)
        ):
            raise BuildError(
                f"timing_cache={self.timing_cache!r} is no file", next_step="give the path of a text file"
            )


def report(options: BuildOptions, stage: str, done: int, total: int) -> None:
    """Tells the progress callback. Raises: BuildError if it asks to cancel."""
    if options.progress is not None and options.progress(stage, done, total) is False:
        raise BuildError(f"the build was cancelled during {stage}", next_step="nothing was written")


def num_processes(options: BuildOptions) -> int:
    """Compile processes to use."""
    return max(1, min(options.threads or os.cpu_count() or 1, 16))
