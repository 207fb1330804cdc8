"""A wrong kernel is caught by the verified build and named; the engine still gives the right answer."""

import logging

import numpy as np
import pytest
from onnx import helper

import hagane
from hagane.codegen.llvm import Module
from hagane.core.errors import BuildError
from hagane.core.symbolic import product
from hagane.core.targets import CpuTarget
from hagane.ir.region import Region
from hagane.kernels import catalog
from hagane.kernels.llvm.frame import Frame
from hagane.kernels.llvm.generic import Generic
from hagane.kernels.tactic import KernelLaunch, Lowering, Output, Params
from tests.unit.build.models import small_model


class Planted(Generic):
    """Computes any region wrongly: all zeros but for the first element."""

    name = "planted"

    def lower(self, region: Region, target: CpuTarget, params: Params) -> Lowering:
        size = product(region.outputs[0].shape) * region.outputs[0].dtype.itemsize

        def emit(module: Module, name: str) -> None:
            frame = Frame(module, name, 1, ())
            frame.f.fill(frame.pointers[0], 0, size.value)

        return Lowering((KernelLaunch("planted", emit, (Output(),), (), serial=True),))


@pytest.fixture
def feed() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)}


def test_a_planted_wrong_kernel_is_named_and_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, feed: dict[str, np.ndarray]
) -> None:
    right = hagane.load(hagane.build(small_model(), verify="off")).run(feed)
    tactics = catalog.all_tactics()
    planted = (Planted(), *tactics)
    monkeypatch.setattr(catalog, "all_tactics", lambda: planted)
    with caplog.at_level(logging.WARNING):
        engine = hagane.build(small_model(), verify="quick")
    assert "/act/Sigmoid (Sigmoid)" in caplog.text
    assert "planted" in caplog.text
    got = hagane.load(engine).run(feed)
    np.testing.assert_allclose(got["y"], right["y"], rtol=1e-5)


def test_without_verification_the_planted_kernel_shows(
    monkeypatch: pytest.MonkeyPatch, feed: dict[str, np.ndarray]
) -> None:
    right = hagane.load(hagane.build(small_model(), verify="off")).run(feed)
    tactics = catalog.all_tactics()
    planted = (Planted(), *tactics)
    monkeypatch.setattr(catalog, "all_tactics", lambda: planted)
    got = hagane.load(hagane.build(small_model(), verify="off")).run(feed)
    assert not np.allclose(got["y"], right["y"])


def test_a_region_without_any_right_kernel_fails_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    only = (Planted(),)
    monkeypatch.setattr(catalog, "all_tactics", lambda: only)
    with pytest.raises(BuildError, match="wrong results") as caught:
        hagane.build(small_model(), verify="quick")
    assert "Sigmoid" in str(caught.value) or "Gemm" in str(caught.value)


def test_counts_that_depend_on_data_are_taken_from_the_reference() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "nonzero",
        [helper.make_tensor_value_info("x", 1, ["a", "b"])],
        [helper.make_tensor_value_info("y", 7, [2, None])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    engine = hagane.build(model, verify="full")
    records = [line.split() for line in engine.image.verification.splitlines()]
    assert records and all(status == "ok" and int(runs) > 1 for _, _, status, runs in records)
    x = np.array([[0, 2, 0], [3, 0, 4]], np.float32)
    with hagane.load(engine) as session:
        np.testing.assert_array_equal(session.run({"x": x})["y"], np.nonzero(x))
