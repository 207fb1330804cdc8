"""The runnable blocks of a Markdown page, and what they print now.

    ```console   lines with `$ ` are commands; what follows each is its output
    ```python    a program; a ```text block right after it is its output

The blocks of a page run in order, in one folder. A block after `<!-- not run: reason -->` isn't run. In an
output a line `...` stands for any lines, and figures count only as figures: times differ from run to run, and
targets, hashes and sizes from machine to machine.

    python -m tests.docs.blocks README.md ...     runs pages and writes the present outputs into them
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_RUN = re.compile(r"<!-- not run: .+ -->")
TIMEOUT_S = 300


@dataclass
class Step:
    """One program of a page. first, last: the lines of its expected output in the page, last excluded."""

    line: int
    command: str
    is_python: bool
    expected: list[str] = field(default_factory=list)
    first: int = 0
    last: int = 0
    checked: bool = True


def pages() -> list[Path]:
    """All pages whose blocks must run."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def steps_of(page: Path) -> list[Step]:
    """The programs of a page, in order."""
    lines = page.read_text().splitlines()
    steps: list[Step] = []
    for kind, start, stop in _fences(lines):
        if NOT_RUN.fullmatch(lines[start - 2]) or NOT_RUN.fullmatch(lines[start - 3]):
            continue
        if kind == "console":
            steps += _commands(lines, start, stop)
        elif kind == "python":
            steps.append(Step(start, "\n".join(lines[start:stop]), True, checked=False))
        elif kind == "text" and steps and steps[-1].is_python and not steps[-1].checked:
            step = steps[-1]
            step.expected, step.first, step.last, step.checked = lines[start:stop], start, stop, True
    return steps


def _fences(lines: list[str]) -> Iterator[tuple[str, int, int]]:
    """Kind, first line inside and line of the closing fence."""
    inside: tuple[str, int] | None = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if inside is None:
            inside = (line.removeprefix("```").strip(), number + 1)
        else:
            yield (*inside, number)
            inside = None
    assert inside is None, "a fence is never closed"


def _commands(lines: list[str], start: int, stop: int) -> list[Step]:
    steps: list[Step] = []
    for number in range(start, stop):
        line = lines[number]
        if line.startswith("$ "):
            steps.append(Step(number, line.removeprefix("$ "), False, first=number + 1, last=number + 1))
        elif steps and lines[number - 1].endswith("\\") and not steps[-1].expected:
            steps[-1].command += "\n" + line
            steps[-1].first = steps[-1].last = number + 1
        else:
            assert steps, f"line {number + 1} is no command"
            steps[-1].expected.append(line)
            steps[-1].last = number + 1
    return steps


def run_step(step: Step, folder: Path) -> str:
    """What a step prints. Raises: AssertionError if a Python block fails."""
    environment = dict(os.environ)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment["COLUMNS"] = "100"
    if step.is_python:
        command = [sys.executable, "-c", step.command]
    else:
        command = ["bash", "-c", step.command]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )
    assert not step.is_python or done.returncode == 0, f"line {step.line}: {done.stdout}"
    assert "Traceback" not in done.stdout, f"line {step.line}: {done.stdout}"
    return done.stdout


def agrees(expected: list[str], printed: str) -> bool:
    """Whether an output is what the page shows: see the module's docstring."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else re.escape(loose(line)) + r"\n" for line in expected
    )
    lines = [loose(line) for line in printed.rstrip().splitlines()]
    return re.fullmatch(pattern, "".join(line + "\n" for line in lines)) is not None


def loose(line: str) -> str:
    """A line without what differs from run to run: figures, hashes, targets, width of columns."""
    line = re.sub(r"cpu:[\w+.-]+", "cpu", line)
    line = re.sub(r"\b[0-9a-f]{12,64}\b|(?<=_)[0-9a-f]{12,64}\b", "#", line)
    line = re.sub(r"-?\d[\d.,]*(e[+-]?\d+)?", "#", line)
    line = re.sub(r"--+", "--", line)
    return " ".join(line.split())


def refresh(page: Path) -> None:
    """Runs a page and writes what its steps print now in place of the outputs in it."""
    lines = page.read_text().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        printed = [(step, run_step(step, Path(folder))) for step in steps_of(page)]
    for step, text in reversed(printed):
        if (
            step.checked
            and not (step.expected and agrees(step.expected, text))
            and "..." not in step.expected
        ):
            lines[step.first : step.last] = text.rstrip().splitlines()
        elif step.checked and not agrees(step.expected, text):
            print(f"{page.name}:{step.line + 1}: the abridged output must be edited by hand:\n{text}")
    page.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        refresh(Path(name))
