from pathlib import Path

import numpy as np
import pytest

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, RunError
from hagane.debug.compare import compare_model, compare_nodes, difference, reference_outputs
from hagane.debug.duel import Times, duel
from hagane.debug.feeds import default_dims, make_feed, within
from hagane.plan.model import Symbol
from hagane.runtime.session import TensorInfo


def test_equal_arrays():
    found = difference("t", np.array([1.0, np.inf, np.nan]), np.array([1.0, np.inf, np.nan]))
    assert found.ok and found.max_error == 0


@pytest.mark.parametrize(
    "got", [[1.1, np.inf, np.nan], [1.0, 5.0, np.nan], [1.0, np.inf, 0.0], [np.nan, np.inf, np.nan]]
)
def test_different_arrays(got: list[float]):
    assert not difference("t", np.array(got), np.array([1.0, np.inf, np.nan])).ok


def test_errors_are_relative_to_the_largest_value():
    assert difference("t", np.array([1000.0, 0.001]), np.array([1000.0, 0.0])).ok
    assert not difference("t", np.array([1.0, 0.001]), np.array([1.0, 0.0])).ok
    assert difference("t", np.array([0.0]), np.array([0.0])).ok


def test_integers_are_counted():
    found = difference("t", np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5]))
    assert (found.max_error, found.relative, found.ok) == (1, 0.25, False)


def test_other_shapes_are_no_small_difference():
    with pytest.raises(RunError, match="'t' has shape \\[2\\], the reference has \\[3\\]"):
        difference("t", np.zeros(2), np.zeros(3))


def test_nodes_agree_with_the_interpreter(model: Path):
    found = compare_nodes(model, {"x": np.ones((2, 4), np.float32)})
    assert all(d.ok for d in found)
    assert {d.where for d in found} == {"/fc/Gemm (Gemm) in dense.onnx", "/fc/Relu (Relu) in dense.onnx"}


def test_a_whole_model(model: Path):
    assert [(d.name, d.ok) for d in compare_model(model, batch=3)] == [("y", True)]
    assert len(compare_model(model, {"x": np.ones((1, 4), np.float32)}, per_node=True)) == 3


def test_both_references_agree(model: Path):
    feed = {"x": np.ones((2, 4), np.float32)}
    ours, theirs = (reference_outputs(model, feed, kind)["y"] for kind in ("reference", "onnxruntime"))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_typical_dims():
    ports = [TensorInfo("x", DType.F32, ("batch", "2*n", "t")), TensorInfo("v", DType.F32, ("k",))]
    symbols = {"n": Symbol("n", 1, 4), "t": Symbol("t", 16, None, 16)}
    assert default_dims(ports, symbols, {"k": 3}, batch=5) == {"batch": 5, "n": 4, "t": 16, "k": 3}


def test_within():
    assert within(Symbol("n", 1, 10, 4), 9) == 8
    assert within(Symbol("n", 5, None, 4), 1) == 8
    assert within(Symbol("n"), 0) == 0


def test_feeds_have_the_types_of_the_ports():
    ports = [
        TensorInfo("f", DType.F16, (2, "n")),
        TensorInfo("i", DType.I64, (3,)),
        TensorInfo("b", DType.BOOL, ()),
    ]
    feed = make_feed(ports, {"n": 4})
    assert {name: (a.dtype.name, a.shape) for name, a in feed.items()} == {
        "f": ("float16", (2, 4)),
        "i": ("int64", (3,)),
        "b": ("bool", ()),
    }
    assert set(np.unique(feed["i"])) <= {0, 1}
    with pytest.raises(ModelError, match="holds strings"):
        make_feed([TensorInfo("s", DType.STRING, (1,))], {})


def test_a_duel(engine: Path, model: Path):
    sides = [("hagane", str(engine)), ("onnxruntime", str(model))]
    ours, theirs = duel(sides, {"x": np.ones((1, 4), np.float32)}, threads=1, seconds=0.05, blocks=2)
    assert (ours.kind, theirs.kind) == ("hagane", "onnxruntime")
    for times in (ours, theirs):
        assert len(times.all_us) >= 2 and times.min_us <= times.median_us <= times.p99_us


def test_a_side_that_fails_says_why(engine: Path):
    with pytest.raises(RunError, match="hagane failed on this model: RunError: the feed lacks x"):
        duel([("hagane", str(engine))], {"wrong": np.ones((1, 4), np.float32)}, threads=1, seconds=0.05)


def test_percentiles():
    times = Times("x", [float(i) for i in range(1, 101)])
    assert (times.min_us, times.median_us, times.p99_us) == (1, 50.5, 100)
