"""ONNX's own node tests: import and run each on every executor, and compare with the expected outputs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from hagane.core.errors import ModelError
from hagane.frontends.onnx import load_onnx
from hagane.ir.graph import Graph
from hagane.ir.verify import verify
from tests.conformance.cases import Case, check_output, node_cases, with_constants
from tests.conformance.executors import EXECUTORS
from tests.conformance.unsupported import why_pending, why_pending_compiled, why_unsupported


def params() -> Iterator[Any]:
    for name, case in node_cases().items():
        reason = why_unsupported(case)
        marks = [pytest.mark.skip(reason=reason)] if reason else []
        pending = why_pending(case)
        if pending and not reason:
            marks.append(pytest.mark.xfail(reason=pending, strict=False))
        yield pytest.param(case, id=name, marks=marks)


def imported(case: Case, feed: dict[str, Any]) -> tuple[Graph, dict[str, Any]]:
    """The graph, and the inputs that are left where some had to become constants.

    Axes and the like are inputs in these tests; exported models have them as constants.
    """
    try:
        return load_onnx(case.model.SerializeToString()), feed
    except ModelError as error:
        if not case.integer_inputs():
            raise error
    model: ModelProto = with_constants(case, feed)
    constants = {t.name for t in model.graph.initializer}
    return load_onnx(model.SerializeToString()), {k: v for k, v in feed.items() if k not in constants}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("case", list(params()))
def test_node(case: Case, executor: str, request: pytest.FixtureRequest) -> None:
    pending = why_pending_compiled(case) if executor == "compiled" else None
    if pending:
        request.applymarker(pytest.mark.xfail(reason=pending, strict=False))
    for feed, wanted in case.runs:
        graph, inputs = imported(case, feed)
        verify(graph)
        with np.errstate(all="ignore"):
            outputs = EXECUTORS[executor](graph, inputs)
        for name, expected in wanted.items():
            check_output(name, outputs[name], expected, case)


@cache
def all_ops() -> set[str]:
    return {op for case in node_cases().values() for op in case.ops}


def test_every_unsupported_op_has_a_test() -> None:
    from tests.conformance.unsupported import OPS

    unknown = sorted(set(OPS) - all_ops())
    assert not unknown, (
        f"these ops are in no node test, so the list of unsupported ones is out of date: {unknown}"
    )
