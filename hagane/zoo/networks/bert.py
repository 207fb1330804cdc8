"""A BERT encoder, as PyTorch exports it at opset 17 without composite ops.

Source: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers". GELU is written with Erf,
layer norm with ReduceMean, the mask as a large negative number added to the scores.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from hagane.zoo.networks.layers import affine, dense, integers, linear, scalar
from hagane.zoo.networks.writer import Dim, NetworkWriter

_NUM_SEGMENTS = 2


def bert(
    *,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    inner: int = 3072,
    vocabulary: int = 30522,
    max_sequence: int = 512,
    batch: Dim = "batch",
    sequence: Dim = "sequence",
    seed: int = 0,
) -> onnx.ModelProto:
    """input_ids, attention_mask, token_type_ids i64[batch, sequence] -> last_hidden_state
    f32[batch, sequence, width], pooler_output f32[batch, width]; the defaults are BERT-base."""
    net = NetworkWriter("bert", seed)
    ids, mask, segments = (
        net.input(name, [batch, sequence], TensorProto.INT64)
        for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    with net.scope("embeddings"):
        value = _embed(net, ids, segments, vocabulary, max_sequence, width)
    bias = _mask_bias(net, mask)
    for i in range(layers):
        with net.scope(f"layer.{i}"):
            with net.scope("attention"):
                attended = _attention(net, value, bias, width, heads)
            value = _layer_norm(net, "attention_norm", net.node("Add", [attended, value]), width)
            hidden = _gelu(net, linear(net, "intermediate", value, width, inner))
            hidden = linear(net, "output", hidden, inner, width)
            value = _layer_norm(net, "output_norm", net.node("Add", [hidden, value]), width)
    first = net.node("Gather", [value, net.constant("first", np.array(0, np.int64))], "pooler", axis=1)
    pooled = net.node("Tanh", [dense(net, "pooler", first, width, width)], "pooler")
    net.output("last_hidden_state", value, [batch, sequence, width])
    net.output("pooler_output", pooled, [batch, width])
    return net.finish()


def _embed(
    net: NetworkWriter, ids: str, segments: str, vocabulary: int, max_sequence: int, width: int
) -> str:
    """The sum of word, segment and position rows; positions are 0, 1, 2 ... to the sequence's length."""
    words = net.node("Gather", [net.weight("word", [vocabulary, width], 0.7), ids], "word")
    kinds = net.node("Gather", [net.weight("segment", [_NUM_SEGMENTS, width], 0.3), segments], "segment")
    all_positions = net.constant("position_ids", np.arange(max_sequence, dtype=np.int64)[None, :])
    length = net.node("Gather", [net.node("Shape", [ids]), integers(net, "axis1", [1])], "length")
    positions = net.node(
        "Slice", [all_positions, integers(net, "start", [0]), length, integers(net, "axis1", [1])]
    )
    places = net.node("Gather", [net.weight("position", [max_sequence, width], 0.5), positions], "position")
    return _layer_norm(net, "norm", net.node("Add", [net.node("Add", [words, kinds]), places]), width)


def _mask_bias(net: NetworkWriter, mask: str) -> str:
    """0 where a token counts and a large negative number where it is padding: f32[batch, 1, 1, sequence]."""
    with net.scope("mask"):
        wide = net.node("Unsqueeze", [mask, integers(net, "axes", [1, 2])])
        kept = net.node("Cast", [wide], to=TensorProto.FLOAT)
        dropped = net.node("Sub", [scalar(net, "one", 1.0), kept])
        return net.node("Mul", [dropped, scalar(net, "lowest", float(np.finfo(np.float32).min))])


def _attention(net: NetworkWriter, value: str, bias: str, width: int, heads: int) -> str:
    head_width = width // heads
    split = integers(net, "split", [0, 0, heads, head_width])
    query, key, content = (
        net.node("Reshape", [linear(net, name, value, width, width), split], name)
        for name in ("query", "key", "value")
    )
    query = net.node("Transpose", [query], "query", perm=[0, 2, 1, 3])
    key = net.node("Transpose", [key], "key", perm=[0, 2, 3, 1])
    content = net.node("Transpose", [content], "value", perm=[0, 2, 1, 3])
    scores = net.node("Div", [net.node("MatMul", [query, key]), scalar(net, "scale", head_width**0.5)])
    weights = net.node("Softmax", [net.node("Add", [scores, bias])], axis=-1)
    mixed = net.node("Transpose", [net.node("MatMul", [weights, content])], perm=[0, 2, 1, 3])
    mixed = net.node("Reshape", [mixed, integers(net, "join", [0, 0, width])])
    return linear(net, "dense", mixed, width, width)


def _layer_norm(net: NetworkWriter, name: str, value: str, width: int) -> str:
    with net.scope(name):
        centred = net.node("Sub", [value, net.node("ReduceMean", [value], axes=[-1])])
        squared = net.node("Pow", [centred, scalar(net, "two", 2.0)])
        variance = net.node("ReduceMean", [squared], axes=[-1])
        deviation = net.node("Sqrt", [net.node("Add", [variance, scalar(net, "epsilon", 1e-12)])])
        return affine(net, net.node("Div", [centred, deviation]), [width])


def _gelu(net: NetworkWriter, value: str) -> str:
    """x / 2 * (1 + erf(x / sqrt(2)))."""
    with net.scope("gelu"):
        error = net.node("Erf", [net.node("Div", [value, scalar(net, "root2", 2.0**0.5)])])
        raised = net.node("Add", [error, scalar(net, "one", 1.0)])
        return net.node("Mul", [net.node("Mul", [value, raised]), scalar(net, "half", 0.5)])
