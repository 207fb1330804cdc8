"""Recurrent layers rnn, gru and lstm: inputs times weights for all steps at once, then a walk over time.

The walk is serial over time; threads share directions and sequences. One step multiplies the states of a few
sequences with the packed recurrent weights, then applies the cell to vectors of hidden units. If there is one
step only, the walk multiplies the inputs itself.
"""

from __future__ import annotations

from hagane.codegen.llvm import Module, Value
from hagane.core.symbolic import Expr, const
from hagane.core.targets import CpuTarget
from hagane.ir.region import Region
from hagane.kernels.llvm.frame import Frame, dim_symbols
from hagane.kernels.llvm.gemm_tile import F32_BYTES, Tile, max_rows
from hagane.kernels.llvm.recurrent_problem import Layer, layer_of, packed_weights
from hagane.kernels.llvm.recurrent_writer import Block, Recurrence, step_buffers, write_projection
from hagane.kernels.tactic import (
    Argument,
    Input,
    KernelLaunch,
    Layouts,
    Lowering,
    Output,
    Packed,
    Params,
    Temporary,
)

_MOST_ROWS = 6
_SERIAL_PRODUCTS = 20_000
_OUTPUTS = ("y", "last_h", "last_c")


class Recurrent:
    """See the module's docstring."""

    name = "recurrent"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        return target.arch.startswith("x86") and _layer(region, target) is not None

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        return Layouts(tuple(None for _ in region.operands), tuple(None for _ in region.outputs))

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        layer = _layer(region, target)
        assert layer is not None
        if layer.length == 1:
            return [{"project": "inside"}, {"project": "before"}]
        return [{"project": "before"}, {"project": "inside"}]

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        layer = _layer(region, target)
        assert layer is not None
        inside = params["project"] == "inside"
        groups = tuple(_block(layer, target, gates) for gates in layer.groups())
        inputs = _block(layer, target, tuple(range(layer.num_gates)))
        dims = dim_symbols([*region.operands, *region.outputs])
        weights = packed_weights(layer, "w", inputs.gates, inputs.tile.vectors)
        launches = [] if inside else [_projection(layer, inputs, weights, dims)]
        launches.append(_walk(layer, groups, inputs, weights, dims, inside))
        gates = layer.length * layer.batch * (layer.directions * inputs.row_bytes)
        scratch = step_buffers(layer, groups, inputs, inside).total
        return Lowering(tuple(launches), () if inside else (gates,), const(scratch))


def _layer(region: Region, target: CpuTarget) -> Layer | None:
    return layer_of(region, target.vector_bytes // F32_BYTES)


def _block(layer: Layer, target: CpuTarget, gates: tuple[int, ...]) -> Block:
    """Panels of as many vectors as registers take, without padding many."""
    total = layer.num_blocks * len(gates)
    most = 4 if target.num_vector_registers == 32 else 2
    vectors = next(v for v in range(min(most, total), 0, -1) if -(-total // v) * v * 8 <= total * 9)
    rows = min(_MOST_ROWS, max_rows(target, most))
    return Block(gates, Tile(rows, vectors, layer.lanes), layer.num_blocks)


def _projection(layer: Layer, inputs: Block, weights: Packed, dims: tuple[Expr, ...]) -> KernelLaunch:
    args: tuple[Argument, ...] = (weights, Input(layer.operands["x"]), Temporary(0))

    def emit(module: Module, name: str) -> None:
        write_projection(Frame(module, name, len(args), dims), layer, inputs)

    work = layer.length * layer.batch * (layer.features * layer.hidden * layer.num_gates)
    small = work.is_const and work.value < _SERIAL_PRODUCTS
    return KernelLaunch("gates", emit, args, dims, serial=small)


def _walk(
    layer: Layer,
    groups: tuple[Block, ...],
    inputs: Block,
    weights: Packed,
    dims: tuple[Expr, ...],
    inside: bool,
) -> KernelLaunch:
    named: dict[str, Argument] = {
        f"r{n}": packed_weights(layer, "r", group.gates, group.tile.vectors) for n, group in enumerate(groups)
    }
    named |= {role: Input(k) for role, k in layer.operands.items() if role not in ("x", "w", "r")}
    named |= {name: Output(k) for k, name in enumerate(_OUTPUTS[: len(layer.region.outputs)])}
    named |= {"x": Input(layer.operands["x"]), "w": weights} if inside else {"gates": Temporary(0)}
    args = tuple(named.values())

    def emit(module: Module, name: str) -> None:
        frame = Frame(module, name, len(args), dims)
        pointers: dict[str, Value] = dict(zip(named, frame.pointers, strict=True))
        Recurrence(frame, layer, groups, inputs, pointers, inside).write()

    alone = layer.directions == 1 and layer.batch == 1
    return KernelLaunch(layer.op, emit, args, dims, serial=alone)


TACTIC = Recurrent()
