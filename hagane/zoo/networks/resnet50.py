"""ResNet-50 v1.5: the stride of a block is in its 3x3 convolution.

Source: He et al. 2016, "Deep Residual Learning for Image Recognition". Batch norms stay nodes of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from hagane.zoo.networks.layers import batch_norm, conv, dense
from hagane.zoo.networks.writer import Dim, NetworkWriter

_EXPANSION = 4
_HE = 2.0**0.5
_RESIDUAL_SCALE = 0.4  # keeps the sum over a stage's blocks near the size of its input


def resnet50(
    *,
    blocks: Sequence[int] = (3, 4, 6, 3),
    width: int = 64,
    num_classes: int = 1000,
    image: int = 224,
    batch: Dim = "batch",
    seed: int = 0,
) -> onnx.ModelProto:
    """image f32[batch, 3, image, image] -> logits f32[batch, num_classes]."""
    net = NetworkWriter("resnet50", seed)
    value = net.input("image", [batch, 3, image, image])
    value = _conv_norm(net, "conv1", "bn1", value, 3, width, 7, stride=2)
    value = net.node("Relu", [value])
    value = net.node("MaxPool", [value], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    channels = width
    for stage, num_blocks in enumerate(blocks):
        inner = width * 2**stage
        for i in range(num_blocks):
            stride = 2 if i == 0 and stage > 0 else 1
            with net.scope(f"layer{stage + 1}.{i}"):
                value = _bottleneck(net, value, channels, inner, stride)
            channels = inner * _EXPANSION
    value = net.node("Flatten", [net.node("GlobalAveragePool", [value])], axis=1)
    net.output("logits", dense(net, "fc", value, channels, num_classes), [batch, num_classes])
    return net.finish()


def _conv_norm(
    net: NetworkWriter,
    conv_name: str,
    norm_name: str,
    value: str,
    num_in: int,
    num_out: int,
    kernel: int,
    *,
    stride: int = 1,
    gain: float = _HE,
    scale: float = 1.0,
) -> str:
    value = conv(net, conv_name, value, num_in, num_out, kernel, stride=stride, bias=False, gain=gain)
    return batch_norm(net, norm_name, value, num_out, scale)


def _bottleneck(net: NetworkWriter, value: str, num_in: int, inner: int, stride: int) -> str:
    """1x1, 3x3, 1x1 convolutions around a skip; the skip has a 1x1 convolution where the size changes."""
    num_out = inner * _EXPANSION
    skip = value
    value = net.node("Relu", [_conv_norm(net, "conv1", "bn1", value, num_in, inner, 1)])
    value = net.node("Relu", [_conv_norm(net, "conv2", "bn2", value, inner, inner, 3, stride=stride)])
    value = _conv_norm(net, "conv3", "bn3", value, inner, num_out, 1, scale=_RESIDUAL_SCALE)
    if stride != 1 or num_in != num_out:
        with net.scope("downsample"):
            skip = _conv_norm(net, "0", "1", skip, num_in, num_out, 1, stride=stride, gain=1.0)
    return net.node("Relu", [net.node("Add", [value, skip])])
