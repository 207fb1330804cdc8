"""The loops over a region's output:
which there are, which can be merged, which one runs over vector lanes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hagane.core.symbolic import Expr, const
from hagane.ir.graph import Value
from hagane.ir.region import Region, index_symbol
from hagane.ir.scalar import IndexValue, Load, Reduce, Scalar, children
from hagane.kernels.llvm.affine import linear_coefficient, mentions
from hagane.kernels.llvm.guards import simplify

TYPICAL_EXTENT = 64  # assumed for symbolic extents when costs are estimated


@dataclass(frozen=True)
class Loop:
    """One loop from 0 to extent.

    lane_block: it is the inner part of a blocked axis, always computed whole.
    """

    name: str
    extent: Expr
    lane_block: bool = False


@dataclass(frozen=True)
class Span:
    """A part of a loop: `extent` turns from `start` on, surely no more than `bound`."""

    start: Expr
    extent: Expr
    bound: Expr


Box = Mapping[str, Span]
"""Parts of an output's loops, by the loops' names; a loop that isn't named is whole."""


@dataclass
class Nest:
    """Loops around one scalar. offsets: element offsets of all loads by id; store: that of the output.

    valid: for a blocked axis whose extent isn't a multiple of the block, the number of lanes that count; the
    others get zeros.
    """

    loops: list[Loop]
    scalar: Scalar
    offsets: dict[int, Expr]
    store: Expr
    valid: Expr | None
    loads: list[tuple[Load, int]]  # each load and the trips of the reductions around it
    reduces: list[Reduce]  # inner ones first
    indices: list[Expr]  # expressions used as values

    def depends(self, scalar: Scalar, name: str) -> bool:
        """True if the scalar's value varies with the loop."""
        return _depends(scalar, name, self.offsets, {})


def build_nest(region: Region, output: int, box: Box | None = None) -> Nest:
    """The loops of a box of an output in its layout's order, merged where every access allows it."""
    target = region.outputs[output]
    loops, index, valid = _layout_loops(target, box or {})
    scalar = simplify(region.expression(index, output))
    places = region.operands
    nest = Nest(loops, scalar, {}, _offset(target, index), valid, [], [], [])
    _collect(scalar, 1, nest, set())
    for load, _ in nest.loads:
        nest.offsets[id(load)] = _offset(places[load.operand], load.index)
    _merge_loops(nest)
    return nest


def _offset(value: Value, index: tuple[Expr, ...]) -> Expr:
    from hagane.ir.layout import offset_of

    return offset_of(value.layout, value.shape, index)


def _layout_loops(value: Value, box: Box) -> tuple[list[Loop], tuple[Expr, ...], Expr | None]:
    """Loops in memory order, the logical index over them, and the lanes that count in a partly used block."""
    index: list[Expr] = [const(0)] * value.rank
    layout = value.layout
    order = range(value.rank) if layout is None else layout.order
    blocks = {} if layout is None else layout.block_of
    loops: list[Loop] = []
    lanes: list[Loop] = []
    valid: Expr | None = None

    def position(name: str, extent: Expr) -> Expr:
        span = box.get(name) or Span(const(0), extent, extent)
        if span.extent == 1:
            return span.start
        loops.append(Loop(name, span.extent))
        return span.start + index_symbol(name, span.bound)

    for axis in order:
        extent = value.shape[axis]
        factor = blocks.get(axis)
        if factor is None:
            index[axis] = position(f"o{axis}", extent)
            continue
        block = position(f"o{axis}b", layout.outer_extent(value.shape, axis) if layout else extent)
        index[axis] = block * factor + index_symbol(f"o{axis}l", const(factor))
        lanes.append(Loop(f"o{axis}l", const(factor), lane_block=True))
        if extent.divisor() % factor:
            valid = extent - block * factor
    return loops + lanes, tuple(index), valid


def _collect(scalar: Scalar, trips: int, nest: Nest, seen: set[int]) -> None:
    if id(scalar) in seen:
        return
    seen.add(id(scalar))
    inner = trips
    if isinstance(scalar, Reduce):
        for axis in scalar.axes:
            inner *= axis.extent.value if axis.extent.is_const else TYPICAL_EXTENT
    for child in children(scalar):
        _collect(child, inner, nest, seen)
    if isinstance(scalar, Load):
        nest.loads.append((scalar, trips))
    elif isinstance(scalar, IndexValue):
        nest.indices.append(scalar.expr)
    elif isinstance(scalar, Reduce):
        nest.reduces.append(scalar)
        nest.indices += [axis.extent for axis in scalar.axes]


