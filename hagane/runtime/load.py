"""Makes a session from an engine file or an engine in memory."""

from __future__ import annotations

import os
from collections.abc import Sequence

from hagane.engine.image import EngineImage
from hagane.runtime.session import Session


def load(
    engine: str | os.PathLike[str] | EngineImage,
    threads: int | None = None,
    affinity: Sequence[int] | None = None,
    memory_limit: int | None = None,
) -> Session:
    """Opens an engine; see Session for the options. An engine holds machine code: load only those you trust.

    Raises: EngineError if the file is damaged or not for this machine.
    """
    if isinstance(engine, EngineImage):
        return Session(engine, threads, affinity, memory_limit)
    from hagane.engine.read import read_engine

    return Session(read_engine(engine), threads, affinity, memory_limit)
