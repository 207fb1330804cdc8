"""What conv_spatial chooses: which convolutions it is for, its register tiles, and the strips it works in."""

from __future__ import annotations

from dataclasses import dataclass

from hagane.core.targets import CpuTarget
from hagane.kernels.llvm.conv_narrow import MOST_FILTERS
from hagane.kernels.llvm.conv_problem import ConvProblem, near_equal
from hagane.kernels.llvm.conv_tile import F32_BYTES
from hagane.kernels.tactic import Params

_MOST_STRIDE = 4  # a row is copied as that many rows
# of the lanes of blocked channels that filters would use; above it blocked kernels are as fast
_MOST_SHARE = 0.7
_SCRATCH_BYTES = 384 << 10  # leaves room for the output and the weights in a second-level cache of 1 MiB
_MOST_VECTORS = 32  # of a strip's row
_FEW_VECTORS = 8  # where there are few rows to share among threads
_MOST_TILE = 8
_FMA_LATENCY = 4


@dataclass(frozen=True)
class Phase:
    """Taps of a kernel row whose columns have one remainder modulo the stride.

    The k-th is tap first_tap + k * tap_step and reads column first_column + k * column_step of the phase.
    """

    remainder: int
    first_tap: int
    tap_step: int
    num_taps: int
    first_column: int
    column_step: int


@dataclass(frozen=True)
class Strip:
    """A unit of work: `rows` output rows by `vectors` vectors of columns at most, and how its input lies.

    The workspace holds [channel][input row][phase][column]; scratch_rows: input rows; row_bytes: of a phase.
    reach: columns that windows read behind the first column of an output, in any phase.
    """

    rows: int
    vectors: int
    phases: tuple[Phase, ...]
    reach: int
    scratch_rows: int
    row_bytes: int
    channels: int

    @property
    def num_phases(self) -> int:
        return len(self.phases)

    @property
    def scratch_bytes(self) -> int:
        return self.channels * self.scratch_rows * self.num_phases * self.row_bytes


def worthwhile(problem: ConvProblem) -> bool:
    """True if blocked channels would waste more lanes than vectors along the width do.

    A kernel of one element isn't worth the copy, and over whole blocks of channels conv_narrow is faster.
    """
    if problem.strides[1] > _MOST_STRIDE or problem.kernel == (1, 1):
        return False
    if problem.out_channels <= MOST_FILTERS and problem.in_channels >= problem.lanes:
        return False
    width, lanes = problem.width[1], problem.lanes
    filled = 1.0
    if width.is_const:
        filled = width.value / max(-(-width.value // lanes) * lanes, 1)
    share = problem.out_channels / (problem.out_blocks * lanes)
    return share <= _MOST_SHARE * filled and strip_of(problem).scratch_bytes <= 4 * _SCRATCH_BYTES


def phases_of(problem: ConvProblem) -> tuple[Phase, ...]:
    """The taps of a kernel row by their remainder."""
    columns, stride, dilation = problem.kernel[1], problem.strides[1], problem.dilations[1]
    found: dict[int, list[int]] = {}
    for tap in range(columns):
        found.setdefault(tap * dilation % stride, []).append(tap)
    phases = []
    for remainder, taps in sorted(found.items()):
        step = taps[1] - taps[0] if len(taps) > 1 else 0
        phases.append(
            Phase(
                remainder, taps[0], step, len(taps), taps[0] * dilation // stride, step * dilation // stride
            )
        )
    return tuple(phases)


def strip_of(problem: ConvProblem) -> Strip:
    """As many rows as the workspace has room for, but enough strips for the threads to share."""
    height, width = problem.height[1], problem.width[1]
    one_row = height.is_const and height.value == 1
    vectors = _FEW_VECTORS if one_row else _MOST_VECTORS
    if width.is_const:
        vectors = near_equal(max(-(-width.value // problem.lanes), 1), vectors)[0][0]
    strip = _strip(problem, 1, vectors)
    for rows in range(2, 17):
        if height.is_const and height.value < 8 * rows:
            break
        wider = _strip(problem, rows, vectors)
        if wider.scratch_bytes > _SCRATCH_BYTES:
            break
        strip = wider
    return strip


def _strip(problem: ConvProblem, rows: int, vectors: int) -> Strip:
    lanes, phases = problem.lanes, phases_of(problem)
    reach = (problem.kernel[1] - 1) * problem.dilations[1] // problem.strides[1]
    elements = vectors * lanes + -(-reach // lanes) * lanes
    if elements * F32_BYTES % 1024 == 0:  # rows at the same place of each page would share few cache sets
        elements += lanes
    scratch_rows = (rows - 1) * problem.strides[0] + (problem.kernel[0] - 1) * problem.dilations[0] + 1
    channels = problem.in_channels // problem.group
    return Strip(rows, vectors, phases, reach, scratch_rows, elements * F32_BYTES, channels)


def tile_space(problem: ConvProblem, target: CpuTarget) -> list[Params]:
    """Register tiles of filters by vectors, the best guess first."""
    filters = problem.out_channels // problem.group
    width = problem.width[1]
    extent = max(-(-width.value // problem.lanes), 1) if width.is_const else _MOST_VECTORS
    choices: list[tuple[float, int, int]] = []
    for channels in range(1, min(filters, _MOST_TILE) + 1):
        vectors = min((target.num_vector_registers - 2) // (channels + 1), _MOST_TILE, extent)
        if not width.is_const:
            vectors = min(vectors, 4)  # each size is code of its own
        if vectors < 1:
            continue
        cycles = sum(
            count * tiles * _cycles(group, size, problem)
            for group, count in near_equal(filters, channels)
            for size, tiles in near_equal(extent, vectors)
        )
        choices.append((cycles, channels, vectors))
    return [{"channels": c, "vectors": v} for _, c, v in sorted(choices)[:3]]


def _cycles(channels: int, vectors: int, problem: ConvProblem) -> float:
    """Cycles of a tap: products, loads (those of the input cross a cache line, which takes two), latency."""
    loads = channels + (2.0 if problem.lanes == 16 else 1.5) * vectors
    return max(channels * vectors / 2, loads / 2, _FMA_LATENCY)
