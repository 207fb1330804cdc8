"""Opens engine files. Whatever bytes a file has, the only error is EngineError.

The file is mapped, nothing is copied: weights are read-only arrays over the mapping, which lives as long as
any of them. Replacing the file by a new one is safe; truncating it under a running process is not. Header,
manifest, plan and code are verified before use, everything else when it is asked for, and the weights by
verify_weights() alone.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import EngineError
from hagane.core.hashing import content_hash
from hagane.engine.code import KernelTable, read_code
from hagane.engine.image import Blob, EngineImage, FileSlice
from hagane.engine.layout import (
    HEADER_BYTES,
    MAGIC,
    Manifest,
    Section,
    Stored,
    check_dict,
    damaged,
    parse_json,
    read_header,
    read_manifest,
)
from hagane.plan.model import Plan
from hagane.plan.parse import parse_plan
from hagane.plan.verify import verify_plan

Array = np.ndarray[Any, Any]

_MAX_TEXT_BYTES = 1 << 30

_K = TypeVar("_K")
_T = TypeVar("_T")


def is_engine_file(path: str | os.PathLike[str]) -> bool:
    """True if the file starts as engine files do."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_engine(path: str | os.PathLike[str]) -> EngineFile:
    """Opens an engine file.

    Raises: EngineError if it is missing, damaged, or of another version.
    """
    with _naming(path):
        return EngineFile(path)


@contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Adds the file's name to errors."""
    try:
        yield
    except EngineError as error:
        error.where.setdefault("file", os.fspath(path))
        raise


class _Lazy(Mapping[_K, _T]):
    """A mapping whose values are made at first use."""

    def __init__(self, names: Iterable[_K], make: Callable[[_K], _T]) -> None:
        self._names = dict.fromkeys(names)
        self._make = make
        self._made: dict[_K, _T] = {}

    def __getitem__(self, name: _K) -> _T:
        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[_K]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _Reader:
    """The open file with its manifest: takes out checked pieces."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        try:
            # stays open as long as code may be mapped from it
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._descriptor)
            size = os.fstat(self._descriptor).st_size
            header = read_header(os.pread(self._descriptor, HEADER_BYTES, 0), size)
            self._map = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise EngineError(
                f"can't open {os.fspath(path)}: {error.strerror or error}", next_step="check the path"
            ) from error
        self._view = memoryview(self._map)
        end = header.manifest_offset + header.manifest_size
        self.manifest: Manifest = read_manifest(bytes(self._view[header.manifest_offset : end]), header)
        self._parsed_code: dict[str, tuple[Blob, KernelTable]] = {}

    def targets(self) -> list[str]:
        return [section.target for section in self.manifest.sections if section.kind == "plan"]

    def plan(self, target: str) -> Plan:
        with _naming(self._path):
            _, kernels = self._code_and_kernels(target)  # which knows the plan that it belongs to
            plan = parse_plan(_decode(bytes(self._slice(self._section("plan", target))), "plan"))
            if plan.target != target:
                raise damaged(f"the plan for {target} says that it is for {plan.target}")
            verify_plan(plan, kernels, EngineError)
            return plan

    def code(self, target: str) -> Blob:
        with _naming(self._path):
            return self._code_and_kernels(target)[0]

    def _code_and_kernels(self, target: str) -> tuple[Blob, KernelTable]:
        if target not in self._parsed_code:
            plan = bytes(self._checked(self._section("plan", target)))
            section = self._section("code", target)
            place = FileSlice(self._descriptor, section.offset)
            self._parsed_code[target] = read_code(self._checked(section), section.raw_size, plan, place)
        return self._parsed_code[target]

    def _section(self, kind: str, target: str = "") -> Section:
        section = self.manifest.section(kind, target)
        if section is None:
            raise damaged(f"it has no section {kind} {target}".rstrip())
        return section

    def _slice(self, section: Section) -> memoryview:
        return self._view[section.offset : section.offset + section.size]

    def _checked(self, section: Section) -> memoryview:
        data = self._slice(section)
        if hashlib.sha256(data).hexdigest() != section.sha256:
            raise damaged(f"the checksum of section {section.kind} is wrong")
        return data

    def text(self, kind: str) -> str:
        """The text of a compressed section, empty if there is none."""
        with _naming(self._path):
            return self._decompressed(kind)

    def _decompressed(self, kind: str) -> str:
        section = self.manifest.section(kind)
        if section is None:
            return ""
        if section.raw_size > _MAX_TEXT_BYTES:
            raise damaged(f"section {kind} claims {section.raw_size:,} bytes")
        engine = zlib.decompressobj()
        try:
            raw = engine.decompress(self._checked(section), section.raw_size + 1)
        except zlib.error as error:
            raise damaged(f"section {kind} can't be decompressed") from error
        if len(raw) != section.raw_size or not engine.eof:
            raise damaged(f"section {kind} has another size than it claims")
        return _decode(raw, kind)

    def weight(self, name: str) -> Array:
        return self._array("weights", self.manifest.weights[name])

    def packed(self, key: tuple[str, str]) -> Array:
        return self._array("packed", self.manifest.packed[key])

    def _array(self, kind: str, entry: Stored) -> Array:
        """A read-only array over the mapping."""
        dtype = DType(entry.dtype).np
        if not entry.size:
            return np.empty(entry.shape, dtype)
        start = self._section(kind).offset + entry.offset
        return np.frombuffer(self._map, dtype, entry.size // dtype.itemsize, start).reshape(entry.shape)

    def wrong_hashes(self, kind: str, entries: Mapping[Any, Stored]) -> list[str]:
        """Names of the arrays whose content isn't what was written."""
        section = self.manifest.section(kind)
        start = 0 if section is None else section.offset
        wrong = []
        for name, entry in entries.items():
            data = self._view[start + entry.offset : start + entry.offset + entry.size]
            if content_hash(data) != entry.hash:
                wrong.append(name if isinstance(name, str) else name[1])
        return wrong

    def release_weight(self, name: str) -> None:
        """Gives back the memory that reading a weight took; reading it again maps it again."""
        section, entry = self.manifest.section("weights"), self.manifest.weights.get(name)
        if section is None or entry is None or not hasattr(mmap, "MADV_DONTNEED"):
            return
        first = section.offset + entry.offset
        start = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
        size = (first + entry.size) // mmap.PAGESIZE * mmap.PAGESIZE - start
        if size > 0:
            with suppress(OSError):
                self._map.madvise(mmap.MADV_DONTNEED, start, size)


