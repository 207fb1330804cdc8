"""A wrong kernel is caught by the verified build and named; the engine still gives the right answer."""

import logging

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import hagane
from hagane.build.verify import _compare
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


def test_a_step_that_rounding_leads_over_is_no_fault() -> None:
    """The float64 tanh of 10 is below 1, the f32 one is 1, and so are their floors."""
    nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Floor", ["t"], ["y"])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "step", [info("x", 1, [64, 1024])], [info("y", 1, [64, 1024])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    engine = hagane.build(model, verify="full")
    assert " ok " in engine.image.verification and " off " not in engine.image.verification


def test_what_is_near_neither_reference_is_a_fault() -> None:
    want, moved = {"y": np.array([0, 1, 2], np.float32)}, {"y": np.array([0, 1, 2], np.float32)}
    rounded = {"y": np.array([1, 1, 2], np.float32)}
    assert _compare({"y": np.array([1, 1, 2], np.float32)}, want, moved, 1.0) is not None
    assert _compare({"y": np.array([1, 1, 2], np.float32)}, want, moved, 1.0, rounded) is None
    assert _compare({"y": np.array([0.5, 1, 2], np.float32)}, want, moved, 1.0, rounded) is not None
    assert _compare({"y": np.array([1, 1, 3], np.float32)}, want, moved, 1.0, rounded) is not None


def test_a_kernel_may_keep_f16_unrounded_inside(caplog: pytest.LogCaptureFixture) -> None:
    """The sum is stored as f16, the difference isn't: the f32 result is between both references."""
    nodes = [
        helper.make_node("ReduceSum", ["x", "axes"], ["sum"], keepdims=1),
        helper.make_node("Sub", ["x", "sum"], ["rest"]),
        helper.make_node("Cast", ["rest"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["wide", "wide"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "halves",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["n", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 32])],
        [numpy_helper.from_array(np.array([-1]), "axes")],
    )
    with caplog.at_level(logging.WARNING):
        engine = hagane.build(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        )
    assert not caplog.records
    x = np.random.default_rng(0).standard_normal((5, 32)).astype(np.float16)
    exact = 2 * (x.astype(np.float64) - x.astype(np.float64).sum(1, keepdims=True))
    with hagane.load(engine) as session:
        np.testing.assert_allclose(session.run({"x": x})["y"], exact, rtol=2e-3, atol=2e-3)
