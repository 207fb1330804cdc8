"""Zeroing the halo of a kernel's output: layouts promise zeros there, and who writes a value keeps that."""

from __future__ import annotations

from hagane.codegen.llvm import Value
from hagane.core.symbolic import product
from hagane.kernels.llvm.frame import Frame, Scope
from hagane.kernels.llvm.scalars import Place


def zero_halo(frame: Frame, place: Place) -> None:
    """Writes zeros to the halo of a tensor, and to nothing else, so that it needs no order with other writes.

    The threads share the planes: the parts of memory over all axes outside the first one with a halo.
    """
    layout, shape = place.tensor.layout, place.tensor.shape
    if layout is None or not any(before or after for before, after in layout.halo):
        return
    padded = [layout.halo_of(axis) != (0, 0) for axis in layout.order]
    first = padded.index(True)
    physical = layout.physical_shape(shape)
    plane_bytes = frame.scope.expr(product(physical[first:]) * place.tensor.dtype.itemsize)
    lo, hi = frame.share(frame.scope.expr(product(physical[:first])))
    with frame.f.loop(lo, hi) as plane:
        _zero(frame.scope.child(), place, frame.f.ptr(place.pointer, plane * plane_bytes), first)


def _zero(scope: Scope, place: Place, start: Value, depth: int) -> None:
    """Zeroes the halo of the axes from `depth` on, in memory order, for the part of the tensor at `start`."""
    layout, shape = place.tensor.layout, place.tensor.shape
    assert layout is not None
    f, axis = scope.f, layout.order[depth]
    before, after = layout.halo_of(axis)
    inner = product(layout.physical_shape(shape)[depth + 1 :]) * place.tensor.dtype.itemsize
    step = scope.expr(inner)
    rows = layout.outer_extent(shape, axis) - (before + after)
    if before:
        f.fill(start, 0, scope.expr(inner * before))
    if after:
        f.fill(f.ptr(start, scope.expr((rows + before) * inner)), 0, scope.expr(inner * after))
    if any(layout.halo_of(other) != (0, 0) for other in layout.order[depth + 1 :]):
        with f.loop(0, scope.expr(rows)) as row:
            _zero(scope.child(), place, f.ptr(start, (row + before) * step), depth + 1)
