"""Control flow: `if` and `loop`, whose sub-graphs read values of the graphs around them directly.

if(cond), graphs then and else without inputs: the outputs of the branch taken.
loop(trip_count i64[] | None, cond bool[] | None, carried...), graph body(iter i64[], cond bool[], carried...)
-> (cond, carried..., scanned...): the last carried values, then each scanned output stacked along a new first
axis. Scan is a loop that gathers its inputs by `iter`. A dim that types don't determine becomes a symbol.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.hashing import content_hash
from hagane.core.symbolic import Expr, emax, sym
from hagane.ir.graph import Array, Graph, Node, Shape, Type, Value
from hagane.ir.registry import OpDef, register

RunGraph = Callable[[Graph, list[Array]], list[Array]]


def _fresh_dim(node: Node, output: int, axis: int) -> Expr:
    """A symbol for a dim of an output that only a run tells; the one it has, if types are inferred anew.

    Its name follows from the names of what goes in and of what the sub-graphs return: two nodes that agree in
    those compute the same, so that a name stands for one number.
    """
    if output < len(node.outputs) and axis < node.outputs[output].rank:
        present = node.outputs[output].shape[axis]
        if present.as_sym is not None:
            return present
    names = ["" if v is None else v.name for v in node.inputs]
    names += [v.name for name in sorted(node.graphs) for v in node.graphs[name].outputs]
    return sym(f"{node.op}_{content_hash(*names)[:10]}_{output}_{axis}")


# ---- if


def _infer_if(node: Node) -> list[Type]:
    then, other = node.graphs["then"], node.graphs["else"]
    _require_condition("if", node.input(0))
    if len(then.outputs) != len(other.outputs):
        raise ShapeError(f"the branches of an if return {len(then.outputs)} and {len(other.outputs)} values")
    types: list[Type] = []
    for position, (a, b) in enumerate(zip(then.outputs, other.outputs, strict=True)):
        if a.dtype is not b.dtype or a.rank != b.rank or a.type.state != b.type.state:
            raise ShapeError(
                f"output {position} of an if is {a.type} in one branch and {b.type} in the other"
            )
        dims = [
            x if x == y else _fresh_dim(node, position, axis)
            for axis, (x, y) in enumerate(zip(a.shape, b.shape, strict=True))
        ]
        types.append(Type(a.dtype, tuple(dims), a.type.state))
    return types


def _if_elements(node: Node) -> tuple[Expr, ...] | None:
    if not node.graphs["then"].outputs:
        return None
    a, b = node.graphs["then"].outputs[0].elements, node.graphs["else"].outputs[0].elements
    return a if a == b else None


def _require_condition(op: str, cond: Value) -> None:
    if cond.dtype is not DType.BOOL:
        raise ShapeError(f"the condition of {op} must be bool, not {cond}")


def _run_if(node: Node, inputs: list[Array | None], run: RunGraph) -> tuple[Array, ...]:
    return tuple(run(node.graphs["then" if _truth(inputs[0]) else "else"], []))


def _truth(cond: Array | None) -> bool:
    return cond is None or bool(np.asarray(cond).reshape(-1)[0])


# ---- loop


def _infer_loop(node: Node) -> list[Type]:
    body, carried = node.graphs["body"], node.inputs[2:]
    cond = node.optional(1)
    if cond is not None:
        _require_condition("loop", cond)
    if len(body.inputs) != len(carried) + 2 or len(body.outputs) < len(carried) + 1:
        raise ShapeError(
            f"a loop that carries {len(carried)} values has a body of {len(body.inputs)} inputs and "
            f"{len(body.outputs)} outputs"
        )
    _require_condition("loop", body.outputs[0])
    types = [_carried_type(node, position) for position in range(len(carried))]
    trips = _num_trips(node)
    inner = _inner_symbols(node)
    for position, value in enumerate(body.outputs[1 + len(carried) :], len(carried)):
        first = _fresh_dim(node, position, 0) if trips is None else trips
        rest = [
            dim if not inner & {s.name for s in dim.symbols()} else _fresh_dim(node, position, axis)
            for axis, dim in enumerate(value.shape, 1)
        ]
        types.append(Type(value.dtype, (first, *rest)))
    return types


def _carried_type(node: Node, position: int) -> Type:
    """Type after the last trip: a dim stays as it was if a trip keeps it or gives the initial one."""
    body = node.graphs["body"]
    initial, before, after = node.input(position + 2), body.inputs[position + 2], body.outputs[position + 1]
    types = (initial.type, before.type, after.type)
    if len({(t.dtype, len(t.shape), t.state) for t in types}) > 1:
        shown = ", ".join(map(str, types))
        raise ShapeError(
            f"carried value {position} of a loop changes its type (initial, before, after a trip): {shown}"
        )
    dims: list[Expr] = []
    for axis, (first, old, new) in enumerate(zip(initial.shape, before.shape, after.shape, strict=True)):
        dims.append(first if new in (old, first) else _fresh_dim(node, position, axis))
    return Type(initial.dtype, tuple(dims), initial.type.state)


def _num_trips(node: Node) -> Expr | None:
    """The number of trips if it is known beforehand: a known count, a condition that can't turn false."""
    count, cond, body = node.optional(0), node.optional(1), node.graphs["body"]
    if count is None or not count.elements or not (cond is None or _always_true(cond)):
        return None
    after = body.outputs[0]
    if after is body.inputs[1] or _always_true(after):
        return emax(count.elements[0], 0)
    return None


