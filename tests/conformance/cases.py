"""The node tests that ship with the onnx package, as models with inputs and expected outputs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from onnx import ModelProto, SequenceProto, TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

# Outputs in these types are compared with what their own rounding allows: inner steps are rounded in the
# expected values and are not in ours. Units: relative and absolute error.
TOLERANCES = {"bfloat16": (2.0**-5, 2.0**-6), "float16": (2.0**-8, 2.0**-9)}


NOISE = 1e-6  # rounding noise in expected values that should be zero
PARAMETERS = ("scales", "roi", "lower_edge_hertz", "upper_edge_hertz")


@dataclass(frozen=True)
class Case:
    name: str
    model: ModelProto
    runs: list[tuple[dict[str, Any], dict[str, Any]]]  # inputs and expected outputs by name
    rtol: float
    atol: float

    @property
    def ops(self) -> set[str]:
        """The model's ops, those of other domains with the domain in front, in sub-graphs too."""
        return _ops_of(self.model.graph.node) | {op for f in self.model.functions for op in _ops_of(f.node)}

    @property
    def opset(self) -> int:
        return max((o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx")), default=0)

    def type_codes(self) -> set[int]:
        """Element types of inputs and outputs, and targets of casts."""
        values = [*self.model.graph.input, *self.model.graph.output]
        found = {v.type.tensor_type.elem_type for v in values}
        return found | {a.i for n in self.model.graph.node for a in n.attribute if a.name == "to"}

    def integer_inputs(self) -> list[str]:
        """Inputs that models usually have as constants: integers of rank 0 or 1, and what Resize calls so."""
        values = {v.name: v.type.tensor_type for v in self.model.graph.input}
        small = {n: t for n, t in values.items() if len(t.shape.dim) < 2}
        kinds = (TensorProto.INT64, TensorProto.INT32)
        return [n for n, t in small.items() if t.elem_type in kinds or n in PARAMETERS]

    def kinds(self) -> set[str]:
        """Kinds of inputs and outputs: tensor_type, sequence_type, ..."""
        return {v.type.WhichOneof("value") for v in (*self.model.graph.input, *self.model.graph.output)}


def _ops_of(nodes: Any) -> set[str]:
    found = set()
    for node in nodes:
        found.add(f"{node.domain}.{node.op_type}" if node.domain else node.op_type)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= _ops_of(attribute.g.node)
    return found


def as_array(value: Any) -> Any:
    """A tensor of a test as an array; sequences as lists, absent optionals as None."""
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, SequenceProto):
        return [numpy_helper.to_array(t) for t in value.tensor_values]
    if value is None or isinstance(value, list):
        return value
    return np.asarray(value)


@cache
def node_cases() -> dict[str, Case]:
    """All node tests by name."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        tests = load_model_tests(kind="node")
    found = {}
    for test in tests:
        inputs = [v.name for v in test.model.graph.input]
        outputs = [v.name for v in test.model.graph.output]
        runs = [
            (
                dict(zip(inputs, map(as_array, given), strict=False)),
                dict(zip(outputs, map(as_array, wanted), strict=False)),
            )
            for given, wanted in test.data_sets
        ]
        found[test.name] = Case(test.name, test.model, runs, test.rtol, test.atol)
    return found


def with_constants(case: Case, feed: dict[str, Any]) -> ModelProto:
    """The case's model with its small integer inputs as initializers, the way exported models have them."""
    model = ModelProto()
    model.CopyFrom(case.model)
    for name in case.integer_inputs():
        if feed.get(name) is not None:
            model.graph.initializer.append(numpy_helper.from_array(feed[name], name))
    return model


def check_output(name: str, got: Any, wanted: Any, case: Case) -> None:
    """Raises: AssertionError unless type, shape and values agree."""
    wanted = np.asarray(wanted)
    assert got.shape == wanted.shape, f"{name} has shape {got.shape}, expected {wanted.shape}"
    if wanted.dtype.kind in "OUST":
        assert [str(v) for v in got.ravel()] == [str(v) for v in wanted.ravel()], name
        return
    assert got.dtype == wanted.dtype, f"{name} has type {got.dtype}, expected {wanted.dtype}"
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(got, wanted, err_msg=name)
        return
    rtol, atol = TOLERANCES.get(wanted.dtype.name, (case.rtol, max(case.atol, NOISE)))
    wide = np.float64
    np.testing.assert_allclose(got.astype(wide), wanted.astype(wide), rtol=rtol, atol=atol, err_msg=name)
