"""topk: the k best elements along an axis, in order; ties go to the lower position, NaN counts as the
greatest.

Each row keeps its best k in a heap whose root is the worst of them. Elements are compared as integers that
are ordered as the numbers are.
"""

from __future__ import annotations

from hagane.codegen.llvm import Function, Module, Value, Var
from hagane.core.dtypes import DType
from hagane.core.symbolic import to_expr
from hagane.core.targets import CpuTarget
from hagane.ir.region import Region, index_symbol
from hagane.kernels.llvm.elements import (
    Elements,
    all_arguments,
    all_dims,
    axes_of,
    extent_of,
    is_plain,
    plain_layouts,
    positions,
)
from hagane.kernels.llvm.frame import Scope
from hagane.kernels.llvm.gemm_index import sym_of
from hagane.kernels.tactic import KernelLaunch, Layouts, Lowering, Params
from hagane.ops.shapes import normal_axis

_ALONG = "$along"
_ENTRY_BYTES = 16
_MOST = (1 << 63) - 1


class TopK:
    """See the module's docstring."""

    name = "topk"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        return is_plain(region, "topk") and region.outputs[0].dtype is not DType.STRING

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        return plain_layouts(region, target)

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        return [{}]

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        assert region.anchor is not None
        k = to_expr(region.anchor.attrs["k"])

        def emit(module: Module, name: str) -> None:
            _Writer(Elements(module, name, region)).write()

        launch = KernelLaunch("topk", emit, all_arguments(region), all_dims(region))
        return Lowering((launch,), scratch_bytes=k * _ENTRY_BYTES)


def sort_key(f: Function, value: Value, dtype: DType) -> Value:
    """An i64 that is ordered as the values are; equal for 0.0 and -0.0, the greatest for NaN."""
    if dtype.is_float:
        kind = "f64" if dtype is DType.F64 else "f32"
        value = f.cast(value, kind)
        bits = f.float_bits(value)
        width = bits.type.bits
        # of negative numbers all bits but the sign are reversed
        ordered = bits ^ (bits.ashr(width - 1) & ((1 << (width - 1)) - 1))
        ordered = f.cast(f.select(value.eq(0.0), f.const(bits.type, 0), ordered), "i64")
        return f.select(f.is_nan(value), f.const("i64", _MOST), ordered)
    wide = f.cast(value, "i64", signed=dtype.is_signed)
    return wide ^ (-1 << 63) if dtype is DType.U64 else wide


class _Writer:
    """Writes the kernel: entries (key, position) of the heap lie in scratch memory."""

    def __init__(self, elements: Elements) -> None:
        self.elements, self.f, self.region = elements, elements.f, elements.region
        assert self.region.anchor is not None
        self.anchor = self.region.anchor
        self.x = self.anchor.input(0)
        self.axis = normal_axis(self.anchor.attrs["axis"], self.x.rank)
        axes = axes_of(self.x.shape)
        self.others = (*axes[: self.axis], *axes[self.axis + 1 :])
        self.inner = axes[self.axis + 1 :]
        self.along = index_symbol(_ALONG, self.x.shape[self.axis])
        index = [sym_of(axis) for axis in axes]
        index[self.axis] = self.along
        self.index = tuple(index)
        self.heap = elements.frame.scratch

    def write(self) -> None:
        f, scope = self.f, self.elements.frame.scope
        count = scope.expr(self.x.shape[self.axis])
        k = f.imin(scope.expr(to_expr(self.anchor.attrs["k"])), count)
        for axis in self.others:
            scope.expr(axis.extent)
        inner = scope.expr(extent_of(self.inner))
        lo, hi = self.elements.frame.share(scope.expr(extent_of(self.others)))
        with f.if_(k.gt(0)), f.loop(lo, hi) as row:
            here = positions(scope, self.others, row)
            with f.loop(0, k) as i:
                self._store(i, self._key(here, i), i)
            with f.loop(0, k // 2) as i:
                node = k // 2 - 1 - i
                self._sift(node, k, *self._entry(node))
            with f.loop(k, count) as i:
                key = self._key(here, i)
                worst, _ = self._entry(f.const("i64", 0))
                with f.if_(key.gt(worst)):  # of equal keys the earlier position stays
                    self._sift(f.const("i64", 0), k, key, i)
            self._sort(k)
            start = row // inner * (k * inner) + row % inner
            with f.loop(0, k) as i:
                _, position = self._entry(i)
                at = here.child()
                at.bind(_ALONG, position)
                value = self.elements.read(0, self.index, at)
                self.elements.write(value, start + i * inner, 0)
                self.elements.write(position, start + i * inner, 1)

    def _key(self, scope: Scope, i: Value) -> Value:
        at = scope.child()
        at.bind(_ALONG, i)
        key = sort_key(self.f, self.elements.read(0, self.index, at), self.x.dtype)
        return key if self.anchor.attrs["largest"] else ~key

    def _entry(self, node: Value) -> tuple[Value, Value]:
        f = self.f
        place = f.ptr(self.heap, node * _ENTRY_BYTES)
        return f.load("i64", place), f.load("i64", place, 8)

    def _store(self, node: Value, key: Value, position: Value) -> None:
        f = self.f
        place = f.ptr(self.heap, node * _ENTRY_BYTES)
        f.store(key, place)
        f.store(position, place, 8)

    def _worse(self, key: Value, position: Value, other: Value, other_position: Value) -> Value:
        """Whether an entry ranks behind another."""
        return key.lt(other) | (key.eq(other) & position.gt(other_position))

    def _sift(self, root: Value, size: Value, key: Value, position: Value) -> None:
        """Puts an entry in the place of the root of a heap of `size` entries, and worse ones above it."""
        f = self.f
        node, going = Var(f, root.type, root), Var(f, size.type, 1)
        with f.while_(lambda: going.value.ne(0) & (node.value * 2 + 1).lt(size)):
            left = node.value * 2 + 1
            right = f.imin(left + 1, size - 1)
            a, b = self._entry(left), self._entry(right)
            takes_right = self._worse(*b, *a)
            child_key, child_position = f.select(takes_right, b[0], a[0]), f.select(takes_right, b[1], a[1])
            moves = self._worse(child_key, child_position, key, position)
            with f.if_else(moves) as (then, otherwise):
                with then:
                    self._store(node.value, child_key, child_position)
                    node.set(f.select(takes_right, right, left))
                with otherwise:
                    going.set(0)
        self._store(node.value, key, position)

    def _sort(self, k: Value) -> None:
        """Turns the heap into a list, best first: the worst goes to the end, again and again."""
        f = self.f
        with f.loop(1, k) as done:
            last = k - done
            worst = self._entry(f.const("i64", 0))
            moved = self._entry(last)
            self._store(last, *worst)
            self._sift(f.const("i64", 0), last, *moved)


TACTIC = TopK()