class EngineFile(EngineImage):
    """An engine in a mapped file; plans, code and texts are read when first asked for."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # the mappings refer to the reader, which refers to none of this: no cycle keeps the file open
        self._reader = reader = _Reader(path)
        manifest = reader.manifest
        self.plans = _Lazy(reader.targets(), reader.plan)
        self.code = _Lazy(reader.targets(), reader.code)
        self.weights = _Lazy(manifest.weights, reader.weight)
        self.packed = _Lazy(manifest.packed, reader.packed)
        self.metadata = manifest.metadata
        self.pack = manifest.pack
        self.release_weight = reader.release_weight
        self.verified = True

    @cached_property
    def graph_text(self) -> str:  # type: ignore[override]
        """The portable graph. Raises: EngineError if it is damaged, as for all texts."""
        return self._reader.text("graph")

    @cached_property
    def tuning(self) -> str:  # type: ignore[override]
        """Tuning records, one a line."""
        return self._reader.text("tuning")

    @cached_property
    def verification(self) -> str:  # type: ignore[override]
        """Verification records, one a line."""
        return self._reader.text("verification")

    @cached_property
    def sources(self) -> Mapping[str, str]:  # type: ignore[override]
        """Kernel sources by name."""
        text = self._reader.text("sources")
        found = check_dict(parse_json(text.encode(), "sources") if text else {}, "sources")
        if not all(isinstance(source, str) for source in found.values()):
            raise damaged("sources must be texts")
        return found

    def verify_weights(self) -> None:
        """Checks every byte that opening doesn't: weights, packed constants and texts.

        Raises: EngineError that names what differs.
        """
        manifest, reader = self._reader.manifest, self._reader
        wrong = reader.wrong_hashes("weights", manifest.weights) + reader.wrong_hashes(
            "packed", manifest.packed
        )
        if wrong:
            raise damaged(f"the content of {', '.join(wrong[:10])} doesn't match its hash")
        for kind in ("graph", "sources", "tuning", "verification"):
            reader.text(kind)
        for target in self.plans:
            self.plans[target]


def _decode(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise damaged(f"the {what} is no UTF-8 text") from error
