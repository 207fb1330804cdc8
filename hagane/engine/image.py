"""What an engine holds, whether it was just built or lies in a mapped file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from hagane.plan.model import Plan

PACK_MODES = ("embed", "on-load")


class Blob(Protocol):
    """Position-independent machine code; slot i of its import table is for the address of imports[i].

    code ends with that table, which starts at import_table_offset, a multiple of the page size.
    """

    @property
    def code(self) -> bytes | memoryview: ...
    @property
    def symbols(self) -> Mapping[str, int]: ...
    @property
    def imports(self) -> tuple[str, ...]: ...
    @property
    def import_table_offset(self) -> int: ...


class FileSlice(NamedTuple):
    """A part of an open file, by descriptor; whoever made it keeps the descriptor open."""

    descriptor: int
    offset: int


@dataclass(frozen=True)
class StoredBlob:
    """Machine code in an engine file: file tells where, so that it can be mapped from there."""

    code: bytes | memoryview
    symbols: Mapping[str, int]
    imports: tuple[str, ...]
    import_table_offset: int
    file: FileSlice | None = None


@dataclass
class EngineImage:
    """All content of an engine.

    plans, code: by target. weights: canonical, by name; arrays of an image that was read from a file are
    mapped and read-only. packed: content of constants by target and name, where it is there already.
    graph_text: the portable graph. sources: kernel sources by name. verification, tuning: records, one a
    line. metadata: what the model file carried. pack: "embed" stores packed constants in the file,
    "on-load" makes them when loading. release_weight: gives back the memory that reading a weight took.
    verified: the plans have been checked.
    """

    plans: Mapping[str, Plan]
    code: Mapping[str, Blob]
    graph_text: str = ""
    weights: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    tuning: str = ""
    verification: str = ""
    pack: str = "embed"
    packed: Mapping[tuple[str, str], np.ndarray[Any, Any]] = field(default_factory=dict)
    release_weight: Callable[[str], None] | None = None
    verified: bool = False
