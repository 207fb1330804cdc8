"""A deep learning recommendation model: embeddings, dense features, pairwise interactions.

Source: Naumov et al. 2019, "Deep Learning Recommendation Model for Personalization and Recommendation
Systems".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto

from hagane.zoo.networks.layers import dense, integers
from hagane.zoo.networks.writer import Dim, NetworkWriter


def dlrm(
    *,
    num_dense: int = 13,
    table_rows: Sequence[int] = (1000, 200, 5000, 20, 300, 10000, 50, 2000),
    width: int = 32,
    bottom: Sequence[int] = (128, 64),
    top: Sequence[int] = (128, 64),
    batch: Dim = "batch",
    seed: int = 0,
) -> onnx.ModelProto:
    """dense f32[batch, num_dense], categories i64[batch, tables] -> probability f32[batch].

    Column i of `categories` is a row number of table i, so below table_rows[i].
    """
    net = NetworkWriter("dlrm", seed)
    num_tables = len(table_rows)
    dense_input = net.input("dense", [batch, num_dense])
    categories = net.input("categories", [batch, num_tables], TensorProto.INT64)
    with net.scope("bottom"):
        features = _stack(net, dense_input, num_dense, [*bottom, width])
    rows = [_unsqueeze(net, features)]
    for i, num_rows in enumerate(table_rows):
        with net.scope(f"embedding{i}"):
            table = net.weight("weight", [num_rows, width], 1.0)
            ids = net.node("Gather", [categories, net.constant("column", np.array(i, np.int64))], axis=1)
            rows.append(_unsqueeze(net, net.node("Gather", [table, ids], axis=0)))
    pairs = _interact(net, net.node("Concat", rows, "stack", axis=1), num_tables + 1)
    with net.scope("top"):
        joined = net.node("Concat", [features, pairs], axis=1)
        value = _stack(net, joined, width + num_tables * (num_tables + 1) // 2, top)
        value = dense(net, "last", value, top[-1], 1)
    value = net.node("Squeeze", [value, integers(net, "last_axis", [1])])
    net.output("probability", net.node("Sigmoid", [value]), [batch])
    return net.finish()


def _stack(net: NetworkWriter, value: str, size: int, widths: Sequence[int]) -> str:
    for i, width in enumerate(widths):
        value = dense(net, f"fc{i + 1}", value, size, width, activation="Relu")
        size = width
    return value


def _unsqueeze(net: NetworkWriter, value: str) -> str:
    return net.node("Unsqueeze", [value, integers(net, "axis1", [1])])


def _interact(net: NetworkWriter, stacked: str, num_rows: int) -> str:
    """The dot product of each pair of rows of f32[batch, num_rows, width], scaled to unit size."""
    with net.scope("interaction"):
        dots = net.node("MatMul", [stacked, net.node("Transpose", [stacked], perm=[0, 2, 1])])
        flat = net.node("Reshape", [dots, integers(net, "flat_shape", [-1, num_rows * num_rows])])
        below = [i * num_rows + j for i in range(num_rows) for j in range(i)]
        pairs = net.node("Gather", [flat, integers(net, "pairs", below)], axis=1)
        return net.node("Mul", [pairs, net.constant("scale", np.array(0.2, np.float32))])
