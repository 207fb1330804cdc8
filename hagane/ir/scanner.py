"""Reads the pieces of one line of text: literals, names, strings, numbers. Every fault names the line."""

from __future__ import annotations

import re
from json import JSONDecoder
from typing import NoReturn

from hagane.core.errors import ModelError
from hagane.ir.text import PLAIN_NAME

SHOWN_CHARS = 100
_JSON = JSONDecoder()
_SPACE = re.compile(r"[ \t]*")


class Scanner:
    """A position in a line. Spaces between pieces are skipped."""

    def __init__(self, text: str, number: int) -> None:
        self.text = text
        self.number = number
        self.position = 0
        self._skip()

    def fail(self, what: str) -> NoReturn:
        """Raises: ModelError with the line's number and the place in it."""
        raise ModelError(
            f"line {self.number}, column {self.position + 1}: {what}",
            where={"text": self.text.strip()[:SHOWN_CHARS]},
        )

    @property
    def at_end(self) -> bool:
        return self.position >= len(self.text)

    def sees(self, literal: str) -> bool:
        """True if the literal is next."""
        return self.text.startswith(literal, self.position)

    def accept(self, literal: str) -> bool:
        """Takes the literal if it is next."""
        if not self.sees(literal):
            return False
        self._move(self.position + len(literal))
        return True

    def expect(self, literal: str) -> None:
        """Takes the literal. Raises: ModelError if something else is next."""
        if not self.accept(literal):
            self.fail(f"expected {literal!r}, found {self._next()}")

    def match(self, pattern: re.Pattern[str]) -> str | None:
        """Takes what the pattern matches here, None if it doesn't."""
        found = pattern.match(self.text, self.position)
        if found is None:
            return None
        self._move(found.end())
        return found.group()

    def take(self, pattern: re.Pattern[str], what: str) -> str:
        """Takes what the pattern matches. Raises: ModelError that says `what` was expected."""
        found = self.match(pattern)
        if found is None:
            self.fail(f"expected {what}, found {self._next()}")
        return found

    def name(self, what: str = "a name") -> str:
        """A plain or quoted name."""
        return self.string() if self.sees('"') else self.take(PLAIN_NAME, what)

    def string(self) -> str:
        """A quoted string, as JSON has it."""
        if not self.sees('"'):
            self.fail(f"expected a string, found {self._next()}")
        try:
            value, end = _JSON.raw_decode(self.text, self.position)
        except ValueError as error:
            self.fail(f"bad string: {error}")
        self._move(end)
        return str(value)

    def until(self, closers: str) -> str:
        """Takes the text up to a closing bracket, or other mark, that isn't inside parentheses."""
        depth = 0
        for end in range(self.position, len(self.text)):
            char = self.text[end]
            if depth == 0 and char in closers:
                found = self.text[self.position : end]
                self._move(end)
                return found
            depth += (char == "(") - (char == ")")
        self.fail(f"{closers[0]!r} is missing")

    def end(self) -> None:
        """Raises: ModelError unless the line ends here or in a comment."""
        if not self.at_end and not self.sees("//"):
            self.fail(f"expected the end of the line, found {self._next()}")

    def _next(self) -> str:
        rest = self.text[self.position : self.position + 20]
        return repr(rest) if rest else "the end of the line"

    def _move(self, position: int) -> None:
        self.position = position
        self._skip()

    def _skip(self) -> None:
        found = _SPACE.match(self.text, self.position)
        if found is not None:
            self.position = found.end()
