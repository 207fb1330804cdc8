"""Parameters of conv_direct, ordered by a model of its inner loop: products, loads, tails and traffic."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import cast

from hagane.core.symbolic import Expr
from hagane.core.targets import CpuTarget
from hagane.kernels.llvm.conv_problem import ConvProblem, near_equal
from hagane.kernels.tactic import Params

# An FMA takes 4 cycles and two start in each: fewer accumulators than 8 leave the units idle.
_FMA_LATENCY = 4.0
_CACHE_BYTES = 1 << 19  # half of a common second-level cache: what may stay there between two uses
_L1_BYTES = 32 << 10
_L2_BYTES_PER_CYCLE = 24.0  # measured: 6 vectors by 4 columns, 32 bytes a cycle, lose a fifth
# what an unknown extent is taken for: the OCR networks' rows have 40 to 320 columns
_TYPICAL_EXTENT = 80
MOST_DYNAMIC_COLUMNS = 14  # each number of columns has code of its own if the width is unknown


@dataclass(frozen=True)
class DirectParams:
    """columns, vectors: the register tile. groups_inside: all output channels of a row before the next row.

    flat: tiles run over the plane as one row, where the kernel is 1x1. unroll: input channels written out;
    from 4 on LLVM loads the weights of several at once, for which there are no registers.
    """

    vectors: int
    columns: int
    groups_inside: bool
    flat: bool
    unroll: int

    @staticmethod
    def read(params: Params) -> DirectParams:
        """The parameters from a dictionary, as the tuner keeps them."""
        return DirectParams(
            int(params["vectors"]),
            int(params["columns"]),
            bool(params["groups_inside"]),
            bool(params["flat"]),
            int(params["unroll"]),
        )

    def write(self) -> Params:
        return cast(Params, asdict(self))


def most_columns(vectors: int, target: CpuTarget) -> int:
    """Columns of the widest tile that stays in registers, beside the weights and one broadcast element."""
    most = (target.num_vector_registers - 1 - vectors) // vectors
    # of 16 registers LLVM needs some more than that for a single vector
    return min(most, 11) if target.num_vector_registers == 16 else most


def tile_cycles(columns: int, vectors: int, depth: int = 0, lanes: int = 16) -> float:
    """Cycles of one step of a tile's inner loop: products, loads, or the latency of the sums.

    depth: steps of the loop; weights that are too many for the first-level cache come from the second.
    """
    step = max(columns * vectors / 2, (columns + vectors) / 2, _FMA_LATENCY)
    streamed = vectors * lanes * 4
    return max(step, streamed / _L2_BYTES_PER_CYCLE) if streamed * depth > _L1_BYTES else step


def whole_rows(problem: ConvProblem, target: CpuTarget) -> bool:
    """True if every tile is a whole row, so that padding columns are skipped and no halo is read."""
    width = problem.width[1]
    if not (problem.width[0].is_const and width.is_const) or problem.kernel[1] == 1:
        return False
    return width.value <= most_columns(2, target)


def direct_space(problem: ConvProblem, target: CpuTarget) -> list[Params]:
    """Parameter sets, the best guess first: the best tiles, each with both orders of the loops."""
    per_group = problem.out_blocks // problem.group
    flats = [False]
    if problem.is_pointwise and problem.rank == 4:
        flats = [True, False]
    choices: list[tuple[float, DirectParams]] = []
    for vectors in range(1, min(per_group, 8) + 1):
        columns = most_columns(vectors, target)
        if not problem.width[1].is_const:
            columns = min(columns, MOST_DYNAMIC_COLUMNS)
        if columns < 1 or (whole_rows(problem, target) and columns < problem.width[1].value):
            continue
        for flat in flats:
            cost = _tile_cost(problem, vectors, columns, flat)
            for inside in (False, True):
                traffic = _traffic_cost(problem, vectors, inside)
                choices.append((cost + traffic, DirectParams(vectors, columns, inside, flat, 2)))
    choices.sort(key=lambda c: c[0])
    return [p.write() for _, p in choices[:8]]


def _extent(dim: Expr) -> int:
    return dim.value if dim.is_const else _TYPICAL_EXTENT


def _tile_cost(problem: ConvProblem, vectors: int, columns: int, flat: bool) -> float:
    """Cycles for one image, on one core with everything in the first-level cache but large weights."""
    height, width = _extent(problem.height[1]), _extent(problem.width[1])
    rows, extent = (1, height * width) if flat else (height, width)
    taps = problem.kernel[0] * problem.kernel[1]
    depth = problem.in_channels // problem.group * taps
    total = 0.0
    for group, num_groups in near_equal(problem.out_blocks // problem.group, vectors):
        for size, count in near_equal(extent, columns):
            step = tile_cycles(size, group, depth, problem.lanes)
            # per tile: the epilogue, a branch or two, the start of the pipeline
            wrapped = size * 2.0 if flat and not _is_flat(problem) else 0.0
            total += num_groups * count * rows * (step * depth + 2 * size * group + wrapped + 30)
    return total * problem.group


def _is_flat(problem: ConvProblem) -> bool:
    """True if input and output are known to have no halo."""
    layouts = (problem.x.layout, problem.output.layout)
    return all(layout is not None and not layout.halo for layout in layouts)


def _traffic_cost(problem: ConvProblem, vectors: int, inside: bool) -> float:
    """Cycles spent on what the second-level cache can't keep between two uses, at 8 bytes a cycle.

    With groups inside, a thread's part of the input is of the rows that it wrote itself in the layer before,
    if all layers do so; with groups outside each thread reads all rows.
    """
    height, width = _extent(problem.height[0]), _extent(problem.width[0])
    x_bytes = 4 * problem.in_channels * height * width
    taps = problem.kernel[0] * problem.kernel[1]
    w_bytes = 4 * taps * problem.out_channels * problem.in_channels // problem.group
    num_groups = -(-problem.out_blocks // (vectors * problem.group))
    if inside:
        moved = w_bytes * (height if w_bytes > _CACHE_BYTES else 1)
    else:
        moved = w_bytes + x_bytes * (num_groups if x_bytes > _CACHE_BYTES else 1)
    return moved / 8.0
