"""A plain stack of dense layers with ReLU."""

from __future__ import annotations

import onnx

from hagane.zoo.networks.layers import dense
from hagane.zoo.networks.writer import Dim, NetworkWriter


def mlp(
    *,
    layers: int = 12,
    width: int = 256,
    num_inputs: int = 256,
    num_outputs: int = 10,
    batch: Dim = "batch",
    seed: int = 0,
) -> onnx.ModelProto:
    """x f32[batch, num_inputs] -> logits f32[batch, num_outputs]; all layers but the last have a ReLU."""
    net = NetworkWriter("mlp", seed)
    value = net.input("x", [batch, num_inputs])
    size = num_inputs
    for i in range(layers - 1):
        value = dense(net, f"fc{i + 1}", value, size, width, activation="Relu")
        size = width
    value = dense(net, f"fc{layers}", value, size, num_outputs)
    net.output("logits", value, [batch, num_outputs])
    return net.finish()
