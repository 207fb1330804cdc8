"""Layers that several networks share.

The gain of a layer before a ReLU is sqrt(2), since ReLU drops half of the energy (He et al. 2015); 1
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hagane.zoo.networks.writer import NetworkWriter

_BIAS_REACH = 0.1


def dense(net: NetworkWriter, name: str, value: str, num_in: int, num_out: int, activation: str = "") -> str:
    """Gemm with the weight stored [num_out, num_in], as PyTorch exports it."""
    gain = 2.0**0.5 if activation == "Relu" else 1.0
    with net.scope(name):
        weight = net.weight("weight", [num_out, num_in], gain / num_in**0.5)
        bias = net.uniform("bias", [num_out], -_BIAS_REACH, _BIAS_REACH)
        value = net.node("Gemm", [value, weight, bias], transB=1)
        return net.node(activation, [value]) if activation else value


def linear(net: NetworkWriter, name: str, value: str, num_in: int, num_out: int) -> str:
    """MatMul and Add on the last dim, as PyTorch exports a linear layer of a value of rank 3."""
    with net.scope(name):
        weight = net.weight("weight", [num_in, num_out], 1.0 / num_in**0.5)
        bias = net.uniform("bias", [num_out], -_BIAS_REACH, _BIAS_REACH)
        return net.node("Add", [bias, net.node("MatMul", [value, weight])])


def conv(
    net: NetworkWriter,
    name: str,
    value: str,
    num_in: int,
    num_out: int,
    kernel: int,
    *,
    stride: int = 1,
    group: int = 1,
    bias: bool = True,
    gain: float = 1.0,
) -> str:
    """Two-dimensional convolution with padding that keeps the size at stride 1."""
    fan_in = num_in // group * kernel * kernel
    with net.scope(name):
        inputs = [value, net.weight("weight", [num_out, num_in // group, kernel, kernel], gain / fan_in**0.5)]
        if bias:
            inputs.append(net.uniform("bias", [num_out], -_BIAS_REACH, _BIAS_REACH))
        pad = kernel // 2
        return net.node(
            "Conv",
            inputs,
            dilations=[1, 1],
            group=group,
            kernel_shape=[kernel, kernel],
            pads=[pad, pad, pad, pad],
            strides=[stride, stride],
        )


def batch_norm(net: NetworkWriter, name: str, value: str, channels: int, scale: float = 1.0) -> str:
    """BatchNormalization with statistics near its input's, so that folding changes each weight a little."""
    with net.scope(name):
        inputs = [
            value,
            net.uniform("weight", [channels], 0.8 * scale, 1.2 * scale),
            net.uniform("bias", [channels], -0.2, 0.2),
            net.uniform("running_mean", [channels], -0.2, 0.2),
            net.uniform("running_var", [channels], 0.7, 1.3),
        ]
        return net.node("BatchNormalization", inputs, epsilon=1e-5, momentum=0.9)


def affine(net: NetworkWriter, value: str, shape: Sequence[int]) -> str:
    """Multiplies by a weight near 1 and adds a bias near 0, both of the given shape."""
    weight = net.uniform("weight", shape, 0.8, 1.2)
    bias = net.uniform("bias", shape, -0.1, 0.1)
    return net.node("Add", [net.node("Mul", [value, weight]), bias])


def scalar(net: NetworkWriter, name: str, value: float) -> str:
    """A float32 constant of rank 0."""
    return net.constant(name, np.array(value, np.float32))


def integers(net: NetworkWriter, name: str, values: Sequence[int]) -> str:
    """An int64 constant of rank 1."""
    return net.constant(name, np.array(values, np.int64))


def silu(net: NetworkWriter, value: str) -> str:
    """x * sigmoid(x)."""
    return net.node("Mul", [value, net.node("Sigmoid", [value])])
