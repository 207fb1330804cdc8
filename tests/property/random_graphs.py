"""Random graphs over the registered ops, with shapes that fit, and inputs to run them on."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from hagane.core.dtypes import DType
from hagane.ir.graph import Array, Graph, Type, Value
from hagane.ir.text import print_graph
from tests.property.draft import EXTENTS, Draft
from tests.property.random_steps import STEPS

FLOATS = (DType.F64, DType.F32)


def draft_inputs(draft: Draft) -> None:
    """Two or three inputs: floats of one type, an integer tensor."""
    dtype = draft.one_of(FLOATS)
    for rank in [draft.one_of([0, 1, 2, 3, 4, 4]) for _ in range(draft.integer(1, 2))]:
        extents = [draft.one_of(EXTENTS) for _ in range(rank)]
        draft.pool.append(
            draft.builder.input(f"x{len(draft.pool)}", Type(dtype, draft.dims(*extents, new=True)))
        )
    integer = draft.one_of([DType.I64, DType.I32, DType.BOOL])
    extents = [draft.one_of(EXTENTS) for _ in range(draft.integer(0, 3))]
    draft.pool.append(draft.builder.input("n", Type(integer, draft.dims(*extents, new=True))))


class Case:
    """A graph; it shows itself as the text that it had when it was drawn."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.text = print_graph(graph)

    def __repr__(self) -> str:
        return f"\n{self.text}"


def make_case(seed: int, num_steps: int) -> Case:
    """A graph of some nodes; any of its values, also inputs and constants, may be outputs.

    Fewer steps from one seed give the beginning of the same graph.
    """
    draft = Draft(np.random.default_rng(seed))
    draft_inputs(draft)
    for _ in range(num_steps):
        draft.one_of(STEPS)(draft)
    if draft.integer(0, 4) == 0:
        draft.pool.append(draft.constant(DType.F32, 2))
    graph = draft.builder.graph
    picked = [draft.one_of(draft.pool) for _ in range(draft.integer(0, 3))]
    graph.outputs = [*picked, draft.pool[-1], *draft.extra]
    graph.output_names = [f"y{k}" for k in range(len(graph.outputs))]
    return Case(graph)


def cases(max_steps: int = 24) -> st.SearchStrategy[Case]:
    """Graphs of up to max_steps steps."""
    return st.builds(make_case, st.integers(0, 2**40), st.integers(1, max_steps))


def random_feed(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Inputs for a graph whose symbols are those of SYMBOLS, or any within their range."""
    rng = np.random.default_rng(seed)
    sizes: dict[str, int] = {f"D{extent}": extent for extent in EXTENTS}
    for value in graph.inputs:
        for dim in value.shape:
            for symbol in dim.symbols():
                top = min(symbol.hi or 6, max(symbol.lo + 3, 6))
                choices = [n for n in range(max(symbol.lo, 1), top + 1) if n % symbol.multiple == 0]
                sizes.setdefault(symbol.name, int(rng.choice(choices or [symbol.multiple])))
    return {v.name: _random_array(v, tuple(d.evaluate(sizes) for d in v.shape), rng) for v in graph.inputs}


def _random_array(value: Value, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if value.elements is not None:
        return np.array([e.value for e in value.elements], value.dtype.np).reshape(shape)
    if value.dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if value.dtype.is_int:
        return rng.integers(0 if not value.dtype.is_signed else -3, 5, shape).astype(value.dtype.np)
    array = rng.uniform(-2, 2, shape)
    special = rng.random(shape)
    array = np.where(
        special < 0.04, np.nan, np.where(special > 0.96, np.inf, np.where(special > 0.9, 0.0, array))
    )
    return array.astype(value.dtype.np)
