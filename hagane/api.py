"""The public functions: build, load, compare. Importing this pulls in no compiler; building does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hagane.core.errors import BuildError, ModelError

if TYPE_CHECKING:
    from onnx import ModelProto

    from hagane.build.engine import Engine
    from hagane.build.options import Progress
    from hagane.debug.compare import Difference
    from hagane.runtime.session import Session

Source = "str | os.PathLike[str] | bytes | ModelProto"


def build(
    source: str | os.PathLike[str] | bytes | ModelProto,
    *,
    target: str = "native",
    shapes: Mapping[str, tuple[Any, ...]] | None = None,
    precision: str = "fp32",
    timing_cache: str | os.PathLike[str] | None = None,
    time_budget: float = 0.0,
    verify: str = "quick",
    fuse: bool = True,
    pack: str = "embed",
    processes: int | None = None,
    progress: Progress | None = None,
) -> Engine:
    """Compiles an ONNX model (a path, its bytes, or a ModelProto) for a target.

    target: "native", "cpu", or such as "cpu:x86-64-v4+vnni". shapes: dims of inputs by name, to narrow
    dynamic ones or to correct a file: ints, names or `hagane.Dim`s. timing_cache: a text file that is read
    and added to. time_budget: seconds to spend on measuring alternatives; 0 takes the best guesses. verify:
    "off", "quick" or "full" checks of regions against the reference. fuse=False keeps every op apart, for
    debugging. pack: "embed" stores packed weights in the file, "on-load" makes them when loading.
    progress(stage, done, total) may return False to cancel.

    Raises: ModelError if the model can't be used, BuildError if building fails or is cancelled.
    """
    try:
        from hagane.build.builder import build_engine
        from hagane.build.options import BuildOptions
    except ImportError as error:
        raise BuildError(
            f"building needs {error.name}, which is not installed", next_step="pip install 'hagane[build]'"
        ) from error
    if precision != "fp32":
        raise BuildError(
            f"precision={precision!r} is not available on this target", next_step='use precision="fp32"'
        )
    if shapes is not None and not isinstance(shapes, Mapping):
        raise BuildError(
            f"shapes= is a {type(shapes).__name__}, not a dict of dims by input name",
            next_step='write shapes={"input": (1, 3, 224, 224)}',
        )
    options = BuildOptions(
        target=target,
        shapes=dict(shapes or {}),
        timing_cache=timing_cache,
        time_budget=time_budget,
        verify=verify,
        fuse=fuse,
        threads=processes,
        pack=pack,
        progress=progress,
    )
    try:
        return build_engine(os.fspath(source) if isinstance(source, os.PathLike) else source, options)
    except MemoryError as error:
        raise BuildError(
            f"the build ran out of memory: {error}", next_step='narrow shapes=, or use verify="off"'
        ) from error


def load(
    source: str | os.PathLike[str] | Engine,
    *,
    threads: int | None = None,
    affinity: list[int] | None = None,
    memory_limit: int | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Session:
    """Opens an engine file, an Engine, or a model, which is built first (and kept in cache_dir if given).

    threads: worker threads, by default one a core. memory_limit: bytes of arena and workspace at most.
    Raises: EngineError if the file can't be used here, ModelError and BuildError where a model is built.
    """
    from hagane.runtime.session import Session

    image: Any = getattr(source, "image", None)
    if image is None:
        if not isinstance(source, (str, os.PathLike)):
            raise ModelError(
                f"an engine can't be loaded from {type(source).__name__}",
                next_step="pass a path, or what hagane.build returns",
            )
        path = Path(source)
        if not path.exists():
            raise ModelError(f"there is no file {path}", next_step="check the path")
        image = _open(path, cache_dir)
    return Session(image, threads=threads, affinity=affinity, memory_limit=memory_limit)


def compare(
    model: str | os.PathLike[str],
    feed: Mapping[str, Any] | None = None,
    *,
    against: str = "reference",
    per_node: bool = False,
) -> list[Difference]:
    """Builds a model and compares its outputs, or every node's, with the interpreter or ONNX Runtime.

    feed: inputs by name; made up if not given. Raises: ModelError, BuildError.
    """
    from hagane.debug.compare import compare_model

    return compare_model(Path(model), feed, against=against, per_node=per_node)


def _open(path: Path, cache_dir: str | os.PathLike[str] | None) -> Any:
    from hagane.engine.read import is_engine_file, read_engine

    if is_engine_file(path):
        return read_engine(path)
    if cache_dir is None:
        return build(path).image
    from hagane.build.cache import cached_engine

    return read_engine(cached_engine(path, Path(cache_dir)))
