"""Ops whose signature changed: the old form of each against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.unit.frontends.onnx_models import check_op

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


X = f32(2, 3, 4, 5)
OLD: list[tuple[str, int, dict[str, Any]]] = [
    ("Slice", 9, {"starts": [1, -3], "ends": [9, -1], "axes": [1, 3]}),
    ("Pad", 10, {"pads": [0, 1, 0, 2, 0, 0, 1, 0], "value": 1.5}),
    ("Pad", 10, {"pads": [0, 0, 1, 1, 0, 0, 1, 2], "mode": "reflect"}),
    ("Clip", 10, {"min": -0.5, "max": 0.25}),
    ("Clip", 10, {"max": 0.25}),
    ("Squeeze", 11, {}),
    ("Unsqueeze", 11, {"axes": [0, -1]}),
    ("Upsample", 8, {"scales": [1.0, 1.0, 2.0, 3.0]}),
    ("Upsample", 8, {"scales": [1.0, 1.0, 2.0, 2.0], "mode": "linear"}),
    ("Dropout", 9, {"ratio": 0.3}),
    ("Softmax", 11, {"axis": 1}),
    ("LogSoftmax", 11, {"axis": 2}),
    ("Hardmax", 11, {"axis": 2}),
    ("ReduceSum", 12, {"axes": [1, -1], "keepdims": 0}),
    ("ReduceMean", 17, {"axes": [2, 3]}),
    ("ReduceL2", 17, {}),
    ("AveragePool", 9, {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "count_include_pad": 1}),
    ("MaxPool", 9, {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ("LpPool", 17, {"kernel_shape": [2, 2], "p": 3}),
    ("GlobalLpPool", 17, {"p": 1}),
    ("Flatten", 8, {"axis": 2}),
    ("TopK", 9, {"k": 2, "axis": 1}),
]


@pytest.mark.parametrize("op,opset,attrs", OLD)
def test_attributes(op: str, opset: int, attrs: dict[str, Any]) -> None:
    x = X if op != "Squeeze" else X[:, :1]
    check_op(op, {"x": x}, attrs, opset=opset, outputs=2 if op == "TopK" else 1)


def test_split_by_attribute() -> None:
    check_op("Split", {"x": X}, {"split": [1, 3], "axis": 2}, opset=11, outputs=2)
    check_op("Split", {"x": X}, {"axis": 2}, opset=11, outputs=2)


def test_uneven_split() -> None:
    check_op("Split", {"x": X}, {"axis": 3, "num_outputs": 3}, opset=18, outputs=3)


@pytest.mark.parametrize("op,opset", [("Upsample", 9), ("Resize", 10)])
def test_scales_as_input(op: str, opset: int) -> None:
    feed = {"x": X, "scales": np.array([1, 1, 2, 0.5 if op == "Resize" else 2], np.float32)}
    check_op(op, feed, {"mode": "nearest"}, constants=["scales"], opset=opset)


def test_batch_normalization() -> None:
    feed = {"x": X, "s": f32(3), "b": f32(3), "m": f32(3), "v": f32(3) ** 2}
    for opset in (7, 9, 15):
        check_op("BatchNormalization", feed, {"epsilon": 0.01}, opset=opset)


def test_padding_of_dynamic_extents() -> None:
    """auto_pad with a stride depends on the extent, which is dynamic here."""
    from tests.unit.frontends.onnx_models import compare_with_ort, model, node

    inputs = {"x": (TensorProto.FLOAT, ["n", 3, "h", "w"])}
    for upper in ("SAME_UPPER", "SAME_LOWER"):
        nodes = [node("Conv", ["x", "k"], ["y"], auto_pad=upper, strides=[2, 3])]
        proto = model(nodes, inputs, ["y"], {"k": f32(2, 3, 3, 3)})
        for h, w in ((4, 5), (7, 9), (8, 6)):
            compare_with_ort(proto, {"x": f32(1, 3, h, w)})


@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": [2, 2], "output_padding": [1, 1], "pads": [1, 1, 1, 1]},
        {"strides": [2, 3], "output_shape": [9, 14]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "auto_pad": "SAME_LOWER", "group": 2},
        {"dilations": [2, 1], "pads": [1, 0, 0, 1]},
    ],
)
def test_conv_transpose(attrs: dict[str, Any]) -> None:
    channels = 4 // attrs.get("group", 1)
    check_op("ConvTranspose", {"x": f32(1, 4, 4, 4), "w": f32(4, channels, 3, 3), "b": f32(4)}, attrs)


@pytest.mark.parametrize(
    "equation,shapes",
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (1, 4, 5)]),
        ("...ij->...ji", [(2, 3, 4)]),
        ("ii->i", [(3, 3)]),
        ("iij->j", [(3, 3, 2)]),
        ("ii", [(3, 3)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ij,ij->", [(3, 4), (3, 4)]),
        ("ij,kj,kl->il", [(2, 3), (4, 3), (4, 5)]),
        ("abc,bad->dc", [(2, 3, 4), (3, 2, 5)]),
        ("ba,a", [(2, 3), (3,)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    check_op("Einsum", {f"x{k}": f32(*s) for k, s in enumerate(shapes)}, {"equation": equation})


@pytest.mark.parametrize("op,gates", [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent(op: str, gates: int, direction: str) -> None:
    d, h = (2 if direction == "bidirectional" else 1), 3
    feed = {
        "x": f32(5, 2, 4), "w": f32(d, gates * h, 4), "r": f32(d, gates * h, h), "b": f32(d, 2 * gates * h),
        "lens": np.array([5, 3], np.int32), "h0": f32(d, 2, h),
    }  # fmt: skip
    attrs = {"hidden_size": h, "direction": direction}
    check_op(op, feed, attrs, outputs=2)
    if op == "GRU":
        check_op(op, feed, {**attrs, "linear_before_reset": 1}, outputs=2)
    if op == "LSTM":
        check_op(op, {**feed, "c0": f32(d, 2, h), "p": f32(d, 3 * h)}, attrs, outputs=3)


def test_cast_like_clip_bounds() -> None:
    """Bounds may be integers, absent, or computed at run time."""
    x = RNG.integers(-9, 9, (3, 4)).astype(np.int32)
    check_op("Clip", {"x": x, "lo": np.int32(-2), "hi": np.int32(3)}, output_type=TensorProto.INT32)
    check_op("Clip", {"x": X, "hi": np.float32(0.1)}, inputs=["x", "", "hi"])


def test_one_hot_and_trilu() -> None:
    feed = {"i": ints(1, -2, 0), "depth": np.int64(4), "v": np.array([0, 5], np.float32)}
    check_op("OneHot", feed, {"axis": 0}, constants=["depth"])
    check_op("Trilu", {"x": X, "k": np.int64(-1)}, {"upper": 0})