def _merge_loops(nest: Nest) -> None:
    position = len(nest.loops) - 2
    while position >= 0:
        outer, inner = nest.loops[position], nest.loops[position + 1]
        if not inner.lane_block and _mergeable(nest, outer, inner):
            name = f"{outer.name}_{inner.name}"
            merged = index_symbol(name, outer.extent * inner.extent)
            env = {outer.name: const(0), inner.name: merged}
            nest.offsets = {key: offset.substitute(env) for key, offset in nest.offsets.items()}
            nest.store = nest.store.substitute(env)
            nest.loops[position : position + 2] = [Loop(name, outer.extent * inner.extent)]
        position -= 1


def _mergeable(nest: Nest, outer: Loop, inner: Loop) -> bool:
    if any(mentions(e, outer.name) or mentions(e, inner.name) for e in nest.indices):
        return False
    if nest.valid is not None and (mentions(nest.valid, outer.name) or mentions(nest.valid, inner.name)):
        return False
    for offset in [nest.store, *nest.offsets.values()]:
        a, b = linear_coefficient(offset, outer.name), linear_coefficient(offset, inner.name)
        if a is None or b is None or a != b * inner.extent:
            return False
    return True


def _depends(scalar: Scalar, name: str, offsets: dict[int, Expr], memo: dict[int, bool]) -> bool:
    key = id(scalar)
    if key not in memo:
        memo[key] = False
        if isinstance(scalar, IndexValue):
            memo[key] = mentions(scalar.expr, name)
        elif isinstance(scalar, Load):
            memo[key] = mentions(offsets[key], name)
        elif isinstance(scalar, Reduce):
            # its own loop, not the one asked about
            bound = any(axis.sym.name == name for axis in scalar.axes)
            memo[key] = any(mentions(a.extent, name) for a in scalar.axes) or (
                not bound and _depends(scalar.body, name, offsets, memo)
            )
        else:
            memo[key] = any(_depends(c, name, offsets, memo) for c in children(scalar))
    return memo[key]


def choose_vector(nest: Nest, lanes: int) -> str | None:
    """The loop to run over lanes, by the cheapest estimate; None to vectorise reductions along their rows
    instead.
    """
    blocks = [loop.name for loop in nest.loops if loop.lane_block and loop.extent == lanes]
    if blocks:
        return blocks[0]
    best: str | None = None
    best_cost = _row_cost(nest, lanes)
    for loop in reversed(nest.loops):
        cost = _vector_cost(nest, loop, lanes)
        if cost < best_cost * 0.999:
            best, best_cost = loop.name, cost
    return best


def _access_cost(offset: Expr, name: str, lanes: int) -> float:
    """Cost of one element's access when `name` runs over lanes: vector loads and broadcasts are shared by the
    lanes.
    """
    stride = linear_coefficient(offset, name)
    return 1 / lanes if stride is not None and (stride == 0 or stride == 1) else 1.0


def _vector_cost(nest: Nest, loop: Loop, lanes: int) -> float:
    cost = 1 / lanes if linear_coefficient(nest.store, loop.name) == 1 else 1.5
    cost += 1 / lanes  # the arithmetic itself
    for load, trips in nest.loads:
        cost += trips * _access_cost(nest.offsets[id(load)], loop.name, lanes)
    for reduce in nest.reduces:
        if not nest.depends(reduce, loop.name):  # hoisted out of the loop
            continue
        cost += 1 / lanes
    if loop.extent.is_const:
        whole = -(-loop.extent.value // lanes) * lanes
        cost *= whole / loop.extent.value
    return cost


def _row_cost(nest: Nest, lanes: int) -> float:
    cost = 2.0
    inner = {id(load): reduce for reduce in reversed(nest.reduces) for load in _loads(reduce)}
    for load, trips in nest.loads:
        reduce = inner.get(id(load))
        if reduce is None:
            cost += 1.0
            continue
        axis = reduce.axes[-1]
        waste = (
            -(-axis.extent.value // lanes) * lanes / max(axis.extent.value, 1)
            if axis.extent.is_const
            else 1.0
        )
        per_element = _access_cost(nest.offsets[id(load)], axis.sym.name, lanes)
        cost += trips * (min(1.0, per_element * waste) if vectorises(nest, reduce) else 1.0)
    return cost


def _loads(scalar: Scalar) -> list[Load]:
    found: dict[int, Load] = {}
    stack = [scalar]
    seen: set[int] = set()
    while stack:
        top = stack.pop()
        if id(top) in seen:
            continue
        seen.add(id(top))
        if isinstance(top, Load):
            found[id(top)] = top
        stack += children(top)
    return list(found.values())


def vectorises(nest: Nest, reduce: Reduce) -> bool:
    """True if the reduction's last axis can run over lanes with some contiguous load,
    and has enough trips.
    """
    if reduce.op.startswith("arg"):
        return False
    axis = reduce.axes[-1]
    if axis.extent.is_const and axis.extent.value < 8:
        return False
    strides = [linear_coefficient(nest.offsets[id(load)], axis.sym.name) for load in _loads(reduce)]
    return any(s is not None and s == 1 for s in strides)
