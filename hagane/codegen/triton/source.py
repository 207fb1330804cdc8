"""The text of one Triton kernel: a module that imports Triton and defines a single jitted function.

Sources are meant to be read: names tell what a value is, and each line computes one thing. What is emitted
more than once in a block gets its first name again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

INDEX_TYPES = ("i32", "i64")
_HEADER = """import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def {name}({parameters}):
"""


class Source:
    """An open kernel. Pointers come first among its parameters, then dims, then compile-time constants."""

    def __init__(
        self, name: str, pointers: Sequence[str], dims: Sequence[str] = (), constants: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.parameters = [*pointers, *dims, *(f"{c}: tl.constexpr" for c in constants)]
        self._lines: list[str] = []
        self._depth = 1
        self._numbers: dict[str, int] = {}

    def line(self, text: str) -> None:
        """Appends a statement to the open block."""
        self._lines.append("    " * self._depth + text)

    def comment(self, text: str) -> None:
        """Appends a comment; line breaks in it become spaces."""
        self.line("# " + " ".join(text.split()))

    def fresh(self, hint: str) -> str:
        """A name that the kernel has not used yet."""
        number = self._numbers.get(hint, 0)
        self._numbers[hint] = number + 1
        return f"{hint}{number}"

    def let(self, expression: str, hint: str = "v") -> str:
        """Names the value of an expression."""
        name = self.fresh(hint)
        self.line(f"{name} = {expression}")
        return name

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """A nested block, such as `for r in range(n)`; the colon is added."""
        self.line(header + ":")
        before = len(self._lines)
        self._depth += 1
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._depth -= 1

    def text(self) -> str:
        """The module."""
        body = self._lines or ["    pass"]
        header = _HEADER.format(name=self.name, parameters=", ".join(self.parameters))
        return header + "\n".join(body) + "\n"
