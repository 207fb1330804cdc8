"""Runs single regions of a graph while building: for verification and for tuning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hagane.build.compile import Compiler
from hagane.build.isolate import region_graph, symbols_of
from hagane.build.plan import needed_weights, write_plan
from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr, const, product
from hagane.engine.image import EngineImage
from hagane.ir.graph import Array, Graph
from hagane.ir.region import Region
from hagane.lower.cost import region_flops
from hagane.lower.kernels import KernelLibrary
from hagane.lower.program import Choose
from hagane.lower.region_key import region_key
from hagane.passes.base import control_graphs
from hagane.passes.views import is_view
from hagane.plan.model import Plan
from hagane.runtime.session import Session

Dims = Mapping[str, int]
# values tried for symbols: multiples of 32, which strides divide, odd ones for tails, and the smallest
_SIZES = (32, 7, 3, 64, 96, 192, 384, 1)
_MAX_ELEMENTS = 1 << 26  # half a GiB in float64, of which the reference holds a few


def unique_regions(graph: Graph) -> dict[str, Region]:
    """The regions of a graph by key, one of each, views left out."""
    found: dict[str, Region] = {}
    for inner in control_graphs(graph):
        for node in inner.nodes:
            if node.op == "region" and not is_view(node):
                region = Region(node)
                found.setdefault(region_key(region), region)
    return found


@dataclass(frozen=True)
class Alone:
    """One region as a graph of its own, with the plan that computes it."""

    region: Region
    graph: Graph
    plan: Plan


def plan_alone(region: Region, library: KernelLibrary, choose: Choose) -> Alone:
    """A plan for the region alone; its kernels, and those of copies into its layouts, go into the library."""
    graph = region_graph(region)
    return Alone(region, graph, write_plan(graph, library, choose))


def sessions(
    plans: Sequence[Alone],
    library: KernelLibrary,
    compiler: Compiler,
    weights: Mapping[str, Array],
    threads: int,
) -> Iterator[Session]:
    """A session for each plan, in order; all share one image of compiled kernels."""
    blob = compiler.blob(list(library.kernels.values()))
    for alone in plans:
        name = str(library.target)
        image = EngineImage(
            plans={name: alone.plan},
            code={name: blob},
            weights=needed_weights(alone.plan, weights),
            pack="on-load",
        )
        yield Session(image, threads=threads)


def sample_dims(
    region: Region, sizes: Sequence[int] = _SIZES, max_flops: float = 1e8
) -> list[dict[str, int]]:
    """Values for the region's symbols that make all its extents positive, one for each size that does.

    Those of more than max_flops operations come last, the smallest of them first; those of more elements than
    a check should hold in memory don't come at all, unless there are no others.
    """
    symbols = symbols_of(region)
    if not symbols:
        return [{}]
    values = [*region.operands, *region.outputs, *(v for n in region.body.nodes for v in n.outputs)]
    extents = {d for v in values for d in v.shape}
    found: list[dict[str, int]] = []
    for size in sizes:
        dims = {}
        for symbol in symbols:
            wanted = max(size, symbol.lo) if symbol.hi is None else min(max(size, symbol.lo), symbol.hi)
            dims[symbol.name] = max(-(-wanted // symbol.multiple) * symbol.multiple, symbol.multiple)
        if dims not in found and _positive(extents, dims):
            found.append(dims)
    work = region_flops(region)
    held = sum((product(v.shape) for v in (*region.operands, *region.outputs)), const(0))
    fewest = min((held.evaluate(dims) for dims in found), default=0)
    found = [dims for dims in found if held.evaluate(dims) <= max(fewest, _MAX_ELEMENTS)]
    return sorted(found, key=lambda dims: max(work.evaluate(dims) - max_flops, 0))


def _positive(extents: set[Expr], dims: Dims) -> bool:
    try:
        return all(0 < e.evaluate(dims) < 1 << 22 for e in extents)
    except ZeroDivisionError:
        return False


def region_feed(alone: Alone, dims: Dims, kind: str, seed: int) -> dict[str, Array]:
    """Inputs for the region's graph.

    kind: normal, large, zeros, rows (all alike along axis 0), special (NaN, inf).
    """
    rng = np.random.default_rng(seed)
    feed: dict[str, Array] = {}
    for value in alone.graph.inputs:
        shape = tuple(d.evaluate(dims) for d in value.shape)
        if value.dtype is DType.BOOL:
            feed[value.name] = rng.integers(0, 2, shape).astype(bool)
        elif value.dtype.is_float:
            feed[value.name] = _floats(rng, shape, kind).astype(value.dtype.np)
        else:  # integers may be indices: 0 is in range wherever anything is
            feed[value.name] = np.zeros(shape, value.dtype.np)
    return feed


def _floats(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Array:
    if kind == "zeros":
        return np.zeros(shape)
    if kind == "rows" and shape:
        return np.broadcast_to(rng.standard_normal((1, *shape[1:])), shape).copy()
    numbers = rng.standard_normal(shape)
    if kind == "large":
        return np.asarray(numbers * 10.0 ** rng.integers(-3, 4, shape))
    if kind == "special" and numbers.size > 2:
        flat = numbers.reshape(-1)
        flat[rng.integers(0, flat.size, 3)] = np.nan, np.inf, -np.inf
    return np.asarray(numbers)