def _always_true(cond: Value) -> bool:
    """True for a constant, also behind copies, that holds."""
    while cond.producer is not None and cond.producer.op == "identity":
        cond = cond.producer.input(0)
    return cond.data is not None and bool(cond.data.reshape(-1)[0])


def _inner_symbols(node: Node) -> set[str]:
    """Names of symbols that the body introduces: outside they mean nothing."""
    found = _introduced(node.graphs["body"])
    for value in node.inputs[2:]:
        if value is not None:
            found -= _names(value.shape)
    return found


def _introduced(graph: Graph) -> set[str]:
    found = {s.name for v in graph.inputs for d in v.shape if (s := d.as_sym) is not None}
    for node in graph.nodes:
        if node.op == "bind_symbols":
            found |= set(node.attrs["names"])
        known = {name for v in node.inputs if v is not None for name in _names(v.shape)}
        for attribute in node.attrs.values():
            items = attribute if isinstance(attribute, tuple) else (attribute,)
            known |= _names(tuple(i for i in items if isinstance(i, Expr)))
        for value in node.inputs:
            known |= _names(value.elements or ()) if value is not None else set()
        for output in node.outputs:
            found |= {s.name for d in output.shape if (s := d.as_sym) is not None and s.name not in known}
    return found


def _names(dims: Shape) -> set[str]:
    return {s.name for d in dims for s in d.symbols()}


def _run_loop(node: Node, inputs: list[Array | None], run: RunGraph) -> tuple[Array, ...]:
    body = node.graphs["body"]
    limit = None if inputs[0] is None else int(np.asarray(inputs[0]).reshape(-1)[0])
    carried = [np.asarray(a) for a in inputs[2:]]
    scanned: list[list[Array]] = [[] for _ in body.outputs[1 + len(carried) :]]
    going, trip = _truth(inputs[1]), 0
    while going and (limit is None or trip < limit):
        cond, *rest = run(body, [np.asarray(trip, np.int64), np.asarray(True), *carried])
        carried = rest[: len(carried)]
        for rows, row in zip(scanned, rest[len(carried) :], strict=True):
            rows.append(row)
        going, trip = _truth(cond), trip + 1
    stacked = [np.stack(rows) if rows else _no_rows(node, k, inputs) for k, rows in enumerate(scanned)]
    return (*carried, *stacked)


def _no_rows(node: Node, scan: int, inputs: list[Array | None]) -> Array:
    """What a scanned output is after no trip: dims that only a trip would tell are 0."""
    body, num_carried = node.graphs["body"], len(inputs) - 2
    dims: dict[str, int] = {}
    for value, array in zip(body.inputs[2:], inputs[2:], strict=True):
        for dim, extent in zip(value.shape, np.shape(array) if array is not None else (), strict=False):
            if dim.as_sym is not None:
                dims[dim.as_sym.name] = extent
    value = body.outputs[1 + num_carried + scan]
    shape = [d.evaluate(dims) if _names((d,)) <= dims.keys() else 0 for d in value.shape]
    return np.zeros((0, *shape), np.float64 if value.dtype.is_float else value.dtype.np)


register(OpDef("if", "control", _infer_if, _run_if, elements=_if_elements))
register(OpDef("loop", "control", _infer_loop, _run_loop))
