"""The engine file: header, manifest, and how both are checked.

    header       128 bytes, see Header
    sections     each at a multiple of 64 KiB; blobs inside a section at multiples of 64 bytes
    manifest     JSON, the last thing in the file: sections, weights, packed constants, metadata

Section kinds, one of each at most, but plan and code, of which there is one for each target:

    plan          the text form, UTF-8
    code          the machine code's image, then its description as JSON; see code.py
    graph         the portable graph's text, zlib
    sources       kernel sources by name, JSON, zlib
    weights       canonical weights, raw, C order
    packed        packed constants, raw, stored once by content
    tuning, verification    records as text, zlib

A reader refuses other versions, and ignores manifest keys and section kinds that it doesn't know.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple, TypeVar

from hagane.core.dtypes import DType
from hagane.core.errors import EngineError

MAGIC = b"\x89HGN\r\n\x1a\n"  # a text-mode transfer damages it
FORMAT_VERSION = 1
HEADER_BYTES = 128
SECTION_ALIGN = 1 << 16  # the largest page size of the machines that we map code on
BLOB_ALIGN = 64

_HEADER = struct.Struct("<8sIIQQ32sQQQ8x")
_CHECKED_BYTES = _HEADER.size  # what the header's own checksum covers
_MAX_MANIFEST_BYTES = 1 << 28
_MAX_COUNT = 1 << 20  # of sections, weights, packed constants
_MAX_RANK = 64

_T = TypeVar("_T")


class Header(NamedTuple):
    """The fixed part at the start; a signature, if there is one, covers everything before it."""

    manifest_offset: int
    manifest_size: int
    manifest_sha256: bytes
    file_size: int
    signature_offset: int = 0
    signature_size: int = 0

    def pack(self) -> bytes:
        """The header's bytes."""
        fixed = _HEADER.pack(MAGIC, FORMAT_VERSION, HEADER_BYTES, *self)
        return fixed + hashlib.sha256(fixed).digest()


class Section(NamedTuple):
    """One section. raw_size: bytes when decompressed, for kinds that are compressed."""

    kind: str
    target: str
    offset: int
    size: int
    raw_size: int
    sha256: str


class Stored(NamedTuple):
    """An array in the weights or packed section; offset counts from the section's start."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int
    hash: str


class Manifest(NamedTuple):
    """The checked content of the manifest."""

    pack: str
    sections: tuple[Section, ...]
    weights: dict[str, Stored]
    packed: dict[tuple[str, str], Stored]
    metadata: dict[str, str]

    def section(self, kind: str, target: str = "") -> Section | None:
        """The section of a kind and target, or None."""
        found = [s for s in self.sections if s.kind == kind and s.target == target]
        return found[0] if found else None

    def to_json(self) -> bytes:
        """The same content always gives the same bytes."""
        packed: dict[str, dict[str, Any]] = {}
        for (target, name), stored in sorted(self.packed.items()):
            packed.setdefault(target, {})[name] = stored._asdict()
        content = {
            "format": FORMAT_VERSION,
            "pack": self.pack,
            "sections": [section._asdict() for section in self.sections],
            "weights": {name: stored._asdict() for name, stored in sorted(self.weights.items())},
            "packed": packed,
            "metadata": dict(sorted(self.metadata.items())),
        }
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def damaged(what: str) -> EngineError:
    """The error for a file that isn't what it claims."""
    return EngineError(
        f"the engine file is damaged: {what}", next_step="copy it again, or build the engine anew"
    )


def read_header(data: bytes, file_size: int) -> Header:
    """Checks the first bytes of a file. Raises: EngineError."""
    if data[: len(MAGIC)] != MAGIC:
        raise EngineError("this is no engine file", next_step="hagane build makes one from a model")
    if len(data) < HEADER_BYTES:
        raise damaged("it ends inside the header")
    _, version, size, *fields = _HEADER.unpack_from(data)
    if version != FORMAT_VERSION or size != HEADER_BYTES:
        raise EngineError(
            f"the engine file has format {version}, this version of hagane reads format {FORMAT_VERSION}",
            next_step="build the engine anew, or use the version of hagane that built it",
        )
    if hashlib.sha256(data[:_CHECKED_BYTES]).digest() != data[_CHECKED_BYTES:HEADER_BYTES]:
        raise damaged("the header's checksum is wrong")
    header = Header(*fields)
    if header.file_size != file_size:
        raise damaged(f"it has {file_size:,} bytes, the header says {header.file_size:,}")
    end = header.manifest_offset + header.manifest_size
    if header.manifest_offset < HEADER_BYTES or end > file_size or header.manifest_size > _MAX_MANIFEST_BYTES:
        raise damaged("the manifest lies outside the file")
    return header


