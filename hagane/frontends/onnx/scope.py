"""Names of tensors while a model is imported: nested scopes, and what a name can stand for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hagane.ir.graph import Value


@dataclass(frozen=True, eq=False)
class SequenceEntry:
    """A sequence whose length is known while importing: sequence ops on it leave no trace in the graph."""

    items: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class OptionalEntry:
    """An optional whose presence is known while importing."""

    item: Value | SequenceEntry | None


Entry = Value | SequenceEntry | OptionalEntry


@dataclass(eq=False)
class Scope:
    """What each tensor name means; an inner scope sees the outer one and may shadow it."""

    outer: Scope | None = None
    entries: dict[str, Entry] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)  # inputs of a function that its caller leaves out

    def is_absent(self, name: str) -> bool:
        """True for an optional input that isn't there, here or further out."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.entries:
                return False
            if name in scope.absent:
                return True
            scope = scope.outer
        return False

    def find(self, name: str) -> Entry | None:
        """The entry of a name here or further out."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.entries:
                return scope.entries[name]
            scope = scope.outer
        return None

    def names(self) -> Iterator[str]:
        """All visible names."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.entries
            scope = scope.outer
