"""A graph in the making: a pool of values that steps build on.

Passes may change the rounding of some results (a power becomes products, a scale goes into weights); what
such a result goes into must be continuous, or one unit in the last place could flip a comparison:
`Draft.tainted` keeps them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.core.symbolic import Expr, const, sym
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Shape, Value

EXTENTS = (1, 2, 3, 4)
SYMBOLS = {extent: sym(f"D{extent}", 1, 64) for extent in EXTENTS if extent > 1}
"""A dim of a known extent may be symbolic: D3 is 3 at run time."""

DISCONTINUOUS = frozenset({
    "floor", "ceil", "round", "sign", "mod", "fmod", "isnan", "isinf", "eq", "ne", "lt", "le", "gt", "ge",
    "cast", "argmax", "argmin", "topk", "thresholded_relu", "quantize", "dynamic_quantize", "one_hot",
    "compress", "nonzero", "roi_align", "resize",
})  # fmt: skip
INEXACT = frozenset({"pow", "batch_norm", "conv", "conv_transpose", "div"})


def extent_of(dim: Expr) -> int:
    """The size that a dim has at run time."""
    return dim.evaluate({f"D{extent}": extent for extent in EXTENTS})


@dataclass
class Draft:
    """A graph in the making. pool: values to build on. tainted: those whose rounding passes may change.
    folded: those that follow from constants. extra: values that only outputs read."""

    rng: np.random.Generator
    builder: Builder = field(default_factory=lambda: Builder(Graph()))
    pool: list[Value] = field(default_factory=list)
    tainted: set[Value] = field(default_factory=set)
    folded: set[Value] = field(default_factory=set)
    extra: list[Value] = field(default_factory=list)

    def one_of(self, items: Any) -> Any:
        choices = list(items)
        return choices[self.integer(0, len(choices) - 1)]

    def integer(self, lo: int, hi: int) -> int:
        """A number from lo to hi, both included."""
        return int(self.rng.integers(lo, hi + 1))

    def flip(self) -> bool:
        return self.integer(0, 1) == 1

    def value(self, accept: Callable[[Value], bool] = lambda value: True) -> Value | None:
        """A value of the pool that is fit, the newest ones rather than old ones."""
        fit = [v for v in self.pool if accept(v)]
        if not fit:
            return None
        return self.one_of(fit[-4:] if self.flip() else fit)

    def dims(self, *extents: int, new: bool = False) -> Shape:
        """Dims of these extents, some of them symbolic. new: also symbols that no input has bound so far."""
        bound = {d for v in self.builder.graph.inputs for d in v.shape}
        known = {e: s for e, s in SYMBOLS.items() if new or s in bound}
        return tuple(known[e] if e in known and self.integer(0, 2) == 0 else const(e) for e in extents)

    def constant(self, dtype: DType, *extents: int) -> Value:
        """A constant, of numbers that exact arithmetic likes (0, 1, 2 ...) or of any."""
        seed = self.integer(0, 999)
        rng = np.random.default_rng(seed)
        if dtype is DType.BOOL:
            return self.builder.const(rng.integers(0, 2, extents).astype(bool))
        simple = self.one_of([0, 1, 2, -1, 3, None])
        if simple is not None and (dtype.is_signed or simple >= 0):
            return self.builder.const(np.full(extents, simple), dtype)
        low = 1 if not dtype.is_signed else -3
        numbers = (
            rng.integers(low, 5, extents)
            if dtype.is_int
            else rng.choice([-1.5, -0.5, 0.5, 0.7, 1.1, 2, 4], extents)
        )
        return self.builder.const(numbers, dtype)

    def add(self, values: list[Value]) -> None:
        """Puts values into the pool, but for those whose extents only a run tells."""
        known = {f"D{extent}" for extent in EXTENTS}
        self.pool += [v for v in values if all(s.name in known for d in v.shape for s in d.symbols())]

    def op(self, op: str, *inputs: Value | None, **attrs: Any) -> list[Value]:
        """Appends a node; what it gives goes into the pool. Nothing happens if it doesn't fit."""
        present = [v for v in inputs if v is not None]
        tainted = any(v in self.tainted for v in present)
        if tainted and op in DISCONTINUOUS:
            return []
        nodes, names = len(self.builder.graph.nodes), set(self.builder._names)
        try:
            outputs = self.builder.ops(op, *inputs, **attrs)
        except ModelError:
            del self.builder.graph.nodes[nodes:]
            self.builder._names.intersection_update(names)
            return []
        self.add(outputs)
        floats = any(v.dtype.is_float for v in outputs)
        if all(v.is_const or v in self.folded for v in present):
            self.folded.update(outputs)
            tainted = tainted or (floats and outputs[0].dtype is not DType.F64)  # rounded where it is folded
        if tainted or (op in INEXACT and floats):
            self.tainted.update(outputs)
        return outputs
