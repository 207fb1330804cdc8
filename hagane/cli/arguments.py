"""Arguments that several verbs share, and what users write in them as Python values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hagane.core.dims import Dim
from hagane.core.errors import BuildError
from hagane.core.targets import parse_target


def one_of(*allowed: str) -> Callable[[str], str]:
    """A check that an option has one of the allowed values. Raises: typer.BadParameter."""

    def check(text: str) -> str:
        if text not in allowed:
            raise typer.BadParameter(f"{text!r} is unknown; use {' or '.join(allowed)}")
        return text

    return check


def _check_target(text: str) -> str:
    try:
        parse_target(text)
    except BuildError as error:
        raise typer.BadParameter(f"{error.what}; {error.next_step}") from error
    return text


Model = Annotated[Path, typer.Argument(help="an ONNX file", show_default=False)]
ModelOrEngine = Annotated[Path, typer.Argument(help="an engine file or an ONNX file", show_default=False)]
Engine = Annotated[Path, typer.Argument(help="an engine file", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]
Target = Annotated[
    str, typer.Option(help="native, cpu, or such as cpu:x86-64-v4+vnni", callback=_check_target)
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(help="input=1x3x224x224; a dim may be a name or a range min:opt:max", show_default=False),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", help="name=file.npy, or one .npz with all inputs", show_default=False),
]
Batch = Annotated[int, typer.Option(min=1, help="size of dynamic leading dims")]
Dims = Annotated[
    list[str] | None, typer.Option("--dim", help="name=size of another dynamic dim", show_default=False)
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="worker threads; default: one a core", show_default=False)
]
TimeBudget = Annotated[float, typer.Option(min=0, help="seconds for measuring alternatives; 0: best guesses")]


def num_threads(threads: int | None) -> int:
    """The asked-for number, or that of the cores that this process may use."""
    return threads or len(os.sched_getaffinity(0))


def parse_shapes(texts: Iterable[str] | None) -> dict[str, tuple[Any, ...]]:
    """ "in=1x3x224x224" or "in=1:8:64x3xHxW": ints, min:opt:max ranges, names.

    Raises: typer.BadParameter.
    """
    shapes: dict[str, tuple[Any, ...]] = {}
    for text in texts or ():
        name, separator, dims = text.rpartition("=")
        if not separator or not name:
            raise typer.BadParameter(f"--shapes {text!r} is not of the form input=1x3x224x224")
        if name in shapes:
            raise typer.BadParameter(f"--shapes has the input {name!r} twice")
        shapes[name] = tuple(_dim(part, name, k) for k, part in enumerate(dims.split("x"))) if dims else ()
    return shapes


def _dim(text: str, name: str, axis: int) -> int | str | Dim:
    if text.isdigit():
        return int(text)
    if text.isidentifier():
        return text
    parts = text.split(":")
    if len(parts) == 3 and all(p.isdigit() for p in parts):
        lo, opt, hi = map(int, parts)
        if not lo <= opt <= hi:
            raise typer.BadParameter(f"--shapes {name}: {text!r} must rise, as in 1:8:64")
        symbol = "".join(c if c.isalnum() else "_" for c in f"{name}_d{axis}")
        return Dim(symbol if symbol.isidentifier() else f"d_{symbol}", min=lo, max=hi, opt=opt)
    raise typer.BadParameter(f"--shapes {name}: {text!r} is no dim: use a number, a name, or min:opt:max")


def parse_dims(texts: Iterable[str] | None) -> dict[str, int]:
    """ "batch=4" pairs. Raises: typer.BadParameter."""
    dims = {}
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator or not value.isdigit():
            raise typer.BadParameter(f"--dim {text!r} is not of the form name=4")
        dims[name] = int(value)
    return dims


def check_dims(dims: dict[str, int], known: Iterable[str]) -> dict[str, int]:
    """The dims, all of which the model must have. Raises: typer.BadParameter."""
    names = sorted(known)
    unknown = sorted(set(dims) - set(names))
    if unknown:
        has = f"it has {', '.join(names)}" if names else "all its shapes are constant"
        raise typer.BadParameter(f"the model has no dim {', '.join(unknown)}; {has}")
    return dims


def load_inputs(texts: Iterable[str] | None) -> dict[str, np.ndarray[Any, Any]]:
    """ "name=file.npy" pairs, or .npz files that hold inputs by name. Raises: typer.BadParameter."""
    feed: dict[str, np.ndarray[Any, Any]] = {}
    for text in texts or ():
        name, separator, path = text.rpartition("=")
        try:
            loaded = np.load(Path(path), allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise typer.BadParameter(f"can't read {path}: {error}") from error
        if isinstance(loaded, np.ndarray):
            if not separator:
                raise typer.BadParameter(f"--input {text!r} is not of the form name=file.npy")
            feed[name] = loaded
        else:
            feed |= {key: loaded[key] for key in loaded.files}
    return feed
