"""softmax(scale * q k^T + mask) v without ever storing all scores: blocks of keys, rows of queries.

A unit of work is (batch, head, block of query rows). Its keys are copied into panels, and its values if they
lie far apart. For each tile of rows the scores of a block of keys go to scratch memory, are masked and turned
into weights there, and are multiplied by the values; a running maximum and sum per row join the blocks.
"""

from __future__ import annotations

from hagane.codegen.llvm import Module
from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr
from hagane.core.targets import CpuTarget
from hagane.ir.region import Region
from hagane.ir.scalar import Reduce
from hagane.kernels.llvm.attention_problem import AttentionProblem, attention_problem
from hagane.kernels.llvm.attention_writer import AttentionTiles, AttentionWriter
from hagane.kernels.llvm.frame import Frame, dim_symbols
from hagane.kernels.llvm.gemm_epilogue import walk
from hagane.kernels.llvm.gemm_tile import F32_BYTES, Tile, max_rows
from hagane.kernels.llvm.scalars import Place
from hagane.kernels.tactic import Argument, Input, KernelLaunch, Layouts, Lowering, Output, Params

_SERIAL_PRODUCTS = 20_000
_MOST_ROWS = 6
# scores of a tile's rows that stay in the first-level cache beside a panel of keys
_KEYS_OF_BLOCK = (256, 512)
# bytes from one value row to the next up to which they are read in place
_DENSE_BYTES = 1024


class Attention:
    """See the module's docstring."""

    name = "attention"

    def supports(self, region: Region, target: CpuTarget) -> bool:
        anchor = region.anchor
        if anchor is None or anchor.op != "attention" or not target.arch.startswith("x86"):
            return False
        if any(v is not None and v.dtype is not DType.F32 for v in [*anchor.inputs[:3], anchor.output]):
            return False
        problem = attention_problem(region)
        return problem is not None and not any(isinstance(s, Reduce) for s in walk(problem.score))

    def layouts(self, region: Region, target: CpuTarget) -> Layouts:
        return Layouts(tuple(None for _ in region.operands), tuple(None for _ in region.outputs))

    def space(self, region: Region, target: CpuTarget) -> list[Params]:
        problem = attention_problem(region)
        assert problem is not None
        keys = problem.num_keys
        blocks = [k for k in _KEYS_OF_BLOCK if not keys.is_const or k < keys.value * 2] or [_KEYS_OF_BLOCK[0]]
        step = problem.v.step
        dense = problem.v.rows == 1 and step.is_const and step.value * F32_BYTES <= _DENSE_BYTES
        ways = [False, True] if dense else [True, False] if problem.v.rows == 1 else [True]
        return [{"keys": k, "copy_values": copy} for copy in ways for k in blocks]

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        problem = attention_problem(region)
        assert problem is not None
        tiles = _tiles(problem, target, params)
        dims = dim_symbols([*region.operands, *region.outputs])
        inputs, outputs = range(len(region.operands)), range(len(region.outputs))
        args: tuple[Argument, ...] = (*map(Input, inputs), *map(Output, outputs))

        def emit(module: Module, name: str) -> None:
            frame = Frame(module, name, len(args), dims)
            tensors = [*region.operands, *region.outputs]
            places = [Place(p, t) for p, t in zip(frame.pointers, tensors, strict=True)]
            AttentionWriter(frame, problem, tiles, places).write()

        launch = KernelLaunch("attention", emit, args, dims, serial=_is_small(problem))
        return Lowering((launch,), scratch_bytes=tiles.scratch(problem))


def _tiles(problem: AttentionProblem, target: CpuTarget, params: Params) -> AttentionTiles:
    lanes = target.vector_bytes // F32_BYTES
    most = 4 if target.num_vector_registers == 32 else 2
    wide = -(-problem.value_size // lanes)
    # as few panels of values as possible, none much wider than the others
    vectors = -(-wide // -(-wide // most))
    rows = min(_MOST_ROWS, max_rows(target, most), max_rows(target, vectors))
    keys = max(int(params["keys"]), most * lanes)
    return AttentionTiles(
        Tile(rows, most, lanes), Tile(rows, vectors, lanes), keys, bool(params["copy_values"])
    )


def _is_small(problem: AttentionProblem) -> bool:
    work: Expr = problem.num_keys * problem.rows.extent * (problem.head_size + problem.value_size)
    work = work * problem.batch.extent * problem.heads.extent
    return work.is_const and work.value < _SERIAL_PRODUCTS


TACTIC = Attention()
