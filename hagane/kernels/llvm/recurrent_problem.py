"""A recurrent layer taken apart: sizes, operands by role, and how its weights are packed.

The columns of packed weights are ordered (block of hidden units, gate, unit in block), so that the gates of a
block of units lie side by side in what a product gives.
"""

from __future__ import annotations

from dataclasses import dataclass

from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr
from hagane.ir.graph import Value
from hagane.ir.region import Region
from hagane.kernels.packing import packing_of
from hagane.kernels.tactic import Packed
from hagane.ops.recurrent import NUM_GATES, Activation, activations, num_directions

ROLES = ("x", "w", "r", "bias", "lengths", "h", "c", "peepholes")


@dataclass(frozen=True)
class Layer:
    """hidden units in blocks of `lanes`; operands: numbers of the region's operands by role, if present."""

    region: Region
    op: str
    lanes: int
    hidden: int
    directions: int
    functions: tuple[tuple[Activation, ...], ...]
    operands: dict[str, int]
    length: Expr
    batch: Expr
    features: int

    @property
    def num_gates(self) -> int:
        return NUM_GATES[self.op]

    @property
    def num_blocks(self) -> int:
        return -(-self.hidden // self.lanes)

    @property
    def padded(self) -> int:
        """Hidden units in whole blocks."""
        return self.num_blocks * self.lanes

    @property
    def reset_first(self) -> bool:
        """True for a GRU whose hidden gate multiplies by a state that the reset gate was applied to."""
        return self.op == "gru" and not self.attr("linear_before_reset")

    def attr(self, name: str) -> object:
        assert self.region.anchor is not None
        return self.region.anchor.attrs.get(name)

    def backwards(self, direction: int) -> bool:
        return direction == 1 or self.attr("direction") == "reverse"

    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The gates of each product with the state within one step."""
        return ((0, 1), (2,)) if self.reset_first else (tuple(range(self.num_gates)),)

    def value(self, role: str) -> Value:
        return self.region.operands[self.operands[role]]


def layer_of(region: Region, lanes: int) -> Layer | None:
    """None if the region is no layer in f32 with constant weights."""
    anchor = region.anchor
    if anchor is None or anchor.op not in NUM_GATES or len(region.body.nodes) != 1:
        return None
    operands: dict[str, int] = {}
    for role, value in zip(ROLES, anchor.inputs, strict=False):
        if value is not None:
            if not region.is_operand(value):
                return None
            operands[role] = region.operand_of(value)
    values = {role: region.operands[k] for role, k in operands.items()}
    floats = [v for role, v in values.items() if role != "lengths"]
    if any(v.dtype is not DType.F32 for v in floats) or not (values["w"].is_const and values["r"].is_const):
        return None
    x = values["x"]
    if not values["w"].shape[2].is_const or anchor.attrs["hidden"] < 1:
        return None
    functions = tuple(activations(anchor.op, anchor.attrs))
    hidden, directions = int(anchor.attrs["hidden"]), num_directions(anchor.attrs)
    features = values["w"].shape[2].value
    return Layer(
        region, anchor.op, lanes, hidden, directions, functions, operands, x.shape[0], x.shape[1], features
    )


def packed_weights(layer: Layer, role: str, gates: tuple[int, ...], vectors: int) -> Packed:
    """[directions, panels, K, columns of a panel] from [directions, all gates * hidden, K]; panels of
    vectors."""
    value = layer.value(role)
    depth = value.shape[2].value
    d, hidden, lanes, blocks = layer.directions, layer.hidden, layer.lanes, layer.num_blocks
    split = packing_of(value).reshape(d, layer.num_gates, hidden, depth)
    if len(gates) != layer.num_gates:
        start, stop = (0, gates[0], 0, 0), (d, gates[-1] + 1, hidden, depth)
        split = split.take(start, stop, (1, 1, 1, 1))
    padded = split.pad_to(d, len(gates), layer.padded, depth).reshape(d, len(gates), blocks, lanes, depth)
    columns = padded.transpose(0, 2, 1, 3, 4).reshape(d, blocks * len(gates) * lanes, depth)
    panels = -(-blocks * len(gates) // vectors)
    whole = columns.pad_to(d, panels * vectors * lanes, depth).reshape(d, panels, vectors * lanes, depth)
    return whole.transpose(0, 1, 3, 2).finish()
