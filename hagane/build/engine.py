"""A built engine: what `hagane.build` returns."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from hagane.core.errors import EngineError
from hagane.engine.image import EngineImage


@dataclass
class Engine:
    """An engine in memory. `hagane.load(engine)` runs it, `save` writes it to a file."""

    image: EngineImage = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the engine file atomically. Raises: EngineError if it can't be written."""
        from hagane.engine.write import write_engine

        if not isinstance(path, (str, os.PathLike)):
            raise EngineError(f"can't write to {path!r}", next_step="give the path of a file")
        write_engine(self.image, path)

    def summary(self) -> str:
        """Regions with tactics, work and the model's node names, one a line."""
        from hagane.build.summary import summarise

        return summarise(self.image)
