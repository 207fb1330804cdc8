"""What happens to a tile's sums before they are stored: the region's epilogue, row by row, in registers.

Whatever doesn't vary with the row (a bias) is emitted once per column block of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence

from hagane.codegen.llvm import Function, Value
from hagane.core.symbolic import Expr
from hagane.ir.layout import offset_of
from hagane.ir.region import Region, index_symbol
from hagane.ir.scalar import Acc, Axis, Fn, IndexValue, Load, Reduce, Scalar, children
from hagane.kernels.llvm.affine import mentions
from hagane.kernels.llvm.frame import Scope
from hagane.kernels.llvm.gemm_index import collapse, output_index
from hagane.kernels.llvm.scalars import Place, ScalarEmitter, touches_memory

ROW = "$row"
# instructions of a simple function, and of one that is a polynomial
_CHEAP, _COSTLY = 1, 25
_SIMPLE = frozenset(
    (
        "add",
        "sub",
        "mul",
        "neg",
        "abs",
        "min",
        "max",
        "lt",
        "le",
        "gt",
        "ge",
        "eq",
        "ne",
        "and",
        "or",
        "not",
        "cast",
    )
)


class Epilogue:
    """The epilogues of all outputs, over merged rows. `axes` are the anchor's: batch axes, row axes, the
    column.

    fits: whether they can be emitted here at all. merged: whether row numbers alone suffice; otherwise each
    row's position along every row axis is computed.
    """

    def __init__(
        self, region: Region, row_axes: Sequence[Axis], index: tuple[Expr, ...], column: str
    ) -> None:
        self.region = region
        self.rows = tuple(row_axes)
        self.column = column
        extent = Expr([((), 1)])
        for axis in self.rows:
            extent = extent * axis.extent
        self.num_rows = extent
        self.row = index_symbol(ROW, extent)
        self.offsets: dict[int, Expr] = {}
        self.stores: list[Expr] = []
        self.scalars: list[Scalar] = []
        self.fits = self._read(index)
        self.merged = self.fits and self._merge()

    def _read(self, index: tuple[Expr, ...]) -> bool:
        for output, value in enumerate(self.region.outputs):
            place = output_index(self.region, index, output)
            if place is None:
                return False
            self.scalars.append(self.region.epilogue(place, output))
            self.stores.append(offset_of(value.layout, value.shape, place))
        return not any(isinstance(s, Reduce) for root in self.scalars for s in walk(root))

    def _merge(self) -> bool:
        """Notes offsets over merged rows; False if some access or index doesn't allow it."""
        offsets: dict[int, Expr] = {}
        for scalar in (s for root in self.scalars for s in walk(root)):
            if isinstance(scalar, IndexValue) and self._uses_rows(scalar.expr):
                return False
            if isinstance(scalar, Load):
                tensor = self.region.operands[scalar.operand]
                merged = self._collapse(offset_of(tensor.layout, tensor.shape, scalar.index))
                if merged is None:
                    return False
                offsets[id(scalar)] = merged
        stores = [self._collapse(store) for store in self.stores]
        if any(s is None for s in stores):
            return False
        self.offsets = offsets
        self.stores = [s for s in stores if s is not None]
        return True

    def _collapse(self, offset: Expr) -> Expr | None:
        return collapse(offset, self.rows, self.row)

    def _uses_rows(self, expr: Expr) -> bool:
        return any(mentions(expr, axis.sym.name) for axis in self.rows if axis.extent != 1)

    def operands(self) -> set[int]:
        """The region operands that the epilogues read."""
        return {s.operand for root in self.scalars for s in walk(root) if isinstance(s, Load)}

    def cost(self) -> int:
        """Estimated instructions for one vector of one row."""
        total = 0
        for scalar in {id(s): s for root in self.scalars for s in walk(root)}.values():
            if isinstance(scalar, Fn):
                total += _CHEAP if scalar.name in _SIMPLE else _COSTLY
            elif isinstance(scalar, Load):
                total += _CHEAP
        return total + len(self.stores)

    def begin(
        self,
        f: Function,
        scope: Scope,
        operands: Sequence[Place],
        first: Value,
        masks: Sequence[Value | None],
        lanes: int,
    ) -> list[Columns]:
        """Opens one column block after the other, from column `first` on; a mask says which lanes exist."""
        return [
            Columns(self, f, scope, operands, first + v * lanes, mask, lanes) for v, mask in enumerate(masks)
        ]


