"""How much work a region is: operations and bytes, as expressions, for reports and rooflines."""

from __future__ import annotations

from hagane.core.symbolic import Expr, const, product
from hagane.ir.graph import Node
from hagane.ir.region import Region


def region_bytes(region: Region) -> Expr:
    """Bytes of all operands and outputs, each counted once."""
    total = const(0)
    for value in [*region.operands, *region.outputs]:
        total = total + product(value.shape) * value.dtype.itemsize
    return total


def region_flops(region: Region) -> Expr:
    """Arithmetic operations: two for each product of a contraction, one for each element of other ops."""
    total = const(0)
    for node in region.body.nodes:
        total = total + _flops(node)
    return total


def _flops(node: Node) -> Expr:
    elements = product(node.output.shape)
    if node.op == "matmul":
        return elements * node.input(0).shape[-1] * 2
    if node.op == "conv":
        return elements * product(node.input(1).shape[1:]) * 2
    if node.op == "conv_transpose":
        return product(node.input(0).shape) * product(node.input(1).shape[1:]) * 2
    if node.op in ("reshape", "transpose", "slice", "identity"):
        return const(0)
    if node.op.startswith("reduce") or "pool" in node.op:
        return product(node.input(0).shape)
    return elements
