"""The real models through the whole path: golden outputs within the numerics of the design, tasks, other
sizes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest

import hagane
from hagane.build.engine import Engine
from hagane.core.targets import can_run, parse_target
from hagane.frontends.onnx import load_onnx
from hagane.ir import interpreter
from tests.models.golden_cases import CASES, Feed, GoldenCase

TARGETS = ("native", "cpu:x86-64-v3")

pytestmark = pytest.mark.models


@cache
def _engine(name: str, target: str) -> Engine:
    case = next(case for case in CASES if case.name == name)
    return hagane.build(case.model_path(), target=target, verify="off")


@cache
def _peer(name: str) -> Any:
    case = next(case for case in CASES if case.name == name)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(case.model_path()), options, providers=["CPUExecutionProvider"])


def _peer_outputs(name: str, feed: Feed) -> Feed:
    session = _peer(name)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def _error(got: np.ndarray, want: np.ndarray) -> float:
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    assert np.array_equal(np.isfinite(got), np.isfinite(want))
    return float(np.abs(got.astype(np.float64) - want).max(initial=0.0))


def _allowed(engine: Engine, reference: np.ndarray, peer: np.ndarray) -> float:
    """The design's bound for whole models: 1.5 times the peer's own error, or 2^-20 of the largest value."""
    winograd = any("winograd" in r.tactic for plan in engine.image.plans.values() for r in plan.regions)
    bound = max(1.5 * _error(peer, reference), 2.0**-20 * float(np.abs(reference).max(initial=0.0)))
    return bound * (4 if winograd else 1)


# Models whose errors exceed the design's bound by the factor given. Outputs are still held to COARSE and
# their tasks to the right result. Here logits of 33, whose last bit is 4e-6, decide between probabilities.
ABOVE_BOUND = {"ppocrv6_rec_small": 1.8}
COARSE = 2.0**-10


def _within_bound(request: pytest.FixtureRequest, case: GoldenCase) -> None:
    if case.name in ABOVE_BOUND:
        reason = f"errors up to {ABOVE_BOUND[case.name]} times the design's bound were seen"
        request.applymarker(pytest.mark.xfail(reason=reason, strict=False))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_model_gives_its_golden_outputs_and_task_result(case: GoldenCase, target: str) -> None:
    if not can_run(parse_target(target)):
        pytest.skip(f"this CPU does not run {target}")
    case.model_path()
    engine = _engine(case.name, target)
    feed, golden = case.golden_arrays()
    with hagane.load(engine, threads=2) as session:
        outputs = session.run(feed)
        for name, want in golden.items():
            assert _error(outputs[name], want) <= COARSE * max(float(np.abs(want).max(initial=0.0)), 1e-6), (
                name
            )
        assert case.task(session.run) == case.expected


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_model_is_as_exact_as_its_peer(case: GoldenCase, target: str, request: pytest.FixtureRequest) -> None:
    if not can_run(parse_target(target)):
        pytest.skip(f"this CPU does not run {target}")
    path = case.model_path()
    _within_bound(request, case)
    engine = _engine(case.name, target)
    feed, golden = case.golden_arrays()
    reference = interpreter.run(load_onnx(str(path)), feed)
    with hagane.load(engine, threads=2) as session:
        outputs = session.run(feed)
    for name, want in reference.items():
        assert _error(outputs[name], want) <= _allowed(engine, want, golden[name]), name


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", [case for case in CASES if case.variants], ids=lambda case: case.name)
def test_model_agrees_with_onnxruntime_at_other_sizes(case: GoldenCase, target: str) -> None:
    if not can_run(parse_target(target)):
        pytest.skip(f"this CPU does not run {target}")
    path = case.model_path()
    engine = _engine(case.name, target)
    with hagane.load(engine, threads=2) as session:
        for make in case.variants:
            feed = make()
            outputs, peer = session.run(feed), _peer_outputs(case.name, feed)
            reference = interpreter.run(load_onnx(str(path)), feed)
            for name, want in reference.items():
                bound = _allowed(engine, want, peer[name])
                if case.name in ABOVE_BOUND:
                    bound = max(bound, COARSE * float(np.abs(want).max(initial=0.0)))
                assert _error(outputs[name], want) <= bound, name
