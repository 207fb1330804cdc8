"""Indices of matrix products: which output element belongs to row m and column n, and what is linear in them.

Leading dims are merged into one row number where every access allows it, so that rows need no divisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hagane.core.symbolic import Expr, Sym, const, product
from hagane.ir.graph import Node, Value
from hagane.ir.layout import offset_of
from hagane.ir.region import Region, output_axes
from hagane.ir.registry import op_def
from hagane.ir.scalar import Axis, Index, Load, Reduce, Scalar
from hagane.kernels.llvm.affine import linear_coefficient, mentions
from hagane.ops.movement import reshape_index


def sym_of(axis: Axis) -> Expr:
    """The axis's symbol as an expression."""
    return Expr([((axis.sym,), 1)])


def output_index(region: Region, index: Index, output: int = 0) -> Index | None:
    """The index into an output of the element that the anchor's element at `index` ends up in.

    None unless pointwise ops, reshapes and transposes alone lie between.
    """
    assert region.anchor is not None
    found: dict[Value, Index | None] = dict.fromkeys(region.body.inputs)
    found[region.anchor.outputs[0]] = index
    for node in region.body.nodes:
        if node is region.anchor:
            continue
        moved = _moved(node, found)
        if moved is _BLOCKED:
            return None
        for value in node.outputs:
            found[value] = moved
    return found.get(region.body.outputs[output])


_BLOCKED: Index = (const(-1), const(-1), const(-1))


def _moved(node: Node, found: dict[Value, Index | None]) -> Index | None:
    """Where the anchor's element goes in the node's output; None if it doesn't depend on the anchor."""
    carried = [(v, found[v]) for v in node.inputs if v is not None and found.get(v) is not None]
    if not carried:
        return None
    value, index = carried[0]
    assert index is not None
    if node.op == "transpose":
        return tuple(index[p] for p in node.attrs["perm"])
    if node.op == "reshape":
        return reshape_index(node.output.shape, value.shape, index)
    same = all(v.shape == node.output.shape and i == index for v, i in carried)
    if op_def(node.op).kind != "pointwise" or not same:
        return _BLOCKED
    return index


def collapse(expr: Expr, axes: Sequence[Axis], flat: Expr) -> Expr | None:
    """expr with the axes' symbols replaced by their merged row number `flat`; None if that can't be done."""
    env = {axis.sym.name: const(0) for axis in axes if axis.extent == 1}
    expr = expr.substitute(env)
    rows = [axis for axis in axes if axis.extent != 1]
    if not any(mentions(expr, axis.sym.name) for axis in rows):
        return expr
    stride = linear_coefficient(expr, rows[-1].sym.name)
    if stride is None:
        return None
    wanted, rest = stride, expr
    for axis in reversed(rows):
        if linear_coefficient(expr, axis.sym.name) != wanted:
            return None
        rest = rest - wanted * sym_of(axis)
        wanted = wanted * axis.extent
    if any(mentions(rest, axis.sym.name) or mentions(stride, axis.sym.name) for axis in rows):
        return None
    return rest + stride * flat


@dataclass(frozen=True)
class Access:
    """An operand of a product in elements: base + rows * row + step * k; base mentions batch axes only."""

    operand: int
    base: Expr
    rows: Expr
    step: Expr


@dataclass(frozen=True)
class Product:
    """A matrix product taken apart: C[batch, rows, column] = sum over depth of A times B.

    index: the anchor's own index over all its axes, in order. B's rows are its columns.
    """

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    column: Axis
    depth: Axis
    index: Index
    a: Access
    b: Access

    @property
    def num_rows(self) -> Expr:
        return product(axis.extent for axis in self.rows)


def analyse(region: Region, merge_rows: bool) -> Product | None:
    """The region's product; None if its anchor is no matmul of strided operands.

    merge_rows: all leading dims are rows, because B doesn't vary with them; else the innermost one only.
    """
    anchor = region.anchor
    if anchor is None or anchor.op != "matmul" or anchor.input(1).rank < 2:
        return None
    axes = output_axes(anchor.output.shape)
    index = tuple(sym_of(axis) for axis in axes)
    reads: dict[int, Scalar] = {}

    def read(position: int, at: Index) -> Scalar:
        reads[position] = region.anchor_read(position, at)
        return reads[position]

    define = op_def("matmul").define
    assert define is not None
    total = define(anchor, read, index, 0)
    if not isinstance(total, Reduce):
        return None
    depth = total.axes[0]
    column, leading = axes[-1], axes[:-1]
    num_rows = len(leading) if merge_rows else min(1, anchor.input(0).rank - 1)
    batch, rows = leading[: len(leading) - num_rows], leading[len(leading) - num_rows :]
    a = access(region, reads[0], rows, depth)
    b = access(region, reads[1], (column,), depth)
    return None if a is None or b is None else Product(batch, rows, column, depth, index, a, b)


def access(region: Region, read: Scalar, rows: Sequence[Axis], depth: Axis) -> Access | None:
    """The strides of a load over merged rows and k; None if it is no load, or not linear in them."""
    if not isinstance(read, Load):
        return None
    tensor = region.operands[read.operand]
    offset = collapse(offset_of(tensor.layout, tensor.shape, read.index), rows, _ROW)
    if offset is None:
        return None
    stride, step = linear_coefficient(offset, "$r"), linear_coefficient(offset, depth.sym.name)
    if stride is None or step is None or mentions(stride, depth.sym.name):
        return None
    base = offset - stride * _ROW - step * sym_of(depth)
    return Access(read.operand, base, stride, step)


_ROW = Expr([((Sym("$r"),), 1)])
