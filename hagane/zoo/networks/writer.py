"""Writes an ONNX network node by node, with weights that depend only on the seed and the weight's name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Dim = int | str
"""A dim of an input: a size, or the name of a dynamic dim."""

_OPSET = 17
_IR_VERSION = 8  # the one that opset 17 came with, so that every consumer of opset 17 reads the file


class NetworkWriter:
    """Collects nodes, weights, inputs and outputs; `finish` makes the model.

    Values are named after the node that computes them, nodes after the open scopes, as in a PyTorch export:
    `/layer1/conv1/Conv`.
    """

    def __init__(self, name: str, seed: int) -> None:
        self._name = name
        self._seed = seed
        self._scopes: list[str] = []
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._names: set[str] = set()

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefixes the names of what is written inside."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def input(self, name: str, shape: Sequence[Dim], dtype: int = TensorProto.FLOAT) -> str:
        """Declares an input of the network."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def output(self, name: str, value: str, shape: Sequence[Dim]) -> None:
        """Makes a float value an output of the network, under a name of its own."""
        self._nodes.append(helper.make_node("Identity", [value], [name], name=f"/{name}/Identity"))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """Stores an array under the open scopes' name; returns its full name."""
        full = ".".join([*self._scopes, name])
        if full not in self._weights:
            self._weights[full] = numpy_helper.from_array(array, full)
        return full

    def uniform(self, name: str, shape: Sequence[int], low: float, high: float) -> str:
        """Stores a float32 weight with values drawn evenly from [low, high)."""
        full = ".".join([*self._scopes, name])
        return self.constant(name, _uniform(f"{self._seed}/{full}", shape, low, high))

    def weight(self, name: str, shape: Sequence[int], std: float) -> str:
        """Stores a float32 weight with mean 0 and the given standard deviation."""
        reach = std * 3.0**0.5
        return self.uniform(name, shape, -reach, reach)

    def node(self, op: str, inputs: Sequence[str], name: str = "", **attributes: Any) -> str:
        """Writes a node with one output; returns the value's name."""
        return self.nodes(op, inputs, 1, name, **attributes)[0]

    def nodes(
        self, op: str, inputs: Sequence[str], num_outputs: int, name: str = "", **attributes: Any
    ) -> list[str]:
        """Writes a node with several outputs; returns the values' names."""
        full = self._unused("/" + "/".join([*self._scopes, *([name] if name else []), op]))
        outputs = [f"{full}_output_{i}" for i in range(num_outputs)]
        self._nodes.append(helper.make_node(op, list(inputs), outputs, name=full, **attributes))
        return outputs

    def finish(self) -> onnx.ModelProto:
        """The model, checked."""
        graph = helper.make_graph(
            self._nodes, self._name, self._inputs, self._outputs, initializer=list(self._weights.values())
        )
        model = helper.make_model(
            graph,
            producer_name="hagane-zoo",
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
        )
        onnx.checker.check_model(model)
        return model

    def _unused(self, name: str) -> str:
        unique, count = name, 0
        while unique in self._names:
            count += 1
            unique = f"{name}_{count}"
        self._names.add(unique)
        return unique


def _uniform(label: str, shape: Sequence[int], low: float, high: float) -> NDArray[np.float32]:
    """Even values from Philox's raw bits: NumPy promises to keep their stream, but not its distributions'."""
    size = int(np.prod(shape))
    key = int.from_bytes(hashlib.sha256(label.encode()).digest()[:16], "little")
    raw = np.random.Philox(key=key).random_raw((size + 1) // 2).astype("<u8", copy=False)
    unit = (raw.view("<u4")[:size] >> np.uint32(8)).astype(np.float32)
    unit *= np.float32(2.0**-24)
    unit *= np.float32(high - low)
    unit += np.float32(low)
    return unit.reshape(shape)
