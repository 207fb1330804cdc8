"""com.microsoft ops against ONNX Runtime, which defines them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tests.unit.frontends.onnx_models import MS, check_op, compare_with_ort, model, node, typed_inputs

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


SCALE, ZERO = np.float32(0.05), np.uint8(120)


@pytest.mark.parametrize("op", ["Gelu", "FastGelu", "QuickGelu"])
def test_activations(op: str) -> None:
    check_op(op, {"x": f32(3, 5)}, domain=MS)


def test_fused_products() -> None:
    check_op(
        "FusedMatMul",
        {"a": f32(2, 5, 3), "b": f32(2, 7, 5)},
        {"alpha": 0.5, "transA": 1, "transB": 1},
        domain=MS,
    )
    operands = {"a": f32(4, 5), "b": f32(6, 5), "c": f32(6)}
    attrs = {"transB": 1, "alpha": 0.5, "activation": "LeakyRelu", "activation_alpha": 0.2}
    check_op("FusedGemm", operands, attrs, domain=MS)
    conv = {"x": f32(1, 3, 8, 8), "w": f32(4, 3, 3, 3), "b": f32(4)}
    check_op("FusedConv", conv, {"activation": "Relu", "pads": [1, 1, 1, 1]}, domain=MS)
    check_op("BiasGelu", {"a": f32(3, 8), "b": f32(8)}, domain=MS)
    check_op("FastGelu", {"a": f32(3, 8), "b": f32(8)}, domain=MS)


def test_skip_norms() -> None:
    operands = {"x": f32(2, 3, 8), "skip": f32(2, 3, 8), "gamma": f32(8), "beta": f32(8), "bias": f32(8)}
    check_op("SkipLayerNormalization", operands, {"epsilon": 1e-5}, domain=MS, outputs=["y", "", "", "sum"])
    del operands["beta"]
    check_op("SkipSimplifiedLayerNormalization", operands, {"epsilon": 1e-5}, domain=MS)
    check_op("SimplifiedLayerNormalization", {"x": f32(2, 3, 8), "gamma": f32(8)}, {"epsilon": 1e-5})


def test_embed_layer_norm() -> None:
    ids = {"ids": np.array([[1, 3, 0]], np.int32), "segments": np.array([[0, 1, 1]], np.int32)}
    tables = {"words": f32(5, 8), "positions": f32(4, 8), "kinds": f32(2, 8), "gamma": f32(8), "beta": f32(8)}
    feed = {**ids, **tables}
    types = {"y": (TensorProto.FLOAT, None), "mask": (TensorProto.INT32, None)}
    made = node("EmbedLayerNormalization", list(feed), list(types), domain=MS, epsilon=1e-5)
    compare_with_ort(model([made], typed_inputs(feed), types), feed)


def test_quantised() -> None:
    a = {"a": u8(2, 4, 3), "as": SCALE, "az": ZERO}
    b = {"b": u8(2, 4, 3), "bs": np.float32(0.03), "bz": np.uint8(100)}
    y = {"ys": np.float32(0.1), "yz": np.uint8(128)}
    for op in ("QLinearAdd", "QLinearMul"):
        check_op(op, {**a, **b, **y}, domain=MS, output_type=TensorProto.UINT8, atol=1)
    for op, attrs in (("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.1})):
        fixed = ["as", "az", "ys", "yz"]
        check_op(op, {**a, **y}, attrs, constants=fixed, domain=MS, output_type=TensorProto.UINT8, atol=1)
    concat = {"ys": y["ys"], "yz": y["yz"], **a, **b}
    check_op(
        "QLinearConcat",
        concat,
        {"axis": 1},
        constants=list(y),
        domain=MS,
        output_type=TensorProto.UINT8,
        atol=1,
    )
    plane = {"x": u8(1, 3, 6, 6), "xs": SCALE, "xz": ZERO, **y}
    check_op("QLinearGlobalAveragePool", plane, domain=MS, output_type=TensorProto.UINT8, atol=1)
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2]}
    check_op("QLinearAveragePool", plane, attrs, domain=MS, output_type=TensorProto.UINT8, atol=1)


def test_quantised_products() -> None:
    a = {"a": u8(4, 5), "as": SCALE, "az": ZERO}
    b = {"b": u8(5, 6), "bs": np.float32(0.03), "bz": np.uint8(100)}
    y = {"c": np.arange(6, dtype=np.int32), "ys": np.float32(0.1), "yz": np.uint8(128)}
    check_op("QGemm", {**a, **b, **y}, constants=list(b), domain=MS, output_type=TensorProto.UINT8, atol=1)
    operands = {
        "a": a["a"],
        "b": b["b"],
        "as": a["as"],
        "bs": b["bs"],
        "az": a["az"],
        "bz": b["bz"],
        "bias": f32(6),
    }
    check_op("MatMulIntegerToFloat", operands, domain=MS)


@pytest.mark.parametrize("bits,block", [(4, 16), (4, 32), (8, 16)])
@pytest.mark.parametrize("with_zeros", [False, True])
def test_matmul_nbits(bits: int, block: int, with_zeros: bool) -> None:
    k, n = 40, 6
    blocks = -(-k // block)
    feed = {"a": f32(3, k), "b": u8(n, blocks, block * bits // 8), "scales": f32(n * blocks)}
    if with_zeros:
        feed["zeros"] = u8(n * -(-blocks * bits // 8))
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block}
    check_op("MatMulNBits", feed, attrs, constants=list(feed)[1:], domain=MS, rtol=2e-3, atol=2e-2)


def test_attention() -> None:
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    feed = {"x": f32(2, 4, 12), "w": f32(12, 24), "b": f32(24), "mask": mask}
    check_op("Attention", feed, {"num_heads": 2}, domain=MS)
    del feed["mask"]
    check_op("Attention", feed, {"num_heads": 2, "unidirectional": 1}, domain=MS)


def test_multi_head_attention() -> None:
    feed = {"q": f32(2, 3, 8), "k": f32(2, 5, 8), "v": f32(2, 5, 8), "bias": f32(24)}
    check_op("MultiHeadAttention", feed, {"num_heads": 2}, domain=MS)
    mask = {"mask": np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32)}
    check_op("MultiHeadAttention", {**feed, **mask}, {"num_heads": 2}, domain=MS)


def test_dynamically_quantised() -> None:
    feed = {"a": f32(4, 5), "b": u8(5, 6), "bs": np.float32(0.03), "bz": np.uint8(100), "bias": f32(6)}
    check_op("DynamicQuantizeMatMul", feed, constants=["b", "bs", "bz"], domain=MS, atol=2e-2)


def test_dynamically_quantised_lstm() -> None:
    """ONNX Runtime quantises the inputs too, which we don't: hence the tolerance."""
    h, n = 4, 6
    feed = {
        "x": f32(3, 2, n), "w": u8(1, n, 4 * h), "r": u8(1, h, 4 * h), "b": f32(1, 8 * h),
        "ws": np.array([0.01], np.float32), "wz": np.array([128], np.uint8),
        "rs": np.array([0.01], np.float32), "rz": np.array([128], np.uint8),
    }  # fmt: skip
    names = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    options = {"inputs": names, "constants": ["w", "r", "ws", "wz", "rs", "rz"], "domain": MS, "outputs": 3}
    check_op("DynamicQuantizeLSTM", feed, {"hidden_size": h}, atol=3e-2, **options)


def test_quantised_attention() -> None:
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    feed = {
        "x": u8(2, 4, 12), "w": u8(12, 24), "b": f32(24), "xs": np.float32(0.02), "ws": np.float32(0.03),
        "mask": mask, "xz": np.uint8(128), "wz": np.uint8(120),
    }  # fmt: skip
    check_op("QAttention", feed, {"num_heads": 2}, constants=["w", "ws", "wz"], domain=MS)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int) -> None:
    feed = {
        "x": f32(2, 3, 16),
        "at": np.array([[0, 1, 2], [4, 5, 6]], np.int64),
        "cos": f32(9, 4),
        "sin": f32(9, 4),
    }
    check_op("RotaryEmbedding", feed, {"interleaved": interleaved}, domain=MS)
