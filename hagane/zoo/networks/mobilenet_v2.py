"""MobileNet-V2: inverted residual blocks with depthwise convolutions.

Source: Sandler et al. 2018, "MobileNetV2: Inverted Residuals and Linear Bottlenecks". Batch norms stay
nodes of their own.
"""

from __future__ import annotations

import onnx

from hagane.zoo.networks.layers import batch_norm, conv, dense, scalar
from hagane.zoo.networks.writer import Dim, NetworkWriter

_HE = 2.0**0.5
# (expansion, channels, repeats, stride of the first), the table of the paper.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
_LAST_CHANNELS = 1280


def mobilenet_v2(
    *,
    width: float = 1.0,
    num_classes: int = 1000,
    image: int = 224,
    batch: Dim = "batch",
    seed: int = 0,
) -> onnx.ModelProto:
    """image f32[batch, 3, image, image] -> logits f32[batch, num_classes]; `width` scales the channels."""
    net = NetworkWriter("mobilenet_v2", seed)
    value = net.input("image", [batch, 3, image, image])
    channels = _rounded(32 * width)
    value = _conv_norm(net, "features.0", value, 3, channels, 3, stride=2)
    index = 1
    for expansion, stage_channels, repeats, stride in _STAGES:
        for i in range(repeats):
            num_out = _rounded(stage_channels * width)
            with net.scope(f"features.{index}"):
                value = _inverted_residual(net, value, channels, num_out, expansion, stride if i == 0 else 1)
            channels = num_out
            index += 1
    last = _rounded(_LAST_CHANNELS * max(1.0, width))
    value = _conv_norm(net, f"features.{index}", value, channels, last, 1)
    value = net.node("Flatten", [net.node("GlobalAveragePool", [value])], axis=1)
    net.output("logits", dense(net, "classifier", value, last, num_classes), [batch, num_classes])
    return net.finish()


def _rounded(channels: float) -> int:
    """To the nearest multiple of 8, and never more than a tenth down."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def _conv_norm(
    net: NetworkWriter,
    name: str,
    value: str,
    num_in: int,
    num_out: int,
    kernel: int,
    *,
    stride: int = 1,
    group: int = 1,
    relu6: bool = True,
) -> str:
    gain = _HE if relu6 else 1.0
    with net.scope(name):
        value = conv(
            net, "conv", value, num_in, num_out, kernel, stride=stride, group=group, bias=False, gain=gain
        )
        value = batch_norm(net, "norm", value, num_out)
        if not relu6:
            return value
        return net.node("Clip", [value, scalar(net, "low", 0.0), scalar(net, "high", 6.0)])


def _inverted_residual(
    net: NetworkWriter, value: str, num_in: int, num_out: int, expansion: int, stride: int
) -> str:
    """Widen by 1x1, filter each channel by 3x3, narrow by 1x1; a skip where the shape stays."""
    skip, inner = value, num_in * expansion
    if expansion != 1:
        value = _conv_norm(net, "expand", value, num_in, inner, 1)
    value = _conv_norm(net, "depthwise", value, inner, inner, 3, stride=stride, group=inner)
    value = _conv_norm(net, "project", value, inner, num_out, 1, relu6=False)
    return net.node("Add", [skip, value]) if stride == 1 and num_in == num_out else value
