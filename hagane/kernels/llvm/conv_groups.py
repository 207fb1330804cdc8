"""Small groups of a convolution merged into groups that fill vectors, with zeros as weights between them."""

from __future__ import annotations

from dataclasses import replace

from hagane.kernels.llvm.conv_problem import ConvProblem
from hagane.kernels.packing import Packing, packing_of

# So many times the products that matter are computed; without vectors along the channels it would be worse.
_MOST_MERGED = 8
_MOST_MERGED_TO_ONE = 4


def merge_groups(problem: ConvProblem) -> ConvProblem | None:
    """The convolution with groups whose channels fill whole blocks; None if that takes too many zeros."""
    count = _num_merged(problem)
    return None if count is None else replace(problem, group=problem.group // count, merged=count)


def _num_merged(problem: ConvProblem) -> int | None:
    """How many groups become one."""
    group, lanes = problem.group, problem.lanes
    inputs, outputs = problem.in_channels // group, problem.out_channels // group
    if group > 1 and inputs == outputs == 1:  # conv_depthwise is for these
        return None
    if group == 1 or inputs % lanes == outputs % lanes == 0:
        return 1
    if lanes % inputs == 0:
        count = lanes // inputs
        whole = group % count == 0 and (count * outputs % lanes == 0 or count == group)
        if count <= _MOST_MERGED and whole:
            return count
    return group if group <= _MOST_MERGED_TO_ONE else None


def merged_weight(problem: ConvProblem) -> Packing:
    """The weight as [M, C/group, taps] of the merged groups: blocks on a diagonal, zeros beside them."""
    taps, count, group = problem.kernel[0] * problem.kernel[1], problem.merged, problem.group
    m, c = problem.out_channels // (group * count), problem.in_channels // (group * count)
    weight = packing_of(problem.weight)
    if count == 1:
        return weight.reshape(problem.out_channels, c, taps)
    size = m * c * taps
    # followed by `count` zeros each and cut anew in rows of `count`, elements lie on the diagonal
    apart = weight.reshape(group, count, 1, size).pad_to(group, count, count + 1, size)
    cut = apart.reshape(group, count * (count + 1), size).take((0, 0, 0), (group, count**2, size), (1, 1, 1))
    square = cut.reshape(group, count, count, m, c, taps).transpose(0, 1, 3, 2, 4, 5)
    return square.reshape(problem.out_channels, count * c, taps)
