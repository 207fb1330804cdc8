"""Progress bars on long work; silent where standard error is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def building(path: Path) -> Iterator[Callable[[str, int, int], bool | None]]:
    """A progress callback for `hagane.build`, shown as a bar."""
    if not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(f"building {path.name}")

        def show(stage: str, done: int, total: int) -> None:
            bars.update(task, description=f"{path.name}: {stage}", completed=done, total=total)

        yield show


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner while something of unknown length goes on."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} ..."):
        yield
