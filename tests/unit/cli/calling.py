"""Runs the command line in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from hagane.cli.app import run


@dataclass
class Outcome:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Outcome]


def caller(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """A function that runs `hagane` with arguments."""

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["hagane", *map(str, arguments)])
        capsys.readouterr()
        status: int | str | None = 0
        try:
            run()
        except SystemExit as stop:
            status = stop.code
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return Outcome(int(status or 0), printed.out, printed.err)

    return call
