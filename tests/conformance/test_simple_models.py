"""The small models that ship with the onnx package as files: sequences, shapes, signs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

from hagane.frontends.onnx import load_onnx
from hagane.ir.verify import verify
from tests.conformance.executors import EXECUTORS
from tests.conformance.unsupported import STRINGS, TRAINING

SKIPPED = {
    "test_gradient_of_add": TRAINING,
    "test_gradient_of_add_and_mul": TRAINING,
    "test_sequence_model8": "the number of parts of a sequence depends on data",
    "test_strnorm": STRINGS,
}

# What engines don't do yet; passes as soon as they do.
PENDING_COMPILED = {
    "test_expand_shape": "the plan doesn't declare symbols that are bound at run time",
    "test_sequence": "an output that is an input loses its name",
}


def read(path: Path) -> np.ndarray:
    return numpy_helper.to_array(TensorProto.FromString(path.read_bytes()))


def params() -> list[object]:
    found = []
    for case in load_model_tests(kind="simple"):
        reason = next((why for name, why in SKIPPED.items() if case.name.startswith(name)), None)
        marks = [pytest.mark.skip(reason=reason)] if reason else []
        found.append(pytest.param(Path(case.model_dir), id=case.name, marks=marks))
    return found


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("folder", params())
def test_simple_model(folder: Path, executor: str, request: pytest.FixtureRequest) -> None:
    pending = next((why for name, why in PENDING_COMPILED.items() if folder.name.startswith(name)), None)
    if pending and executor != "interpreter":
        request.applymarker(pytest.mark.xfail(reason=pending, strict=False))
    graph = load_onnx(folder / "model.onnx")
    verify(graph)
    for data in sorted(folder.glob("test_data_set_*")):
        feed = {v.name: read(data / f"input_{k}.pb") for k, v in enumerate(graph.inputs)}
        outputs = EXECUTORS[executor](graph, feed)
        for k, value in enumerate(graph.outputs):
            wanted = read(data / f"output_{k}.pb")
            got = outputs[value.name]
            assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(got.astype(float), wanted.astype(float), rtol=1e-3, atol=1e-6)
