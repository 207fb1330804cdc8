"""What users write on the command line, as Python values: shapes, input files, batch sizes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import typer

from hagane.core.dims import Dim


def parse_shapes(texts: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """ "in=1x3x224x224" or "in=1:8:64x3xHxW": ints, min:opt:max ranges, names.

    Raises: typer.BadParameter.
    """
    shapes: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, separator, dims = text.rpartition("=")
        if not separator or not name:
            raise typer.BadParameter(f"{text!r} is not of the form input=1x3x224x224")
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
        symbol = "".join(c if c.isalnum() else "_" for c in f"{name}_d{axis}")
        return Dim(symbol if symbol.isidentifier() else f"d_{symbol}", min=lo, max=hi, opt=opt)
    raise typer.BadParameter(f"{text!r} is no dim: use a number, a name, or min:opt:max")


def parse_dims(texts: Iterable[str]) -> dict[str, int]:
    """ "batch=4" pairs. Raises: typer.BadParameter."""
    dims = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not value.isdigit():
            raise typer.BadParameter(f"{text!r} is not of the form name=4")
        dims[name] = int(value)
    return dims


def load_inputs(texts: Iterable[str]) -> dict[str, np.ndarray[Any, Any]]:
    """ "name=file.npy" pairs, or one .npz file that holds all inputs. Raises: typer.BadParameter."""
    feed: dict[str, np.ndarray[Any, Any]] = {}
    for text in texts:
        name, separator, path = text.rpartition("=")
        try:
            loaded = np.load(Path(path), allow_pickle=False)
        except (OSError, ValueError) as error:
            raise typer.BadParameter(f"can't read {path}: {error}") from error
        if isinstance(loaded, np.ndarray):
            if not separator:
                raise typer.BadParameter(f"{text!r} is not of the form name=file.npy")
            feed[name] = loaded
        else:
            feed |= {key: loaded[key] for key in loaded.files}
    return feed
