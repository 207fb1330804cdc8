import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, tensor
from hagane.ir.registry import op_def
from tests.unit.ops.onnx_oracle import run_onnx

rng = np.random.default_rng(0)
X = rng.standard_normal((2, 3, 9, 11))
CORNER = rng.uniform(-4, 20, (7, 2))
ROIS = np.concatenate([CORNER, CORNER + rng.uniform(0.5, 20, (7, 2))], axis=1)
IMAGES = np.array([0, 1, 1, 0, 1, 0, 0])


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("sampling", [0, 1, 3])
@pytest.mark.parametrize("half_pixel", [False, True])
def test_reference_agrees_with_onnx(mode, sampling, half_pixel):
    [expected] = run_onnx(
        "RoiAlign",
        [X, ROIS, IMAGES],
        mode=mode,
        sampling_ratio=sampling,
        output_height=4,
        output_width=3,
        spatial_scale=0.5,
        coordinate_transformation_mode="half_pixel" if half_pixel else "output_half_pixel",
    )
    attrs = {
        "mode": mode,
        "height": 4,
        "width": 3,
        "sampling": sampling,
        "scale": 0.5,
        "half_pixel": half_pixel,
    }
    np.testing.assert_allclose(op_def("roi_align").reference(attrs, X, ROIS, IMAGES), expected, atol=1e-12)


def test_mistakes():
    builder = Builder(Graph())
    x, rois = builder.input("x", tensor(DType.F32, 1, 2, 3, 4)), builder.input("r", tensor(DType.F32, 5, 5))
    attrs = {"mode": "avg", "height": 4, "width": 3, "sampling": 2, "scale": 0.5, "half_pixel": True}
    with pytest.raises(ShapeError, match=r"roi_align takes x\[N, C, H, W\], rois\[R, 4\]"):
        builder.op("roi_align", x, rois, builder.input("b", tensor(DType.I64, 5)), **attrs)
