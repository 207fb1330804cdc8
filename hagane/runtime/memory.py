"""Memory of a session: anonymous private mappings, accounted by owner and bounded by a limit.

A mapping is zeroed, page-aligned and, being private, copied on write by a forked child.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress

from hagane.core.errors import RunError

_HUGE_FROM_BYTES = 4 << 20  # two huge pages; below that, rounding up costs more than it saves
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class Block:
    """Zeroed memory until close(), on huge pages if it is large."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._map = mmap.mmap(-1, max(1, size_bytes), flags=_PRIVATE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if size_bytes >= _HUGE_FROM_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):
                self._map.madvise(mmap.MADV_HUGEPAGE)

    def close(self) -> None:
        """Gives the memory back; nothing may use it afterwards."""
        self._map.close()


class Budget:
    """Bytes held by each owner, and the most that all together may hold.

    moves: how often memory that job tables point to has moved.
    """

    def __init__(self, limit_bytes: int | None) -> None:
        self.physical_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._limited = limit_bytes is not None
        self.limit_bytes = self.physical_bytes if limit_bytes is None else limit_bytes
        self.held: dict[str, int] = {}
        self.moves = 0

    def change(self, owner: str, old_bytes: int, new_bytes: int) -> None:
        """Replaces old_bytes of an owner by new_bytes.

        Raises: RunError if the limit doesn't allow that; then nothing has changed.
        """
        total = sum(self.held.values()) - old_bytes + new_bytes
        if new_bytes > old_bytes and total > self.limit_bytes:
            kind = "memory_limit" if self._limited else "this machine's memory"
            raise RunError(
                f"{owner} needs {new_bytes:,} bytes, {total:,} in all; {kind} is {self.limit_bytes:,}",
                where={name: f"{held:,} bytes" for name, held in self.held.items() if held},
                next_step="run smaller inputs" + (", or raise memory_limit" if self._limited else ""),
            )
        self.held[owner] = self.held.get(owner, 0) - old_bytes + new_bytes


class Chunk:
    """Memory that is replaced by a larger block when it doesn't suffice; what it held is lost then.

    It never shrinks by itself, so that inputs of changing size don't make it come and go; trim() releases it.
    Whenever it moves, the budget's `moves` goes up.
    """

    def __init__(self, budget: Budget, owner: str) -> None:
        self._budget = budget
        self._owner = owner
        self._block: Block | None = None

    @property
    def address(self) -> int:
        return self._block.address if self._block is not None else 0

    @property
    def size_bytes(self) -> int:
        return self._block.size_bytes if self._block is not None else 0

    def ensure(self, size_bytes: int) -> None:
        """Makes room for so many bytes.

        Raises: RunError beyond the limit, or if the system has no more memory.
        """
        if size_bytes <= self.size_bytes:
            return
        rounded = -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._budget.change(self._owner, self.size_bytes, rounded)
        if self._block is not None:
            self._block.close()
            self._block = None
        self._budget.moves += 1
        try:
            self._block = Block(rounded)
        except (OSError, OverflowError, ValueError, MemoryError) as error:
            self._budget.change(self._owner, rounded, 0)
            raise RunError(
                f"the system has no {rounded:,} bytes for the {self._owner}: {error}",
                next_step="run smaller inputs",
            ) from error

    def trim(self) -> None:
        """Gives all memory back."""
        if self._block is not None:
            self._budget.change(self._owner, self.size_bytes, 0)
            self._block.close()
            self._block = None
            self._budget.moves += 1
