"""The table of golden cases itself, checked with ONNX Runtime before anything is held to it."""

import numpy as np
import onnxruntime
import pytest

from tests.models.golden_cases import CASES

WITHOUT_VARIANTS = {"selfie_segmentation", "silero_vad_openvino_16k"}  # all their dims are constant
pytestmark = pytest.mark.models


def runner(case):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(case.model_path()), options)
    names = [output.name for output in session.get_outputs()]
    return lambda feed: dict(zip(names, session.run(None, feed), strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_holds_for_onnxruntime(case):
    run = runner(case)
    feed, outputs = case.golden_arrays()
    for name, value in run(feed).items():
        # Three times the largest difference that ONNX Runtime's own optimisation makes, on basic_pitch.
        np.testing.assert_allclose(value, outputs[name], atol=2e-3 * max(1.0, np.abs(outputs[name]).max()))
    assert case.task(run) == case.expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_variants_are_of_other_shapes_and_run(case):
    assert len(case.variants) == (0 if case.name in WITHOUT_VARIANTS else 2)
    run = runner(case)
    golden, _ = case.golden_arrays()
    shapes = [{name: value.shape for name, value in golden.items()}]
    for variant in case.variants:
        feed = variant()
        outputs = run(feed)
        assert all(np.isfinite(value).all() for value in outputs.values())
        assert {name: value.dtype for name, value in feed.items()} == {
            name: value.dtype for name, value in golden.items()
        }
        shapes.append({name: value.shape for name, value in feed.items()})
    assert all(shapes.count(shape) == 1 for shape in shapes)
