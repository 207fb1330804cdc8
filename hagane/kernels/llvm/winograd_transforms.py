"""The one-dimensional transforms of Winograd convolution F(4, 3), with interpolation points 0, 1, -1, 2, -2,
inf.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.
"""

from __future__ import annotations

from collections.abc import Sequence

from hagane.codegen.llvm import Function, Value

WINDOW = 6  # inputs of a tile along an axis, and products
OUTPUTS = 4  # outputs of a tile along an axis


def transform_input(f: Function, d: Sequence[Value]) -> list[Value]:
    """B^T d of 6 values."""
    even, odd = f.fma(d[2], -4.0, d[4]), f.fma(d[1], -4.0, d[3])
    near, far = d[4] - d[2], (d[3] - d[1]) * 2.0
    return [
        f.fma(d[0], 4.0, f.fma(d[2], -5.0, d[4])),
        even + odd,
        even - odd,
        near + far,
        near - far,
        f.fma(d[1], 4.0, f.fma(d[3], -5.0, d[5])),
    ]


def transform_output(f: Function, m: Sequence[Value]) -> list[Value]:
    """A^T m of 6 values: 4 of them."""
    sum_1, difference_1 = m[1] + m[2], m[1] - m[2]
    sum_2, difference_2 = m[3] + m[4], m[3] - m[4]
    return [
        m[0] + sum_1 + sum_2,
        f.fma(difference_2, 2.0, difference_1),
        f.fma(sum_2, 4.0, sum_1),
        f.fma(difference_2, 8.0, difference_1) + m[5],
    ]
