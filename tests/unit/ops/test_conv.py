import itertools

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.errors import ShapeError
from hagane.core.symbolic import sym
from hagane.ir.builder import Builder
from hagane.ir.graph import DType, Graph, tensor
from hagane.ir.registry import op_def
from hagane.ops.conv import conv_attrs
from tests.unit.ops.onnx_oracle import run_onnx


def _onnx_attrs(attrs):
    return {
        "strides": attrs["strides"],
        "dilations": attrs["dilations"],
        "pads": [*attrs["pads_begin"], *attrs["pads_end"]],
        "group": attrs["group"],
    }


@pytest.mark.parametrize(
    "stride, dilation, pads, group", list(itertools.product((1, 2), (1, 2), ((0, 0), (2, 1)), (1, 2)))
)
def test_reference_agrees_with_onnx(stride, dilation, pads, group):
    rng = np.random.default_rng(0)
    x, w, b = (
        rng.standard_normal((2, 4, 9, 8)),
        rng.standard_normal((6, 4 // group, 3, 2)),
        rng.standard_normal(6),
    )
    attrs = conv_attrs(
        2, group, strides=(stride, 1), dilations=(1, dilation), pads_begin=pads, pads_end=pads[::-1]
    )
    [expected] = run_onnx("Conv", [x, w, b], **_onnx_attrs(attrs))
    np.testing.assert_allclose(op_def("conv").reference(attrs, x, w, b), expected, atol=1e-12)


def test_large_images_are_done_in_pieces(monkeypatch):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 3, 20, 20)), rng.standard_normal((4, 3, 3, 3))
    whole = op_def("conv").reference(conv_attrs(2), x, w)
    monkeypatch.setattr("hagane.ops.conv._PATCH_ELEMENTS", 1000)
    np.testing.assert_allclose(op_def("conv").reference(conv_attrs(2), x, w), whole, atol=1e-12)


def _graph_output(x_shape, w_shape, **attrs):
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, *x_shape))
    w = builder.input("w", tensor(DType.F32, *w_shape))
    return builder.op("conv", x, w, None, **attrs)


def test_output_dims_are_expressions():
    batch, height = sym("B", 1), sym("H", 1)
    attrs = conv_attrs(2, strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1))
    y = _graph_output((batch, 3, height, 224), (8, 3, 3, 3), **attrs)
    assert [str(d) for d in y.shape] == ["B", "8", "((H + 1) // 2)", "112"]


def test_channel_mismatch_names_both_figures():
    with pytest.raises(ShapeError, match="conv input has 7 channels, the weight wants 8"):
        _graph_output((1, 7, 56, 56), (33, 8, 3, 3), **conv_attrs(2))


def test_kernel_larger_than_the_input():
    with pytest.raises(
        ShapeError, match="a window of 5 doesn't fit into spatial axis 0, which has 3 elements"
    ):
        _graph_output((1, 7, 3, 9), (4, 7, 5, 5), **conv_attrs(2))


def test_wrong_number_of_strides():
    with pytest.raises(ShapeError, match="one entry for each of 2 spatial axes"):
        _graph_output((1, 7, 9, 9), (4, 7, 3, 3), **conv_attrs(2, strides=(1,)))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("group", [1, 4])
def test_no_images_and_no_positions(rank, group):
    w = np.ones((8, 4 // group, *(3,) * rank), np.float32)
    attrs = conv_attrs(rank, group=group)
    reference = op_def("conv").reference
    assert reference(attrs, np.ones((0, 4, *(5,) * rank)), w).shape == (0, 8, *(3,) * rank)
    assert reference(attrs, np.ones((2, 4, *(2,) * rank)), w).shape == (2, 8, *(0,) * rank)


def test_no_channels_give_the_bias():
    y = op_def("conv").reference(conv_attrs(1), np.ones((1, 0, 4)), np.ones((2, 0, 3)), np.array([1.0, 2.0]))
    np.testing.assert_array_equal(y, [[[1, 1], [2, 2]]])