class Columns:
    """The epilogue of one vector of columns; `finish` stores one row of it."""

    def __init__(
        self,
        epilogue: Epilogue,
        f: Function,
        scope: Scope,
        operands: Sequence[Place],
        column: Value,
        mask: Value | None,
        lanes: int,
    ) -> None:
        self.epilogue, self.f, self.operands, self.mask, self.lanes = epilogue, f, operands, mask, lanes
        self.scope = scope.child()
        self.scope.bind(epilogue.column, column)
        shared = self._emitter(self.scope, None, {})
        for root in epilogue.scalars:
            self._hoist(root, shared)
        self.shared = shared.known()

    def _emitter(self, scope: Scope, acc: Value | None, preset: dict[int, Value]) -> ScalarEmitter:
        return ScalarEmitter(
            self.f,
            self.operands,
            scope,
            vector=self.epilogue.column,
            lanes=self.lanes,
            mask=self.mask,
            acc=acc,
            offsets=self.epilogue.offsets,
            preset=preset,
        )

    def _hoist(self, scalar: Scalar, emitter: ScalarEmitter) -> None:
        if not self._varies_by_row(scalar):
            if touches_memory(scalar):
                emitter.emit(scalar)
        elif isinstance(scalar, Fn):
            for child in children(scalar):
                self._hoist(child, emitter)

    def _varies_by_row(self, scalar: Scalar) -> bool:
        epilogue = self.epilogue
        for s in walk(scalar):
            if isinstance(s, Acc):
                return True
            if isinstance(s, IndexValue) and epilogue._uses_rows(s.expr):
                return True
            if isinstance(s, Load):
                offset = epilogue.offsets.get(id(s))
                if offset is not None and mentions(offset, ROW):
                    return True
                if offset is None and any(epilogue._uses_rows(e) for e in s.index):
                    return True
        return False

    def finish(self, row: Value, acc: Value, positions: Scope | None) -> None:
        """Stores the outputs of one row. positions: what row_positions gave, if rows aren't merged."""
        scope = (positions or self.scope).child()
        if positions is not None:
            scope.bind(self.epilogue.column, self.scope.lookup(self.epilogue.column))
        scope.bind(ROW, row)
        emitter = self._emitter(scope, acc, self.shared)
        outputs = self.operands[len(self.epilogue.region.operands) :]
        for root, store, place in zip(self.epilogue.scalars, self.epilogue.stores, outputs, strict=True):
            emitter.store(emitter.emit(root), place, store)


def row_positions(epilogue: Epilogue, scope: Scope, row: Value) -> Scope | None:
    """A scope with the row's position along every row axis; None if merged rows make that needless."""
    if epilogue.merged:
        return None
    positions = scope.child()
    bind_positions(positions, epilogue.rows, row)
    return positions


def bind_positions(scope: Scope, axes: Sequence[Axis], number: Value) -> None:
    """Binds the axes' symbols to the position that a number counts to, the last axis being the fastest."""
    for axis in reversed(axes[1:]):
        extent = scope.expr(axis.extent)
        scope.bind(axis.sym.name, number % extent)
        number = number // extent
    if axes:
        scope.bind(axes[0].sym.name, number)


def walk(scalar: Scalar, seen: set[int] | None = None) -> list[Scalar]:
    """All scalars of a DAG, each once."""
    seen = set() if seen is None else seen
    if id(scalar) in seen:
        return []
    seen.add(id(scalar))
    found = [scalar]
    for child in children(scalar):
        found += walk(child, seen)
    return found
