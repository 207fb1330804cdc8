"""Writes engine files. The same content gives the same bytes; a file is replaced only by a complete one."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from hagane.core.dtypes import from_numpy
from hagane.core.errors import EngineError, InternalError
from hagane.core.hashing import content_hash
from hagane.engine.code import write_code
from hagane.engine.image import PACK_MODES, EngineImage
from hagane.engine.layout import BLOB_ALIGN, HEADER_BYTES, SECTION_ALIGN, Header, Manifest, Section, Stored
from hagane.host.recipes import is_identity, run_recipe
from hagane.plan.abi import RUN_SYMBOL, WORKER_SYMBOL
from hagane.plan.parse import parse_plan
from hagane.plan.text import print_plan
from hagane.plan.verify import kernel_table, verify_plan

Array = np.ndarray[Any, Any]

_ZLIB_LEVEL = 6


def write_engine(image: EngineImage, path: str | os.PathLike[str]) -> None:
    """Writes an engine; the file appears, or is replaced, only once it is complete.

    Raises: EngineError if the file can't be written, InternalError if the engine is not sound.
    """
    texts = {target: _checked_plan(image, target) for target in sorted(image.plans)}
    if image.pack not in PACK_MODES:
        raise EngineError(f"pack={image.pack!r}", next_step="use one of " + ", ".join(PACK_MODES))
    try:
        with _replacing(Path(path)) as file:
            _Writer(file).write(image, texts)
    except OSError as error:
        raise EngineError(
            f"can't write {os.fspath(path)}: {error.strerror or error}",
            next_step="check that the folder exists, may be written to and has room",
        ) from error


def _checked_plan(image: EngineImage, target: str) -> bytes:
    """The plan's text, after checking that it is valid and reads back as it is."""
    blob, plan = image.code.get(target), image.plans[target]
    if blob is None or not {RUN_SYMBOL, WORKER_SYMBOL} <= set(blob.symbols):
        raise InternalError(f"the engine has no code with a driver for {target}")
    verify_plan(plan, set(blob.symbols))
    text = print_plan(plan)
    if print_plan(parse_plan(text)) != text:
        raise InternalError(f"the plan for {target} doesn't print as it reads")
    return text.encode()


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A temporary file in the same folder that becomes the path at the end, unless there is an error."""
    final = Path(os.path.realpath(path))
    descriptor, name = tempfile.mkstemp(prefix=f".{final.name}.", suffix=".tmp", dir=final.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.fsync(file.fileno())
        os.replace(name, final)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    folder = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


class _Writer:
    """Appends sections to a file and remembers where they are."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._at = 0
        self._sections: list[Section] = []

    def write(self, image: EngineImage, plans: dict[str, bytes]) -> None:
        self._append(bytes(HEADER_BYTES))
        for target, text in plans.items():
            self._section("plan", target, text)
        for target, text in plans.items():
            code, image_bytes = write_code(image.code[target], kernel_table(image.plans[target]), text)
            self._section("code", target, code, image_bytes)
        self._compressed("graph", image.graph_text)
        self._compressed("sources", json.dumps(dict(sorted(image.sources.items())), ensure_ascii=False))
        self._compressed("tuning", image.tuning)
        self._compressed("verification", image.verification)
        weights = self._weights(image)
        packed = self._packed(image) if image.pack == "embed" else {}
        manifest = Manifest(
            image.pack, tuple(self._sections), weights, packed, dict(image.metadata)
        ).to_json()
        offset = self._at
        self._append(manifest)
        header = Header(offset, len(manifest), hashlib.sha256(manifest).digest(), self._at)
        self._file.seek(0)
        self._file.write(header.pack())

    def _append(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._at += len(data)

    def _align(self, multiple: int) -> None:
        self._append(bytes(-self._at % multiple))

    def _section(self, kind: str, target: str, data: bytes, raw_size: int | None = None) -> None:
        self._align(SECTION_ALIGN)
        digest = hashlib.sha256(data).hexdigest()
        size = len(data) if raw_size is None else raw_size
        self._sections.append(Section(kind, target, self._at, len(data), size, digest))
        self._append(data)

    def _compressed(self, kind: str, text: str) -> None:
        raw = text.encode()
        self._section(kind, "", zlib.compress(raw, _ZLIB_LEVEL), len(raw))

    def _weights(self, image: EngineImage) -> dict[str, Stored]:
        self._align(SECTION_ALIGN)
        start = self._at
        stored = {name: self._array(image.weights[name], start) for name in sorted(image.weights)}
        self._sections.append(Section("weights", "", start, self._at - start, self._at - start, ""))
        return stored

    def _packed(self, image: EngineImage) -> dict[tuple[str, str], Stored]:
        """Constants that are more than a weight's own bytes; equal ones are stored once."""
        self._align(SECTION_ALIGN)
        start = self._at
        by_hash: dict[str, Stored] = {}
        stored: dict[tuple[str, str], Stored] = {}
        for target in sorted(image.plans):
            for constant in image.plans[target].constants:
                value = image.packed.get((target, constant.name))
                if value is None:
                    value = run_recipe(constant, image.weights)
                    if is_identity(constant.recipe):
                        continue
                value = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
                digest = content_hash(value.data)
                if digest not in by_hash:
                    by_hash[digest] = self._array(value, start)
                stored[target, constant.name] = by_hash[digest]
        self._sections.append(Section("packed", "", start, self._at - start, self._at - start, ""))
        return stored

    def _array(self, value: Array, section: int) -> Stored:
        self._align(BLOB_ALIGN)
        offset = self._at - section
        raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        self._append(raw.data)
        dtype = from_numpy(value.dtype).value
        return Stored(dtype, value.shape, offset, raw.nbytes, content_hash(raw.data))
