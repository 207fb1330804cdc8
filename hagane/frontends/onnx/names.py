"""Turns names of a model into names that dims and symbols may have."""

from __future__ import annotations

import keyword
import re

_LOOP_NAME = re.compile(r"[ko]\d+$")  # what the compiler calls its loops


def identifier(text: str) -> str:
    """The text with everything that an identifier can't hold replaced by "_"."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    if not name or name[0].isdigit():
        name = f"d_{name}"
    reserved = keyword.iskeyword(name) or name in ("min", "max") or _LOOP_NAME.match(name)
    return f"{name}_" if reserved else name


class SymbolNames:
    """Gives each dim name of a model its own identifier: equal names share one, different ones never do."""

    def __init__(self) -> None:
        self._by_text: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, text: str) -> str:
        """The identifier of a dim name."""
        if text not in self._by_text:
            self._by_text[text] = self.fresh(text)
        return self._by_text[text]

    def base(self, hint: str) -> str:
        """What a fresh name begins with."""
        return identifier(hint)

    def fresh(self, hint: str) -> str:
        """An identifier that nothing else has."""
        base = identifier(hint)
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name
