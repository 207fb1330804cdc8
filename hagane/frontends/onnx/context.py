"""What a converter works with: a node's inputs as values, its attributes, and the emitter to write with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onnx import NodeProto

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, IntLike, const, product
from hagane.frontends.onnx.attributes import Attributes
from hagane.frontends.onnx.emit import Emitter
from hagane.frontends.onnx.scope import Entry, OptionalEntry, Scope, SequenceEntry
from hagane.ir.graph import Array, Value

if TYPE_CHECKING:
    from hagane.frontends.onnx.importer import Importer, Place


class NodeContext:
    """One node of the model while it is converted."""

    def __init__(
        self,
        importer: Importer,
        place: Place,
        emit: Emitter,
        proto: NodeProto,
        name: str,
        entries: list[Entry | None],
        attributes: Attributes,
    ) -> None:
        self.importer = importer
        self.place = place
        self.emit = emit
        self.proto = proto
        self.name = name
        self.entries = entries
        self.attrs = attributes

    @property
    def op_type(self) -> str:
        return self.proto.op_type

    @property
    def opset(self) -> int:
        """The version of the node's own domain."""
        return self.place.opset(self.proto.domain)

    @property
    def scope(self) -> Scope:
        return self.place.scope

    @property
    def num_inputs(self) -> int:
        return len(self.entries)

    @property
    def num_outputs(self) -> int:
        """Outputs up to the last one that has a name."""
        used = [k for k, name in enumerate(self.proto.output) if name]
        return max(used, default=-1) + 1

    def has_output(self, position: int) -> bool:
        return position < len(self.proto.output) and bool(self.proto.output[position])

    def entry(self, position: int) -> Entry | None:
        """What stands at an input: a value, a sequence, an optional, or nothing."""
        return self.entries[position] if position < len(self.entries) else None

    def optional(self, position: int) -> Value | None:
        """An input that may be absent."""
        found = self.entry(position)
        if isinstance(found, OptionalEntry) and isinstance(found.item, Value):
            found = found.item
        if isinstance(found, (SequenceEntry, OptionalEntry)):
            raise ModelError(f"input {position} is a sequence or an optional, a tensor is wanted")
        return found

    def input(self, position: int) -> Value:
        """An input that must be there. Raises: ModelError."""
        found = self.optional(position)
        if found is None:
            raise ModelError(f"{self.op_type} has {self.num_inputs} inputs, input {position} is missing")
        return found

    @property
    def inputs(self) -> list[Value]:
        """All inputs, which must be there."""
        return [self.input(k) for k in range(self.num_inputs)]

    def expect_inputs(self, least: int, most: int) -> None:
        """Raises: ModelError unless the number of inputs is in the range."""
        if not least <= self.num_inputs <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise ModelError(f"{self.op_type} takes {wanted} inputs, it has {self.num_inputs}")

    def const_value(self, position: int) -> Array | None:
        """The array of an input whose content is known, None if it is not (or the input is absent)."""
        value = self.optional(position)
        return None if value is None else self.array_of(value)

    def array_of(self, value: Value) -> Array | None:
        """The content of a value, if it is known while importing."""
        return self.emit.knowledge.array(value)

    def known(self, position: int, what: str) -> Array:
        """The content of an input. Raises: ModelError if it is computed at run time."""
        array = self.const_value(position)
        if array is None:
            self.input(position)
            raise ModelError(
                f"{self.op_type} must know its {what} at import, but they are computed at run time",
                next_step="export the model with constant " + what,
            )
        return array

    def known_ints(self, position: int, what: str) -> tuple[int, ...]:
        """Integers of an input. Raises: ModelError if they are computed at run time."""
        return tuple(int(v) for v in self.known(position, what).reshape(-1))

    def elements(self, position: int) -> tuple[Expr, ...] | None:
        """What is known of a small integer input's content."""
        value = self.optional(position)
        return None if value is None else self.emit.elements(value)

    def sizes(
        self, position: int, what: str, limit: Expr | None = None, signed: bool = False
    ) -> tuple[Expr, ...]:
        """The content of a small integer input, as symbols bound at run time where it isn't known.

        limit, signed: what is known of such symbols. Raises: ModelError if not even the length is known.
        """
        value = self.input(position)
        if not value.dtype.is_int:
            raise ModelError(f"the {what} of {self.op_type} should be integers, not {value.dtype}")
        found = self.emit.bound_elements(value, f"{self.name}_{what}", limit, signed)
        if found is None:
            raise ModelError(
                f"the {what} of {self.op_type} have an unknown length, so the result's rank is unknown",
                next_step="give the input that they come from fixed dims with shapes=",
            )
        return found

    def axis(self, number: int, rank: int) -> int:
        """An axis number counted from the front. Raises: ShapeError."""
        if not -rank <= number < rank:
            raise ShapeError(f"axis {number} of {self.op_type} is out of range for rank {rank}")
        return number % rank

    def axes(self, numbers: Sequence[int], rank: int) -> tuple[int, ...]:
        """Axis numbers from the front, none twice. Raises: ShapeError."""
        found = tuple(self.axis(a, rank) for a in numbers)
        if len(set(found)) != len(found):
            raise ShapeError(f"{self.op_type} names an axis twice: {list(numbers)}")
        return found

    def rank_at_least(self, value: Value, rank: int) -> None:
        """Raises: ShapeError."""
        if value.rank < rank:
            raise ShapeError(f"{self.op_type} takes a tensor of rank {rank} or more, not {value.type}")

    def op(self, op: str, *inputs: Value | None, **attrs: Any) -> Value:
        """Appends an IR node of one output."""
        return self.emit.op(op, *inputs, **attrs)

    def scalar_like(self, value: Value, number: float | int) -> Value:
        """A rank-0 constant of value's type."""
        return self.emit.scalar(number, value.dtype)

    def full_index(self, rank: int, axis: int, value: IntLike, other: IntLike = 0) -> tuple[IntLike, ...]:
        """`value` at one axis and `other` at the rest."""
        return tuple(value if k == axis else other for k in range(rank))

    def count(self, value: Value) -> Expr:
        """Number of elements."""
        return product(value.shape)

    def zeros(self, dtype: DType, shape: Sequence[IntLike]) -> Value:
        """A tensor of zeros."""
        return self.emit.filled(self.emit.scalar(0, dtype), shape)

    def ones_shape(self, rank: int) -> tuple[Expr, ...]:
        return (const(1),) * rank
