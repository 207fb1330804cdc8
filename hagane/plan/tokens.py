"""Tokens of the plan's text form, a line at a time, and the things made of them that stand within a line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeVar

from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr
from hagane.plan.model import Attr, Port

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*|\d+(?:\.\d+)?(?:e[+-]?\d+)?|->|\.\.|//|[-+*%()\[\]{},:=]|[^\s]'
)
_CLOSERS = {"(": ")", "[": "]"}
_MAX_DEPTH = 32  # of nested attribute lists
MAX_DIGITS = 19  # of an integer: all of 64 bits

_T = TypeVar("_T")


class Line:
    """The tokens of one line, taken from left to right; whatever doesn't fit raises ValueError."""

    def __init__(self, line: str, expr: Callable[[str], Expr]) -> None:
        self._tokens: list[str] = _TOKEN.findall(line)
        self._at = 0
        self._expr = expr

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self) -> str:
        if self._at >= len(self._tokens):
            raise ValueError("the line ends early")
        self._at += 1
        return self._tokens[self._at - 1]

    def expect(self, *wanted: str) -> None:
        for token in wanted:
            found = self.take()
            if found != token:
                raise ValueError(f"found {found[:20]!r}, expected {token!r}")

    def accept(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self._at += 1
        return True

    def end(self) -> None:
        if self.peek():
            raise ValueError(f"found {self.peek()[:20]!r}, expected the line's end")

    def name(self) -> str:
        token = self.take()
        if token[0] != '"':
            raise ValueError(f"found {token[:20]!r}, expected a name in quotes")
        return token[1:-1] if "\\" not in token else str(json.loads(token))

    def word(self) -> str:
        token = self.take()
        if not (token[0].isalpha() or token[0] == "_"):
            raise ValueError(f"found {token[:20]!r}, expected a word")
        return token

    def integer(self) -> int:
        negative = self.accept("-")
        token = self.take()
        if not token.isdecimal() or len(token) > MAX_DIGITS:
            raise ValueError(f"found {token[:20]!r}, expected an integer")
        return -int(token) if negative else int(token)

    def dtype(self) -> DType:
        return DType(self.word())

    def listed(self, opening: str, item: Callable[[], _T]) -> tuple[_T, ...]:
        """Items between brackets, separated by commas."""
        self.expect(opening)
        closing = _CLOSERS[opening]
        items: list[_T] = []
        while not self.accept(closing):
            if items:
                self.expect(",")
            items.append(item())
        return tuple(items)

    def names(self) -> tuple[str, ...]:
        return self.listed("(", self.name)

    def ports(self) -> tuple[Port, ...]:
        return self.listed("(", self.port)

    def port(self) -> Port:
        name = self.name()
        self.expect(":")
        return Port(name, self.dtype(), self.exprs())

    def exprs(self) -> tuple[Expr, ...]:
        """Expressions in square brackets; commas inside parentheses belong to them."""
        self.expect("[")
        try:
            end = self._tokens.index("]", self._at)
        except ValueError:
            raise ValueError("a bracket isn't closed") from None
        inside = self._tokens[self._at : end]
        self._at = end + 1
        if not inside:
            return ()
        parts = " ".join(inside).split(" , ") if "(" not in inside else _split(inside)
        return tuple(map(self._expr, parts))

    def expr(self) -> Expr:
        (found,) = self.exprs()
        return found

    def attrs(self) -> dict[str, Attr]:
        found: dict[str, Attr] = {}
        if self.accept("{"):
            while not self.accept("}"):
                if found:
                    self.expect(",")
                name = self.word()
                self.expect("=")
                found[name] = self.value(0)
        return found

    def value(self, depth: int) -> Attr:
        token = self.peek()
        if depth > _MAX_DEPTH:
            raise ValueError("an attribute is nested too deep")
        if token == "(":
            return self.listed("(", lambda: self.value(depth + 1))
        if token[:1] == '"':
            return self.name()
        words: dict[str, Attr] = {"none": None, "true": True, "false": False}
        if token in words:
            self.take()
            return words[token]
        negative = self.accept("-")
        token = self.peek()
        if token.isdecimal():
            return -self.integer() if negative else self.integer()
        number = float(self.take())
        return -number if negative else number


def _split(tokens: list[str]) -> list[str]:
    """The texts between the commas that stand outside parentheses."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        if token == "," and depth == 0:
            parts.append([])
            continue
        depth += (token == "(") - (token == ")")
        parts[-1].append(token)
    return [" ".join(part) for part in parts]
