"""Content hashes: the same input gives the same name on every run and machine."""

from __future__ import annotations

import hashlib

HASH_LEN = 32  # hex digits: 128 bits, enough to name blobs by content


def content_hash(*parts: bytes | bytearray | memoryview | str) -> str:
    """Hex digest over the parts; their boundaries count, so ("ab", "c") differs from ("a", "bc")."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:HASH_LEN]
