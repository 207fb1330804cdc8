"""The last step of convolution kernels: accumulators through the region's epilogue into the blocked outputs.

Element offsets of all that the epilogue reads or writes are taken apart once per kernel. Where they are
linear in channel block and position, a tile computes each once and its accumulators add constants to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hagane.codegen.llvm import Value
from hagane.core.symbolic import Expr, const, sym
from hagane.ir.graph import Type
from hagane.ir.graph import Value as Tensor
from hagane.ir.region import index_symbol
from hagane.ir.scalar import Acc, Fn, Lit, Load, Scalar, children
from hagane.kernels.llvm.affine import linear_coefficient, mentions
from hagane.kernels.llvm.conv_problem import ConvProblem
from hagane.kernels.llvm.frame import Frame, Scope
from hagane.kernels.llvm.scalars import Place, ScalarEmitter
from hagane.kernels.packing import packing_of
from hagane.kernels.tactic import Argument, Input, Output

_MOVING = ("cb", "y", "x")


@dataclass(frozen=True)
class _Access:
    """An element offset and its coefficients in channel block, row, column and lane; None if not linear."""

    offset: Expr
    steps: tuple[Expr, Expr, Expr] | None
    lane: Expr | None


def epilogue_arguments(problem: ConvProblem) -> list[Argument]:
    """Kernel arguments of the epilogue: the operands that it may read, then the outputs.

    Constants that vary along the channels alone are padded to whole blocks, so that vector loads stay inside.
    """
    region = problem.region
    arguments: list[Argument] = []
    for position in epilogue_positions(problem):
        padded = _padded_channels(problem, region.operands[position])
        if padded is None:
            arguments.append(Input(position))
        else:
            shape = [int(d.value) for d in padded.shape]
            arguments.append(packing_of(region.operands[position]).pad_to(*shape).finish())
    return arguments + [Output(k) for k in range(len(region.outputs))]


def epilogue_positions(problem: ConvProblem) -> list[int]:
    """Operands that the epilogue reads: those that are no input of the anchor, or are one and used again."""
    found = {load.operand for scalar in _scalars(problem) for load in _loads(scalar)}
    return sorted(found)


def _padded_channels(problem: ConvProblem, value: Tensor) -> Tensor | None:
    """A stand-in, filled up to whole blocks, for a constant that has the channels as its only long axis."""
    axis = value.rank - problem.rank + 1
    shape = value.static_shape
    if not value.is_const or shape is None or axis < 0 or shape[axis] != problem.out_channels:
        return None
    if any(d != 1 for k, d in enumerate(shape) if k != axis):
        return None
    full = tuple(const(problem.out_blocks * problem.lanes if k == axis else 1) for k in range(value.rank))
    return Tensor(value.name, Type(value.dtype, full))


def _symbols(problem: ConvProblem) -> dict[str, Expr]:
    return {
        "n": index_symbol("n", problem.batch),
        "cb": index_symbol("cb", const(problem.out_blocks)),
        "y": index_symbol("y", problem.height[1]),
        "x": index_symbol("x", problem.width[1]),
        "l": sym("l", 0, problem.lanes - 1),
    }


def _index(problem: ConvProblem) -> tuple[Expr, ...]:
    s = _symbols(problem)
    return problem.index(s["n"], s["cb"] * problem.lanes + s["l"], s["y"], s["x"])


def _scalars(problem: ConvProblem) -> list[Scalar]:
    index = _index(problem)
    return [problem.region.epilogue(index, k) for k in range(len(problem.region.outputs))]


def _walk(scalar: Scalar, seen: dict[int, Scalar]) -> None:
    if id(scalar) not in seen:
        seen[id(scalar)] = scalar
        for child in children(scalar):
            _walk(child, seen)


def _loads(scalar: Scalar) -> list[Load]:
    seen: dict[int, Scalar] = {}
    _walk(scalar, seen)
    return [s for s in seen.values() if isinstance(s, Load)]


def epilogue_is_simple(problem: ConvProblem) -> bool:
    """True if the epilogue has arithmetic and loads only: what these kernels write in registers."""
    for scalar in _scalars(problem):
        seen: dict[int, Scalar] = {}
        _walk(scalar, seen)
        if not all(isinstance(s, (Acc, Fn, Lit, Load)) for s in seen.values()):
            return False
    return True


class Writeback:
    """Writes accumulators of one kernel; `pointers` are those of `epilogue_arguments`, in its order."""

    def __init__(self, frame: Frame, problem: ConvProblem, pointers: list[Value]) -> None:
        self.frame, self.f, self.problem = frame, frame.f, problem
        self.scalars = _scalars(problem)
        positions = epilogue_positions(problem)
        self.outputs = [
            Place(p, v) for p, v in zip(pointers[len(positions) :], problem.region.outputs, strict=True)
        ]
        self.operands = self._places(dict(zip(positions, pointers, strict=False)))
        self.loads = list({id(load): load for s in self.scalars for load in _loads(s)}.values())
        self.accesses = [self._access(self.operands[load.operand], load.index) for load in self.loads]
        self.stores = [self._access(place, _index(problem)) for place in self.outputs]
        self.linear = all(a.steps is not None and a.lane is not None for a in self.accesses + self.stores)
        self._partial = problem.out_channels % problem.lanes != 0
        self._reads_past = self._partial and any(self._reads_past_end(load) for load in self.loads)

    def _places(self, pointers: dict[int, Value]) -> list[Place]:
        null = self.f.const("ptr", 0)
        places = []
        for position, value in enumerate(self.problem.region.operands):
            tensor = _padded_channels(self.problem, value) or value
            places.append(Place(pointers.get(position, null), tensor))
        return places

    def _access(self, place: Place, index: tuple[Expr, ...]) -> _Access:
        offset = place.offset(index)
        found = [linear_coefficient(offset, name) for name in _MOVING]
        steps = [
            c for c in found if c is not None and not any(mentions(c, name) for name in (*_MOVING, "l", "n"))
        ]
        lane = linear_coefficient(offset, "l")
        constant_lane = lane if lane is not None and lane.is_const else None
        return _Access(offset, (steps[0], steps[1], steps[2]) if len(steps) == 3 else None, constant_lane)

    def _reads_past_end(self, load: Load) -> bool:
        """True if a whole vector at the last block of channels may reach past the operand."""
        place = self.operands[load.operand]
        varies = any(mentions(e, "l") for e in load.index)
        blocked = place.tensor.layout is not None and bool(place.tensor.layout.blocks)
        padded = place.tensor is not self.problem.region.operands[load.operand]
        return varies and not blocked and not padded

    def tile(self, n: Value, block: Value, y: Value, x: Value) -> TileWriter:
        """A writer of accumulators near a position; call it in the block where its stores go."""
        return TileWriter(self, n, block, y, x)


class TileWriter:
    """Stores accumulators at small constant distances from a first channel block, row and column."""

    def __init__(self, writeback: Writeback, n: Value, block: Value, y: Value, x: Value) -> None:
        self.writeback, self.f = writeback, writeback.f
        self.scope = writeback.frame.scope.child()
        self._at = {"n": n, "cb": block, "y": y, "x": x}
        self._bind(self.scope, (0, 0, 0))
        self._bases: dict[Expr, Expr] = {}
        self._masks: dict[int, Value] = {}
        self._lane = sym("l", 0, writeback.problem.lanes - 1)

    def _bind(self, scope: Scope, delta: tuple[int, int, int]) -> None:
        scope.bind("l", self.f.const("i64", 0))
        scope.bind("n", self._at["n"])
        for name, distance in zip(_MOVING, delta, strict=True):
            scope.bind(name, self._at[name] + distance)

    def store(self, acc: Value, block: int = 0, row: int = 0, column: int = 0) -> None:
        """Writes one vector of channels of all outputs."""
        writer, delta = self.writeback, (block, row, column)
        scope = self.scope
        if not writer.linear:
            scope = writer.frame.scope.child()
            self._bind(scope, delta)
        offsets = {
            id(load): self._offset(access, delta)
            for load, access in zip(writer.loads, writer.accesses, strict=True)
        }
        mask = self._lanes_used(block) if writer._partial else None
        emitter = ScalarEmitter(
            self.f,
            writer.operands,
            scope,
            vector="l",
            lanes=writer.problem.lanes,
            mask=mask if writer._reads_past else None,
            acc=acc,
            offsets=offsets,
        )
        for scalar, place, access in zip(writer.scalars, writer.outputs, writer.stores, strict=True):
            value = emitter.fit(emitter.emit(scalar), acc.type)
            if mask is not None:
                value = self.f.select(mask, value, self.f.const(acc.type, 0))
            offset = scope.expr(self._offset(access, delta)) * place.tensor.dtype.itemsize
            self.f.store(value, place.pointer, offset)

    def _lanes_used(self, block: int) -> Value:
        """The lanes of a channel block that hold channels."""
        if block not in self._masks:
            problem = self.writeback.problem
            left = (self._at["cb"] + block) * -problem.lanes + problem.out_channels
            self._masks[block] = self.f.mask_below(left, problem.lanes)
        return self._masks[block]

    def _offset(self, access: _Access, delta: tuple[int, int, int]) -> Expr:
        if not self.writeback.linear:
            return access.offset
        assert access.steps is not None and access.lane is not None
        offset = self._base(access.offset) + self._lane * access.lane
        for step, distance in zip(access.steps, delta, strict=True):
            offset = offset + step * distance
        return offset

    def _base(self, offset: Expr) -> Expr:
        """A symbol for the offset at the tile's first element, computed once."""
        if offset not in self._bases:
            name = f"base{len(self._bases)}"
            self.scope.bind(name, self.scope.expr(offset))
            self._bases[offset] = sym(name)
        return self._bases[offset]
