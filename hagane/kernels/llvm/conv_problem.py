"""What convolution tactics know about a region: the anchor's attributes as numbers, operands, layouts.

Everything is seen as two spatial axes: a convolution over one axis has a height of 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr, const
from hagane.core.targets import CpuTarget
from hagane.ir.graph import Node, Value
from hagane.ir.layout import Layout, blocked_channels
from hagane.ir.region import Region
from hagane.ir.registry import op_def
from hagane.kernels.tactic import ANY, AnyLayout, Layouts

Pair = tuple[int, int]


@dataclass(frozen=True)
class ConvProblem:
    """A convolution (or transposed one) over f32 with a constant weight. height, width: (input, output).

    x_position: operand number of the input. lanes: f32 elements of a vector, which is the block of channels.
    merged: how many of the anchor's groups make up one group here.
    """

    region: Region
    anchor: Node
    lanes: int
    x_position: int
    weight: Value
    bias: Value | None
    in_channels: int
    out_channels: int
    group: int
    kernel: Pair
    strides: Pair
    dilations: Pair
    pads_begin: Pair
    pads_end: Pair
    batch: Expr
    height: tuple[Expr, Expr]
    width: tuple[Expr, Expr]
    merged: int = 1

    @property
    def x(self) -> Value:
        return self.region.operands[self.x_position]

    @property
    def output(self) -> Value:
        return self.region.outputs[0]

    @property
    def rank(self) -> int:
        return self.output.rank

    @property
    def in_blocks(self) -> int:
        return -(-self.in_channels // self.lanes)

    @property
    def out_blocks(self) -> int:
        return -(-self.out_channels // self.lanes)

    @property
    def is_pointwise(self) -> bool:
        """A kernel of one element that touches each input element once."""
        return self.kernel == self.strides == (1, 1) and self.pads_begin == self.pads_end == (0, 0)

    def index(self, n: Expr, c: Expr, y: Expr, x: Expr) -> tuple[Expr, ...]:
        """A logical index of the input or output."""
        return (n, c, y, x) if self.rank == 4 else (n, c, x)

    def blocked(self, rows: Pair = (0, 0), columns: Pair = (0, 0)) -> Layout:
        """The blocked layout with a halo of (before, after) rows and columns."""
        spatial = (rows, columns) if self.rank == 4 else (columns,)
        return blocked_channels(self.rank, self.lanes, ((0, 0), (0, 0), *spatial))

    def columns_needed(self) -> Pair:
        """Columns of padding that windows read before and after the input's own."""
        before, after = max(self.pads_begin[1], 0), max(self.pads_end[1], 0)
        if self.width[0].is_const and self.width[1].is_const:
            reach = (self.kernel[1] - 1) * self.dilations[1] - self.pads_begin[1]
            last = (self.width[1].value - 1) * self.strides[1] + reach
            after = max(last - (self.width[0].value - 1), 0)
        return before, after

    def layouts(self, x_layout: Layout | None) -> Layouts:
        """Blocked outputs, and blocked operands where they have the output's shape."""
        inputs: list[Layout | AnyLayout | None] = []
        for position, value in enumerate(self.region.operands):
            if position == self.x_position:
                inputs.append(x_layout)
            elif value.is_const:
                inputs.append(None)
            else:
                inputs.append(self.blocked() if value.shape == self.output.shape else ANY)
        return Layouts(tuple(inputs), tuple(self.blocked() for _ in self.region.outputs))


def conv_problem(region: Region, target: CpuTarget, op: str = "conv") -> ConvProblem | None:
    """The region as a convolution of one or two spatial axes; None if the tactics here can't compute it."""
    anchor = region.anchor
    if anchor is None or anchor.op != op or anchor.output.rank not in (3, 4) or not _plain_region(region):
        return None
    x, weight = anchor.input(0), _constant(region, anchor.input(1))
    bias = anchor.optional(2)
    group = int(anchor.attrs["group"])
    shape = weight.static_shape
    if shape is None or not x.shape[1].is_const:
        return None
    numbers = [_pair(anchor, name) for name in ("strides", "dilations", "pads_begin", "pads_end")]
    if any(n is None for n in numbers):
        return None
    strides, dilations, begin, end = (n for n in numbers if n is not None)
    spatial = [
        (v.shape[2], v.shape[3]) if v.rank == 4 else (const(1), v.shape[2]) for v in (x, anchor.output)
    ]
    return ConvProblem(
        region,
        anchor,
        target.vector_bytes // 4,
        region.operand_of(x),
        weight,
        None if bias is None else _constant(region, bias),
        x.shape[1].value,
        shape[0] if op == "conv" else shape[1] * group,
        group,
        (shape[-2], shape[-1]) if len(shape) == 4 else (1, shape[-1]),
        strides,
        dilations,
        begin,
        end,
        x.shape[0],
        (spatial[0][0], spatial[1][0]),
        (spatial[0][1], spatial[1][1]),
    )


def _constant(region: Region, value: Value) -> Value:
    """The value outside of the body that a weight or bias is; constants of one element lie in the body."""
    return region.operands[region.operand_of(value)] if region.is_operand(value) else value


def _pair(anchor: Node, name: str) -> Pair | None:
    """An attribute of the spatial axes as two numbers; None if it is symbolic."""
    values: list[int] = []
    for value in anchor.attrs[name]:
        if isinstance(value, Expr):
            if not value.is_const:
                return None
            value = value.value
        values.append(int(value))
    neutral = 1 if name in ("strides", "dilations") else 0
    return (values[0], values[1]) if len(values) == 2 else (neutral, values[0])


def _plain_region(region: Region) -> bool:
    """f32 throughout, constant weight and bias, nothing before the anchor, pointwise ops after it."""
    anchor = region.anchor
    assert anchor is not None
    values = [*region.operands, *region.outputs, anchor.output]
    if any(v.dtype is not DType.F32 for v in values):
        return False
    if not region.is_operand(anchor.input(0)):
        return False
    if not all(_constant(region, v).is_const for v in anchor.inputs[1:] if v is not None):
        return False
    if any(v.shape != anchor.output.shape for v in region.outputs):
        return False
    return all(op_def(n.op).kind == "pointwise" for n in _after(region.body.nodes, anchor))


def _after(nodes: list[Node], anchor: Node) -> Iterator[Node]:
    """The nodes that depend on the anchor."""
    reached = set(anchor.outputs)
    for node in nodes:
        if node is not anchor and any(v in reached for v in node.inputs if v is not None):
            reached.update(node.outputs)
            yield node


def unmisched(target: CpuTarget) -> bool:
    """Whether to compile without LLVM's machine scheduler.

    Of the register tiles proposed here, none spills without it on AVX-512, and none with it on AVX2.
    """
    return target.num_vector_registers == 32


def near_equal(total: int, largest: int) -> list[tuple[int, int]]:
    """(size, count) of the fewest parts of at most `largest` that make up a total, sizes within 1."""
    parts = -(-total // largest)
    size, rest = divmod(total, parts)
    return [(s, n) for s, n in ((size + 1, rest), (size, parts - rest)) if n]
