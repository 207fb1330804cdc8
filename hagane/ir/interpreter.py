"""Runs a graph with each op's NumPy reference, in float64: the oracle for every pass and kernel.

Float tensors are held as float64 between ops; a `cast` rounds to its type on the way. Simple on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import HaganeError, RunError
from hagane.core.symbolic import Expr
from hagane.ir.graph import Array, Graph, Node, Value
from hagane.ir.registry import as_tuple, op_def

Watch = Callable[[Value, Array], None]


def run(
    graph: Graph, feed: Mapping[str, Any], watch: Watch | None = None, *, rounded: bool = False
) -> dict[str, Array]:
    """Outputs by name, in their declared types. `watch` sees every value as it is computed.

    rounded: every value is rounded to its type before others read it, as where each op is a kernel.

    Raises: RunError for a missing input or one whose shape doesn't fit.
    """
    dims: dict[str, int] = {}
    values: dict[Value, Array] = {}
    for value in graph.inputs:
        if value.name not in feed:
            raise RunError(
                f"input {value.name!r} is missing", where={"inputs": ", ".join(map(str, graph.inputs))}
            )
        array = np.asarray(feed[value.name])
        bind_dims(value, array.shape, dims)
        values[value] = widen(array, value.dtype)
    check_dims(graph, {v: values[v].shape for v in graph.inputs}, dims)
    _run_nodes(graph, values, dims, watch, rounded)
    results = zip(graph.port_names, graph.outputs, strict=True)
    return {name: narrow(_read(v, values), v.dtype) for name, v in results}


def bind_dims(value: Value, shape: tuple[int, ...], dims: dict[str, int]) -> None:
    """Notes in `dims` what the array's shape says about the symbols of value's shape."""
    if len(shape) != value.rank:
        raise RunError(
            f"input {value.name!r} has shape {list(shape)}, it should have rank {value.rank}: {value.type}"
        )
    for dim, extent in zip(value.shape, shape, strict=True):
        symbol = dim.as_sym
        if symbol is not None:
            dims.setdefault(symbol.name, extent)


def check_dims(graph: Graph, shapes: Mapping[Value, tuple[int, ...]], dims: Mapping[str, int]) -> None:
    """Raises: RunError where an input's shape contradicts its declared one."""
    for value in graph.inputs:
        wanted = tuple(d.evaluate(dims) for d in value.shape)
        if wanted != shapes[value]:
            raise RunError(
                f"input {value.name!r} has shape {list(shapes[value])}, expected {list(wanted)}: {value.type}"
            )


def widen(array: Array, dtype: DType) -> Array:
    """The array as the interpreter holds it: floats as float64, the rest in their own type."""
    if dtype.is_float:
        return np.asarray(array, dtype=dtype.np).astype(np.float64)
    return np.asarray(array, dtype=dtype.np)


def narrow(array: Array, dtype: DType) -> Array:
    """The array in its declared type."""
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(dtype.np)


def _read(value: Value, values: dict[Value, Array]) -> Array:
    if value.data is not None and value not in values:
        values[value] = widen(value.data, value.dtype)
    return values[value]


def concrete(attribute: Any, dims: Mapping[str, int]) -> Any:
    """An attribute with all expressions evaluated."""
    if isinstance(attribute, Expr):
        bound = all(s.name in dims for s in attribute.symbols())
        return attribute.evaluate(dims) if bound else None  # a nonzero's count is known after it has run
    if isinstance(attribute, tuple):
        return tuple(concrete(a, dims) for a in attribute)
    return attribute


def _run_nodes(
    graph: Graph, values: dict[Value, Array], dims: dict[str, int], watch: Watch | None, rounded: bool
) -> None:
    for node in graph.nodes:
        inputs = [None if v is None else _read(v, values) for v in node.inputs]
        try:
            outputs = _run_node(node, inputs, values, dims, watch, rounded)
        except HaganeError:
            raise
        except Exception as error:
            shown = ", ".join("none" if a is None else f"{a.dtype}{list(a.shape)}" for a in inputs)
            raise RunError(
                f"{node.op} failed in the interpreter: {error}",
                where={"node": str(node.loc), "inputs": shown},
            ) from error
        for value, array in zip(node.outputs, outputs, strict=True):
            values[value] = np.asarray(array, np.float64 if value.dtype.is_float else None)
            if rounded:
                values[value] = widen(narrow(values[value], value.dtype), value.dtype)
            _bind_runtime_dims(value, values[value].shape, dims)
            if watch is not None:
                watch(value, values[value])


def _bind_runtime_dims(value: Value, shape: tuple[int, ...], dims: dict[str, int]) -> None:
    for dim, extent in zip(value.shape, shape, strict=False):
        symbol = dim.as_sym
        if symbol is not None and symbol.name not in dims:
            dims[symbol.name] = extent


def _run_node(
    node: Node,
    inputs: list[Array | None],
    values: dict[Value, Array],
    dims: dict[str, int],
    watch: Watch | None,
    rounded: bool,
) -> tuple[Array, ...]:
    definition = op_def(node.op)

    def run_graph(graph: Graph, arguments: list[Array]) -> list[Array]:
        inner = dict(values)
        inner.update(zip(graph.inputs, arguments, strict=True))
        inner_dims = dict(dims)
        for value in graph.inputs:
            _bind_runtime_dims(value, inner[value].shape, inner_dims)
        _run_nodes(graph, inner, inner_dims, watch, rounded)
        return [_read(v, inner) for v in graph.outputs]

    if definition.kind in ("control", "region"):
        return as_tuple(definition.reference(node, inputs, run_graph))
    attrs = {name: concrete(a, dims) for name, a in node.attrs.items()}
    if node.op == "bind_symbols":
        names, array = attrs["names"], inputs[0]
        assert array is not None
        dims.update(zip(names, (int(v) for v in array.reshape(-1)), strict=True))
        return ()
    with np.errstate(all="ignore"):
        return as_tuple(definition.reference(attrs, *inputs))
