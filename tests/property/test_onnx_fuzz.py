"""Mutated ONNX files: each is imported or refused with an error of ours; nothing crashes, hangs, eats memory.

Two kinds of damage: to the bytes of a file, and to the message that it holds (types, dims, attributes).
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from hagane.core.errors import HaganeError, InternalError
from hagane.frontends.onnx import load_onnx
from tests.conformance.cases import node_cases
from tests.conformance.unsupported import why_unsupported

MAX_SECONDS = 10.0
MAX_GROWTH_BYTES = 1 << 30
NUM_BYTE_MUTATIONS = 200
NUM_MESSAGE_MUTATIONS = 400
NUMBERS = (0, 1, -1, 2, 3, 7, 64, -(2**31), 2**31, 2**40, -(2**63), 2**63 - 1)


@cache
def seeds() -> list[bytes]:
    """Models that use every supported op, those with several nodes and sub-graphs among them."""
    found: dict[str, bytes] = {}
    for case in node_cases().values():
        if why_unsupported(case) is None:
            for op in case.ops:
                found.setdefault(op, case.model.SerializeToString())
    return sorted(found.values())


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flips, overwrites, cuts out or doubles a few bytes."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(changed)) if changed else 0
        kind = rng.randrange(5)
        if kind == 0 and changed:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and changed:
            changed[at] = rng.randrange(256)
        elif kind == 2:
            del changed[at : at + rng.randint(1, 8)]
        elif kind == 3:
            changed[at:at] = changed[at : at + rng.randint(1, 16)]
        else:
            del changed[rng.randrange(len(changed) + 1) :]
    return bytes(changed)


def change_attribute(attribute: AttributeProto, rng: random.Random) -> None:
    """Another number, another kind, or another length."""
    kind = rng.randrange(5)
    if kind == 0:
        attribute.i = rng.choice(NUMBERS)
    elif kind == 1 and attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(NUMBERS)
    elif kind == 2:
        attribute.ints.append(rng.choice(NUMBERS))
    elif kind == 3:
        attribute.type = rng.choice([1, 2, 3, 4, 5, 6, 7, 8])  # type: ignore[assignment]
    else:
        attribute.s = rng.choice(
            [b"", b"constant", b"\xff", b"SAME_UPPER", b"linear", b"i,j->k", b"...->..."]
        )


def change_tensor(tensor: TensorProto, rng: random.Random) -> None:
    """Another type, other dims, other content."""
    kind = rng.randrange(4)
    if kind == 0:
        tensor.data_type = rng.choice([0, 1, 2, 6, 7, 8, 9, 10, 11, 14, 16, 22, 99])
    elif kind == 1 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS)
    elif kind == 2:
        tensor.dims.append(rng.choice(NUMBERS))
    elif tensor.int64_data:
        tensor.int64_data[rng.randrange(len(tensor.int64_data))] = rng.choice(NUMBERS)
    elif tensor.raw_data and tensor.data_type == TensorProto.INT64:
        values = np.frombuffer(tensor.raw_data, np.int64).copy()
        if values.size:
            values[rng.randrange(values.size)] = rng.choice(NUMBERS)
        tensor.raw_data = values.tobytes()


def change_input(value: ValueInfoProto, rng: random.Random) -> None:
    """Another type, rank, dim or name."""
    tensor = value.type.tensor_type
    kind = rng.randrange(5)
    if kind == 0:
        tensor.elem_type = rng.choice([0, 1, 6, 7, 9, 10, 11, 14, 16, 99])
    elif kind == 1 and tensor.shape.dim:
        tensor.shape.dim[rng.randrange(len(tensor.shape.dim))].dim_value = rng.choice(NUMBERS)
    elif kind == 2 and tensor.shape.dim:
        tensor.shape.dim[rng.randrange(len(tensor.shape.dim))].dim_param = rng.choice(["n", "", "a b", "0"])
    elif kind == 3:
        tensor.shape.dim.add().dim_value = rng.choice(NUMBERS)
    elif tensor.shape.dim:
        del tensor.shape.dim[rng.randrange(len(tensor.shape.dim))]


def change_node(node: NodeProto, names: list[str], ops: list[str], rng: random.Random) -> None:
    """Another op, other inputs or outputs, or an attribute less."""
    kind = rng.randrange(6)
    if kind == 0:
        node.op_type = rng.choice(ops)
    elif kind == 1 and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(names)
    elif kind == 2:
        node.input.append(rng.choice(names))
    elif kind == 3 and node.input:
        del node.input[rng.randrange(len(node.input))]
    elif kind == 4 and node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice(names)
    elif node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]


def mutate_message(data: bytes, rng: random.Random) -> bytes:
    """A few changes that leave the file a valid protocol buffer."""
    model = ModelProto.FromString(data)
    graph = model.graph
    nodes = [*graph.node, *(n for f in model.functions for n in f.node)]
    attributes = [a for n in nodes for a in n.attribute]
    for attribute in list(attributes):
        nodes += attribute.g.node
        attributes += [a for n in attribute.g.node for a in n.attribute]
    names = ["", "nowhere", *(i for n in nodes for i in (*n.input, *n.output))]
    ops = ["Relu", "Conv", "Loop", "If", "Reshape", "Gather", "Concat", "Einsum", "Scan", "LSTM"]
    tensors = [*graph.initializer, *(a.t for a in attributes if a.HasField("t"))]
    changes: list[Callable[[], None]] = []
    changes += [lambda a=a: change_attribute(a, rng) for a in attributes]  # type: ignore[misc]
    changes += [lambda t=t: change_tensor(t, rng) for t in tensors]  # type: ignore[misc]
    changes += [lambda v=v: change_input(v, rng) for v in graph.input]  # type: ignore[misc]
    changes += [lambda n=n: change_node(n, names, ops, rng) for n in nodes]  # type: ignore[misc]
    if model.opset_import:
        changes.append(lambda: setattr(model.opset_import[0], "version", rng.randrange(1, 30)))
    for _ in range(rng.randint(1, 3)):
        rng.choice(changes)()
    return model.SerializeToString()


def check(data: bytes) -> None:
    """Imports a file. Raises: whatever isn't an error of ours, and InternalError."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    try:
        load_onnx(data)
    except InternalError:
        raise
    except HaganeError:
        pass
    assert time.monotonic() - start < MAX_SECONDS
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert growth < MAX_GROWTH_BYTES


@pytest.mark.parametrize("seed", range(NUM_BYTE_MUTATIONS))
def test_mutated_bytes(seed: int) -> None:
    rng = random.Random(seed)
    check(mutate_bytes(rng.choice(seeds()), rng))


@pytest.mark.parametrize("seed", range(NUM_MESSAGE_MUTATIONS))
def test_mutated_messages(seed: int) -> None:
    rng = random.Random(seed)
    check(mutate_message(rng.choice(seeds()), rng))
