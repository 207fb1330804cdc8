"""Maps machine code so that it can be called.

The image is mapped private, the slots of its import table are filled with the addresses of libc's and libm's
functions, then it turns read-only and executable. Nothing else of it is ever written.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Callable
from functools import cache

from hagane.core.errors import EngineError
from hagane.engine.image import Blob

_LIBRARIES = (None, "libm.so.6", "libgcc_s.so.1")  # None: whatever the process has loaded, libc with it
_MAP_FAILED = ctypes.c_void_p(-1).value


@cache
def _library(name: str | None) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


@cache
def _memory_calls() -> tuple[Callable[..., int], Callable[..., int], Callable[..., int]]:
    """libc's mmap, mprotect and munmap; Python's own mmap can't make memory executable afterwards."""
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype = pointer
    libc.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_int64]
    libc.mprotect.argtypes = [pointer, size, number]
    libc.munmap.argtypes = [pointer, size]
    return libc.mmap, libc.mprotect, libc.munmap


@cache
def import_address(name: str) -> int:
    """The address of a C function that compiled code calls.

    Raises: EngineError if neither libc nor libm has it.
    """
    for library in map(_library, _LIBRARIES):
        function = getattr(library, name, None) if library is not None and name.isidentifier() else None
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    raise EngineError(
        f"the engine's code calls {name}, which this system's C library doesn't have",
        next_step="build the engine anew on this machine",
    )


class MappedCode:
    """A blob in executable memory, until close() or the last reference goes."""

    def __init__(self, blob: Blob) -> None:
        page = mmap.PAGESIZE
        table = blob.import_table_offset
        size = -(-len(blob.code) // page) * page
        inside = 0 <= table <= len(blob.code) - 8 * len(blob.imports)
        if not blob.code or (blob.imports and (table % page or not inside)):
            raise EngineError("the engine's machine code has no valid import table")
        map_memory, protect, unmap = _memory_calls()
        self.size_bytes = size
        self._symbols = dict(blob.symbols)
        file = getattr(blob, "file", None)
        writable = mmap.PROT_READ | mmap.PROT_WRITE
        if file is not None:
            base = map_memory(None, size, writable, mmap.MAP_PRIVATE, file.descriptor, file.offset)
        else:
            base = map_memory(None, size, writable, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if base == _MAP_FAILED:
            raise _mapping_error("map")
        self.base = base
        self.close = weakref.finalize(self, unmap, base, size)
        self.close.atexit = False
        if file is None:
            data = bytes(blob.code)
            ctypes.memmove(base, data, len(data))
        slots = (ctypes.c_uint64 * len(blob.imports)).from_address(base + table)
        for place, name in enumerate(blob.imports):
            slots[place] = import_address(name)
        if protect(base, size, mmap.PROT_READ | mmap.PROT_EXEC):
            raise _mapping_error("make executable")

    def address(self, symbol: str) -> int:
        """Where a function of the blob lies.

        Raises: EngineError if the blob has no such function.
        """
        offset = self._symbols.get(symbol)
        if offset is None:
            raise EngineError(f"the engine's machine code lacks the function {symbol}")
        return self.base + offset


def _mapping_error(action: str) -> EngineError:
    code = ctypes.get_errno()
    return EngineError(
        f"can't {action} the engine's machine code: {os.strerror(code)}",
        next_step="allow this process to map executable memory (SELinux, seccomp, noexec mounts forbid it)",
    )
