"""What verbs print: text for people, or one JSON object with --json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def show_json(content: Any) -> None:
    """Prints a JSON document with sorted keys."""
    print(json.dumps(content, indent=2, sort_keys=True))


def show_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints aligned columns: the first ones to the left, those whose head starts with > to the right."""
    names = [h.lstrip(">") for h in head]
    widths = [max(len(n), *(len(r[k]) for r in rows)) if rows else len(n) for k, n in enumerate(names)]
    for row in (names, *rows):
        cells = (
            cell.rjust(width) if h.startswith(">") else cell.ljust(width)
            for cell, width, h in zip(row, widths, head, strict=True)
        )
        print("  ".join(cells).rstrip())
