"""Cuts a region's output into boxes inside which guards are decided: the parts of a concatenation, the inside
and the borders of padding and of windows. Each box gets loops of its own, without tests.
"""

from __future__ import annotations

from dataclasses import dataclass

from hagane.core.symbolic import Expr, ceildiv, const, emax, emin
from hagane.ir.region import Region
from hagane.ir.scalar import Guard, Scalar, children
from hagane.kernels.llvm.affine import linear_coefficient, mentions
from hagane.kernels.llvm.guards import conditions, difference, nonnegative
from hagane.kernels.llvm.nest import Box, Loop, Nest, Span, build_nest

MOST_BOXES = 32
MOST_NODES = 1200  # nodes of the expressions of all boxes together, which is what compiling takes time for


def build_nests(region: Region, output: int) -> list[Nest]:
    """The loops of an output: one nest if no guard depends on where in the output an element is."""
    whole = build_nest(region, output)
    return _split(region, output, {}, whole, min(MOST_BOXES, MOST_NODES // max(_num_nodes(whole.scalar), 1)))


def _split(region: Region, output: int, box: Box, nest: Nest, allowance: int) -> list[Nest]:
    for loop in nest.loops:
        if allowance < 2 or loop.lane_block:
            break
        cuts = _cuts(nest, loop)[: allowance - 1]
        if not cuts:
            continue
        parts: list[Nest] = []
        for span in _spans(box, loop, cuts):
            inner = {**box, loop.name: span}
            part = build_nest(region, output, inner)
            parts += _split(region, output, inner, part, allowance // (len(cuts) + 1))
        return parts
    return [nest]


def _spans(box: Box, loop: Loop, cuts: list[Expr]) -> list[Span]:
    """The parts of a loop between the cuts; one that may reach past the loop's end gets a clipped extent."""
    base = box[loop.name].start if loop.name in box else const(0)
    spans: list[Span] = []
    first = const(0)
    for cut in [*cuts, loop.extent]:
        extent = cut - first
        if not nonnegative(loop.extent - cut):
            extent = emin(cut, loop.extent) - first
        if not nonnegative(extent):
            extent = emax(extent, 0)
        if extent != 0:
            # whatever the clipping: where there is a turn at all, it is below the cut
            spans.append(Span(base + first, extent, cut - first))
        first = cut if nonnegative(cut) else emax(cut, 0)
    return spans


@dataclass(frozen=True)
class _Range:
    """The smallest and the largest value of an expression, over loops that are not cut."""

    low: Expr
    high: Expr


def _cuts(nest: Nest, loop: Loop) -> list[Expr]:
    """Where along a loop the conditions of guards begin or cease to be decided, in order."""
    position = nest.loops.index(loop)
    outer = [other.name for other in nest.loops[:position]]
    inner = _inner_symbols(nest, nest.loops[position + 1 :])
    found: list[Expr] = []
    for value in _differences(nest.scalar):
        factor = linear_coefficient(value, loop.name)
        if factor is None or not factor.is_const or factor == 0:
            continue
        rest = value.substitute({loop.name: const(0)})
        if any(mentions(rest, name) for name in outer):
            continue
        reach = _range(rest, inner)
        if reach is None:
            continue
        surely, possibly = _where(factor.value, reach)
        windows = any(mentions(value, axis.sym.name) for reduce in nest.reduces for axis in reduce.axes)
        # windows that lie in the padding altogether are rare
        for cut in (surely,) if windows else (surely, possibly):
            if not nonnegative(-cut) and not nonnegative(cut - loop.extent):
                _insert(found, cut)
    return found


def _where(factor: int, reach: _Range) -> tuple[Expr, Expr]:
    """Where factor * position + rest < 0 begins or ceases to be surely true, and to be possible."""
    if factor > 0:
        return ceildiv(-reach.high, factor), ceildiv(-reach.low, factor)
    return reach.high // -factor + 1, reach.low // -factor + 1


def _insert(found: list[Expr], cut: Expr) -> None:
    """Adds a cut at its place, unless it is there or its order is unknown."""
    for position, other in enumerate(found):
        if nonnegative(other - cut):
            if not nonnegative(cut - other):
                found.insert(position, cut)
            return
        if not nonnegative(cut - other):
            return
    found.append(cut)


def _inner_symbols(nest: Nest, loops: list[Loop]) -> dict[str, Expr]:
    """Symbols of some loops and of reductions with their extents."""
    found = {loop.name: loop.extent for loop in loops}
    for reduce in nest.reduces:
        found |= {axis.sym.name: axis.extent for axis in reduce.axes}
    return found


def _range(value: Expr, inner: dict[str, Expr]) -> _Range | None:
    """The range of an expression over lanes and reductions; None where it isn't linear in one of them."""
    low = high = value
    for name, extent in inner.items():
        if not mentions(value, name):
            continue
        factor = linear_coefficient(value, name)
        if factor is None or not factor.is_const:
            return None
        ends = const(0), extent - 1
        low = low.substitute({name: ends[factor.value < 0]})
        high = high.substitute({name: ends[factor.value > 0]})
    dims_only = all(s.bound is None for e in (low, high) for s in e.symbols())
    return _Range(low, high) if dims_only else None


def _differences(scalar: Scalar) -> list[Expr]:
    """The comparisons of index expressions in all guards, those at the top first."""
    found: list[Expr] = []
    for node in _walk(scalar):
        if isinstance(node, Guard):
            found += [d for part in conditions(node.cond) if (d := difference(part)) is not None]
    return found


def _walk(scalar: Scalar) -> list[Scalar]:
    seen: dict[int, Scalar] = {}
    waiting = [scalar]
    while waiting:
        top = waiting.pop(0)
        if id(top) not in seen:
            seen[id(top)] = top
            waiting += children(top)
    return list(seen.values())


def _num_nodes(scalar: Scalar) -> int:
    return len(_walk(scalar))
