"""Inputs for a model when the user gives none: seeded, of the declared types, at chosen dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.core.symbolic import Expr, Sym, parse_expr, to_expr
from hagane.plan.model import Symbol

TYPICAL_DIM = 8


class Port(Protocol):
    """An input: name, element type, and dims as numbers or expressions in text."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def shape(self) -> tuple[int | str, ...]: ...


def default_dims(
    ports: Sequence[Port],
    symbols: Mapping[str, Symbol],
    given: Mapping[str, int] | None = None,
    batch: int = 1,
) -> dict[str, int]:
    """A value for each symbol: the given one, `batch` for leading dims, else a typical one in its range."""
    dims: dict[str, int] = {}
    for port in ports:
        for axis, dim in enumerate(port.shape):
            for symbol in sorted(_expr(dim).symbols(), key=lambda s: s.name):
                typical = batch if axis == 0 and len(port.shape) > 1 else TYPICAL_DIM
                fact = symbols.get(symbol.name, Symbol(symbol.name, 1))
                dims.setdefault(symbol.name, (given or {}).get(symbol.name, within(fact, typical)))
    return dims


def _expr(dim: int | str) -> Expr:
    return parse_expr(dim) if isinstance(dim, str) else to_expr(dim)


def within(symbol: Symbol | Sym, wanted: int) -> int:
    """The value nearest to the wanted one that the symbol's range and divisor allow."""
    value = max(wanted, symbol.lo)
    value = -(-value // symbol.multiple) * symbol.multiple
    if symbol.hi is not None and value > symbol.hi:
        value = symbol.hi // symbol.multiple * symbol.multiple
    return value


def make_feed(
    ports: Sequence[Port], dims: Mapping[str, int], seed: int = 0
) -> dict[str, np.ndarray[Any, Any]]:
    """Normal floats, integers 0 and 1 (so that any use as an index is in range), random booleans.

    Raises: ModelError for string inputs.
    """
    rng = np.random.default_rng(seed)
    feed = {}
    for port in ports:
        shape = tuple(_expr(d).evaluate(dims) for d in port.shape)
        if port.dtype is DType.STRING:
            raise ModelError(
                f"input {port.name!r} holds strings", next_step="give it with --input name=file.npy"
            )
        if port.dtype.is_float:
            feed[port.name] = rng.standard_normal(shape).astype(port.dtype.np)
        else:
            feed[port.name] = rng.integers(0, 2, shape).astype(port.dtype.np)
    return feed
