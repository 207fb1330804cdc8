import itertools

import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.symbolic import sym
from hagane.ir.builder import Builder
from hagane.ir.graph import DType, Graph, tensor
from hagane.ir.registry import op_def
from hagane.ops.conv import conv_attrs
from tests.unit.ops.onnx_oracle import run_onnx

CASES = [
    case
    for case in itertools.product((1, 3), (1, 2), ((0, 0), (1, 2)), ((0, 0), (1, 0)))
    if case[3] == (0, 0) or case[0] > 1  # output padding must be below the stride
]


@pytest.mark.parametrize(("stride", "dilation", "pads", "extra"), CASES)
def test_reference_agrees_with_onnx(stride, dilation, pads, extra):
    rng = np.random.default_rng(0)
    x, w, b = rng.standard_normal((2, 4, 5, 6)), rng.standard_normal((4, 3, 3, 2)), rng.standard_normal(3)
    attrs = conv_attrs(2, strides=(stride, 2), dilations=(dilation, 1), pads_begin=pads, pads_end=pads[::-1])
    attrs["output_padding"] = extra
    [expected] = run_onnx(
        "ConvTranspose",
        [x, w, b],
        strides=attrs["strides"],
        dilations=attrs["dilations"],
        pads=[*attrs["pads_begin"], *attrs["pads_end"]],
        output_padding=extra,
    )
    np.testing.assert_allclose(op_def("conv_transpose").reference(attrs, x, w, b), expected, atol=1e-12)


def test_groups_are_independent():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 4, 5, 6)), rng.standard_normal((4, 3, 3, 2))
    attrs = conv_attrs(2, strides=(2, 2)) | {"output_padding": (0, 0)}
    reference = op_def("conv_transpose").reference
    halves = [reference(attrs, x[:, k : k + 2], w[k : k + 2]) for k in (0, 2)]
    np.testing.assert_allclose(reference(attrs | {"group": 2}, x, w), np.concatenate(halves, axis=1))


def test_upsampling_by_the_kernel_size_needs_no_guard():
    from hagane.ir.scalar import Guard, Load, children

    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, sym("B"), 3, sym("H"), sym("W")))
    w = builder.input("w", tensor(DType.F32, 3, 4, 2, 2))
    y = builder.op("conv_transpose", x, w, None, output_padding=(0, 0), **conv_attrs(2, strides=(2, 2)))
    assert [str(d) for d in y.shape] == ["B", "4", "2*H", "2*W"]
    index = tuple(sym(f"i{a}", bound=d) for a, d in enumerate(y.shape))
    scalar = op_def("conv_transpose").define(y.producer, lambda k, at: Load(DType.F32, k, at), index, 0)
    pending, guards = [scalar], 0
    while pending:
        node = pending.pop()
        guards += isinstance(node, Guard)
        pending += children(node)
    assert guards == 0


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("group", [1, 2])
def test_no_images(rank, group):
    w = np.ones((4, 3, *(2,) * rank), np.float32)
    attrs = conv_attrs(rank, group=group, output_padding=(0,) * rank)
    y = op_def("conv_transpose").reference(attrs, np.ones((0, 4, *(5,) * rank)), w)
    assert y.shape == (0, 3 * group, *(6,) * rank)
