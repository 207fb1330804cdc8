"""A small diffusion U-Net: residual blocks with time embedding, self-attention at the low resolutions, skips.

Source: Ho et al. 2020, "Denoising Diffusion Probabilistic Models". Group norm is written as PyTorch exports
it: Reshape, InstanceNormalization, Reshape, then a scale and a shift per channel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from hagane.zoo.networks.layers import affine, conv, dense, integers, scalar, silu
from hagane.zoo.networks.writer import Dim, NetworkWriter

_GROUPS = 8


def unet(
    *,
    channels: int = 3,
    width: int = 32,
    multipliers: Sequence[int] = (1, 2, 4),
    heads: int = 4,
    height: Dim = 32,
    image_width: Dim = 32,
    batch: Dim = "batch",
    seed: int = 0,
) -> onnx.ModelProto:
    """sample f32[batch, channels, height, image_width], timestep f32[batch] -> noise of the sample's shape.

    Both sizes are multiples of 2 ** (len(multipliers) - 1). Attention stands in every level but the first.
    """
    net = NetworkWriter("unet", seed)
    shape = [batch, channels, height, image_width]
    sample = net.input("sample", shape)
    time = _time_embedding(net, net.input("timestep", [batch]), width)
    value = conv(net, "conv_in", sample, channels, width, 3)
    size = width
    skips = [(value, size)]
    for level, multiplier in enumerate(multipliers):
        with net.scope(f"down{level}"):
            value, size = _block(net, value, time, size, width * multiplier, width, heads if level else 0)
            skips.append((value, size))
            if level + 1 < len(multipliers):
                value = conv(net, "downsample", value, size, size, 3, stride=2)
                skips.append((value, size))
    with net.scope("middle"):
        value, size = _block(net, value, time, size, size, width, heads)
    for level, multiplier in reversed(list(enumerate(multipliers))):
        for i in range(2):
            skip, skip_size = skips.pop()
            with net.scope(f"up{level}.{i}"):
                joined = net.node("Concat", [value, skip], axis=1)
                num_out = width * multiplier
                attention = heads if level else 0
                value, size = _block(net, joined, time, size + skip_size, num_out, width, attention)
        if level:
            with net.scope(f"up{level}.upsample"):
                value = conv(net, "conv", _double(net, value), size, size, 3)
    value = silu(net, _group_norm(net, "norm_out", value, size))
    net.output("noise", conv(net, "conv_out", value, size, channels, 3), shape)
    return net.finish()


def _time_embedding(net: NetworkWriter, timestep: str, width: int) -> str:
    """Sines and cosines of the time, through two dense layers: f32[batch, 4 * width]."""
    half = width // 2
    with net.scope("time"):
        frequencies = np.exp(-np.log(10000.0) * np.arange(half) / half).astype(np.float32)
        column = net.node("Unsqueeze", [timestep, integers(net, "axis1", [1])])
        angles = net.node("Mul", [column, net.constant("frequencies", frequencies[None, :])])
        waves = net.node("Concat", [net.node("Cos", [angles]), net.node("Sin", [angles])], axis=1)
        value = silu(net, dense(net, "fc1", waves, width, 4 * width))
        return silu(net, dense(net, "fc2", value, 4 * width, 4 * width))


def _block(
    net: NetworkWriter, value: str, time: str, num_in: int, num_out: int, width: int, heads: int
) -> tuple[str, int]:
    """Two convolutions around a skip, the time added between them; then attention, where heads isn't 0."""
    skip = value
    value = conv(net, "conv1", silu(net, _group_norm(net, "norm1", value, num_in)), num_in, num_out, 3)
    shift = dense(net, "time", time, 4 * width, num_out)
    value = net.node("Add", [value, net.node("Unsqueeze", [shift, integers(net, "spatial", [2, 3])])])
    value = conv(net, "conv2", silu(net, _group_norm(net, "norm2", value, num_out)), num_out, num_out, 3)
    if num_in != num_out:
        skip = conv(net, "skip", skip, num_in, num_out, 1)
    value = net.node("Add", [value, skip])
    return (_attention(net, value, num_out, heads) if heads else value), num_out


def _attention(net: NetworkWriter, value: str, channels: int, heads: int) -> str:
    """Self-attention over the pixels, added to its input."""
    with net.scope("attention"):
        joint = conv(net, "qkv", _group_norm(net, "norm", value, channels), channels, 3 * channels, 1)
        pixels = net.node("Reshape", [joint, integers(net, "split", [0, 3 * heads, channels // heads, -1])])
        query, key, content = net.nodes(
            "Split", [pixels, integers(net, "parts", [heads, heads, heads])], 3, axis=1
        )
        query = net.node("Transpose", [query], perm=[0, 1, 3, 2])
        scores = net.node("MatMul", [query, key])
        scores = net.node("Mul", [scores, scalar(net, "scale", (channels // heads) ** -0.5)])
        weights = net.node("Softmax", [scores], axis=-1)
        mixed = net.node("MatMul", [content, net.node("Transpose", [weights], perm=[0, 1, 3, 2])])
        mixed = net.node("Reshape", [mixed, net.node("Shape", [value])])
        return net.node("Add", [value, conv(net, "proj", mixed, channels, channels, 1)])


def _group_norm(net: NetworkWriter, name: str, value: str, channels: int) -> str:
    with net.scope(name):
        grouped = net.node("Reshape", [value, integers(net, "groups", [0, _GROUPS, -1])])
        ones = net.constant("ones", np.ones(_GROUPS, np.float32))
        zeros = net.constant("zeros", np.zeros(_GROUPS, np.float32))
        normal = net.node("InstanceNormalization", [grouped, ones, zeros], epsilon=1e-5)
        normal = net.node("Reshape", [normal, net.node("Shape", [value])])
        return affine(net, normal, [channels, 1, 1])


def _double(net: NetworkWriter, value: str) -> str:
    """Each pixel becomes two by two."""
    scales = net.constant("scales", np.array([1, 1, 2, 2], np.float32))
    return net.node(
        "Resize",
        [value, "", scales],
        coordinate_transformation_mode="asymmetric",
        mode="nearest",
        nearest_mode="floor",
    )