def read_manifest(data: bytes, header: Header) -> Manifest:
    """Checks and reads the manifest. Raises: EngineError."""
    if hashlib.sha256(data).digest() != header.manifest_sha256:
        raise damaged("the manifest's checksum is wrong")
    content = parse_json(data, "manifest")
    fields = Fields(content, "manifest")
    pack = fields.string("pack")
    if pack not in ("embed", "on-load"):
        raise damaged(f"pack is {pack!r}")
    sections = tuple(_section(item, header) for item in fields.list("sections"))
    kinds = [(section.kind, section.target) for section in sections]
    if len(set(kinds)) != len(kinds):
        raise damaged("two sections are for the same thing")
    extents = {section.kind: section.size for section in sections if not section.target}
    weights = _stored(fields.dict("weights"), extents.get("weights", 0))
    packed = {
        (target, name): stored
        for target, items in fields.dict("packed").items()
        for name, stored in _stored(check_dict(items, "packed"), extents.get("packed", 0)).items()
    }
    metadata = fields.dict("metadata")
    if not all(isinstance(value, str) for value in metadata.values()):
        raise damaged("metadata must be strings")
    return Manifest(pack, sections, weights, packed, metadata)


def parse_json(data: bytes, what: str) -> object:
    """The content of JSON text. Raises: EngineError."""
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise damaged(f"the {what} is no JSON: {str(error)[:100]}") from error


def check_dict(value: object, what: str) -> dict[str, Any]:
    """The value, which must be a JSON object of no extreme size. Raises: EngineError."""
    if not isinstance(value, dict) or len(value) > _MAX_COUNT:
        raise damaged(f"{what} must be an object")
    return value


class Fields:
    """Typed access to a JSON object; whatever is missing or of another type is an EngineError."""

    def __init__(self, value: object, what: str) -> None:
        self._what = what
        self._fields = check_dict(value, what)

    def _get(self, name: str, kind: type[_T]) -> _T:
        value = self._fields.get(name)
        if type(value) is not kind:
            raise damaged(f"{self._what}.{name} must be of type {kind.__name__}")
        return value

    def string(self, name: str) -> str:
        return self._get(name, str)

    def dict(self, name: str) -> dict[str, Any]:
        return check_dict(self._fields.get(name), f"{self._what}.{name}")

    def list(self, name: str) -> list[Any]:
        value: list[Any] = self._get(name, list)
        if len(value) > _MAX_COUNT:
            raise damaged(f"{self._what}.{name} is too long")
        return value

    def count(self, name: str) -> int:
        """A non-negative integer below 2^63."""
        return check_count(self._fields.get(name), f"{self._what}.{name}")


def check_count(value: object, what: str) -> int:
    """The value, which must be a non-negative integer below 2^63. Raises: EngineError."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise damaged(f"{what} must be a non-negative integer")
    return value


def _section(item: object, header: Header) -> Section:
    fields = Fields(item, "section")
    section = Section(
        fields.string("kind"),
        fields.string("target"),
        fields.count("offset"),
        fields.count("size"),
        fields.count("raw_size"),
        fields.string("sha256"),
    )
    if section.offset % SECTION_ALIGN or section.offset < HEADER_BYTES:
        raise damaged(f"section {section.kind} starts at {section.offset}")
    if section.offset + section.size > header.file_size:
        raise damaged(f"section {section.kind} ends outside the file")
    return section


def _stored(items: Mapping[str, object], extent: int) -> dict[str, Stored]:
    found = {}
    for name, item in items.items():
        fields = Fields(item, f"entry {name}")
        shape = tuple(check_count(dim, f"a dim of {name}") for dim in fields.list("shape"))
        dtype, offset, size = fields.string("dtype"), fields.count("offset"), fields.count("size")
        if dtype not in _DTYPES or len(shape) > _MAX_RANK:
            raise damaged(f"{name} has dtype {dtype} and rank {len(shape)}")
        if prod(shape) * DType(dtype).itemsize != size:
            raise damaged(f"{name} of shape {list(shape)} has {size} bytes")
        if offset % BLOB_ALIGN or offset + size > extent:
            raise damaged(f"{name} lies outside its section")
        found[name] = Stored(dtype, shape, offset, size, fields.string("hash"))
    return found


_DTYPES = frozenset(dtype.value for dtype in DType if dtype is not DType.STRING)
