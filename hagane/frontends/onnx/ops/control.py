"""Control flow: If, Loop and Scan. A branch whose condition is known at import is put in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import GraphProto

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, emax
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.emit import Emitter
from hagane.frontends.onnx.registry import converter
from hagane.frontends.onnx.scope import Entry
from hagane.ir.graph import Graph, Type, Value

MOST_ROWS = 1 << 24  # "while" loops have a trip count beyond anything that memory holds
MAX_WIDENINGS = 16  # rounds until the types of carried values stay as they are; two are usual


def as_condition(ctx: NodeContext, emit: Emitter, cond: Value) -> Value:
    """A condition as a bool scalar. Raises: ShapeError."""
    if cond.dtype is not DType.BOOL or cond.static_shape not in ((), (1,)):
        raise ShapeError(f"the condition of {ctx.op_type} should be one bool, not {cond.type}")
    return emit.reshape(cond, ())


def tensors(ctx: NodeContext, entries: Sequence[Entry], what: str) -> list[Value]:
    """The entries, which must be tensors. Raises: ModelError."""
    found = [e for e in entries if isinstance(e, Value)]
    if len(found) != len(entries):
        raise ModelError(f"{what} of {ctx.op_type} are sequences or optionals, which is not supported")
    return found


@converter("If")
def if_(ctx: NodeContext) -> Sequence[Entry | None]:
    """The branches see the names around them and have no inputs."""
    branches = {"else": ctx.attrs.graph("else_branch"), "then": ctx.attrs.graph("then_branch")}
    known = ctx.const_value(0)
    if known is not None and known.size == 1:
        name = "then" if bool(known.reshape(())) else "else"
        return ctx.importer.import_subgraph(
            branches[name], ctx.place, ctx.emit, [], f"{ctx.name}/{name}_branch"
        )
    cond = as_condition(ctx, ctx.emit, ctx.input(0))
    graphs: dict[str, Graph] = {}
    emitters: dict[str, Emitter] = {}
    for name, proto in branches.items():
        graph = Graph(name)
        emit = emitters[name] = ctx.emit.nested(graph)
        results = ctx.importer.import_subgraph(proto, ctx.place, emit, [], f"{ctx.name}/{name}_branch")
        graph.outputs = tensors(ctx, results, "the results")
        graphs[name] = graph
    ranks = [[v.rank for v in g.outputs] for g in graphs.values()]
    compared = _compared_dims(ctx.input(0)) if ranks[0] != ranks[1] else None
    if compared is not None:
        # an exporter's Squeeze that only happens where a dim is 1: the rest of the model counts on its rank
        ctx.emit.require_equal([compared], f"{ctx.name} changes the rank of its result unless this dim fits")
        return ctx.importer.import_subgraph(
            branches["then"], ctx.place, ctx.emit, [], f"{ctx.name}/then_branch"
        )
    if ranks[0] == ranks[1]:
        _agree_on_dims(ctx, cond, emitters["then"], emitters["else"])
    return ctx.emit.ops("if", cond, graphs=graphs)


def _agree_on_dims(ctx: NodeContext, cond: Value, then: Emitter, other: Emitter) -> None:
    """Where the branches' results differ in dims, those of the branch that is taken are bound beforehand."""
    inside = _bound_in(then.graph) | _bound_in(other.graph)
    for position, (a, b) in enumerate(zip(then.graph.outputs, other.graph.outputs, strict=True)):
        axes = [k for k in range(a.rank) if a.shape[k] != b.shape[k]]
        mine, others = ([v.shape[k] for k in axes] for v in (a, b))
        names = {s.name for d in (*mine, *others) for s in d.symbols()}
        if not axes or names & inside or not names <= ctx.importer.dims.symbols.keys():
            continue  # what only the branch finds out can't be bound before it
        picked = ctx.emit.op("where", cond, ctx.emit.dims(mine), ctx.emit.dims(others))
        limit = emax(*mine, *others)
        dims = ctx.emit.bound_elements(picked, f"{ctx.name}_size", limit)
        assert dims is not None, "the length of the list of dims is known"
        for emit, value in ((then, a), (other, b)):
            shape = list(value.shape)
            for axis, dim in zip(axes, dims, strict=True):
                shape[axis] = dim
            emit.graph.outputs[position] = emit.reshape(value, shape)


def _bound_in(graph: Graph) -> set[str]:
    """The symbols that get their values inside a graph."""
    found: set[str] = set()
    for node in graph.nodes:
        found |= set(node.attrs["names"]) if node.op == "bind_symbols" else set()
        for inner in node.graphs.values():
            found |= _bound_in(inner)
    return found


def _compared_dims(cond: Value) -> tuple[Expr, Expr] | None:
    """The two dims that a condition compares for equality, if it does just that."""
    node = cond.producer
    while node is not None and node.op in ("reshape", "identity", "cast"):
        node = node.input(0).producer
    if node is None or node.op != "eq":
        return None
    left, right = (node.input(k).elements for k in range(2))
    return (left[0], right[0]) if left and right and len(left) == len(right) == 1 else None


@dataclass
class Body:
    """A loop body to import: its proto, how many inputs it carries, and the slices that a Scan hands it."""

    proto: GraphProto
    scanned: Sequence[tuple[Value, int, bool]] = ()  # (input, axis, from the back)
    has_counter: bool = True
    keeps_condition: bool = False


def import_body(ctx: NodeContext, body: Body, carried: Sequence[Type]) -> Graph:
    """The body as a graph(iter i64[], cond bool[], carried...) -> (cond, carried..., scanned...)."""
    graph = Graph("body")
    emit = ctx.emit.nested(graph)
    counter = emit.input("iter", Type(DType.I64, ()))
    going = emit.input("cond", Type(DType.BOOL, ()))
    state = [emit.input(f"carried{k}", t) for k, t in enumerate(carried)]
    slices = []
    for x, axis, reverse in body.scanned:
        position = counter
        if reverse:
            last = emit.reshape(emit.dims([x.shape[axis] - 1]), ())
            position = emit.op("sub", last, counter)
        slices.append(emit.op("gather", x, position, axis=axis))
    arguments = [counter, going, *state] if body.has_counter else [*state, *slices]
    results = ctx.importer.import_subgraph(body.proto, ctx.place, emit, arguments, f"{ctx.name}/body")
    values = tensors(ctx, results, "the results")
    if not body.has_counter:
        values = [going, *values]
    elif values:
        values[0] = going if body.keeps_condition else as_condition(ctx, emit, values[0])
    graph.outputs = values
    return graph


def looped(
    ctx: NodeContext, body: Body, count: Value | None, cond: Value | None, carried: list[Value]
) -> list[Value]:
    """A loop node. Dims of carried values that a trip changes become symbols of the body."""
    types = [v.type for v in carried]
    for _ in range(MAX_WIDENINGS):
        symbols = ctx.importer.dims.snapshot()
        graph = import_body(ctx, body, types)
        if len(graph.outputs) < len(carried) + 1:
            raise ModelError(f"the body of {ctx.op_type} has too few outputs: {len(graph.outputs)}")
        widened = [
            widen(ctx, before, after.type, k)
            for k, (before, after) in enumerate(zip(types, graph.outputs[1:], strict=False))
        ]
        if widened == types:
            return emit_loop(ctx, graph, count, cond, carried)
        ctx.importer.dims.restore(symbols)
        types = widened
    raise ShapeError(f"the shapes that {ctx.op_type} carries from trip to trip don't settle")


def emit_loop(
    ctx: NodeContext, body: Graph, count: Value | None, cond: Value | None, carried: list[Value]
) -> list[Value]:
    """The loop node. What it scans is carried, as a tensor with a row a trip, where their number is known.

    A condition may end the loop before; only the rows of the trips made are the result then.
    """
    emit, scanned = ctx.emit, body.outputs[len(carried) + 1 :]
    trips: Expr | None = None
    if count is not None:
        known = emit.bound_elements(emit.op("max", count, emit.scalar(0, DType.I64)), f"{ctx.name}_trips")
        assert known is not None, "a scalar can always be bound"
        trips, count = known[0], emit.reshape(emit.dims([known[0]]), ())
    if not scanned or trips is None or not _have_room(body, carried, scanned, trips):
        return emit.ops("loop", count, cond, *carried, graphs={"body": body})
    inner = emit.nested(body)
    body.outputs = body.outputs[: len(carried) + 1]
    rows: list[Value] = []
    position = inner.reshape(body.inputs[0], (1, 1))
    for number, value in enumerate(scanned):
        full = inner.input(f"rows{number}", Type(value.dtype, (trips, *value.shape)))
        row = inner.unsqueeze(value, (0,))
        body.outputs.append(inner.op("scatter_nd", full, position, row, reduction="none"))
        rows.append(ctx.zeros(value.dtype, full.shape))
    going = body.outputs[0]
    if cond is None and going is body.inputs[1]:
        return emit.ops("loop", count, None, *carried, *rows, graphs={"body": body})
    made = inner.input("made", Type(DType.I64, ()))
    body.outputs.append(inner.op("add", made, inner.scalar(1, DType.I64)))
    *results, total = emit.ops(
        "loop", count, cond, *carried, *rows, emit.scalar(0, DType.I64), graphs={"body": body}
    )
    last = emit.bound_elements(total, f"{ctx.name}_made", trips)
    assert last is not None, "a scalar can always be bound"
    stacked = [emit.slice(v, 0, 0, last[0]) for v in results[len(carried) :]]
    return [*results[: len(carried)], *stacked]


def _have_room(body: Graph, carried: Sequence[Value], scanned: Sequence[Value], trips: Expr) -> bool:
    """True if a row for each trip can be allocated before: not too many, none changes its size."""
    inside = _symbol_names(body.inputs) - _symbol_names(carried)
    inside |= {name for n in body.nodes if n.op == "bind_symbols" for name in n.attrs["names"]}
    few = not trips.is_const or trips.value < MOST_ROWS
    return few and inside.isdisjoint(_symbol_names(scanned))


def _symbol_names(values: Sequence[Value]) -> set[str]:
    return {s.name for v in values for d in v.shape for s in d.symbols()}


def widen(ctx: NodeContext, before: Type, after: Type, position: int) -> Type:
    """The type with a symbol for each dim that a trip changes."""
    if before.dtype is not after.dtype or len(before.shape) != len(after.shape):
        raise ShapeError(f"{ctx.op_type} changes its carried value {position} from {before} to {after}")
    dims: list[Expr] = []
    for axis, (old, new) in enumerate(zip(before.shape, after.shape, strict=True)):
        name = f"{ctx.name}_carried{position}_d{axis}"
        own = old.as_sym is not None and old.as_sym.name.startswith(ctx.importer.dims.names.base(name))
        dims.append(old if new == old or own else ctx.importer.dims.fresh_symbol(name))
    return Type(before.dtype, tuple(dims))


@converter("Loop")
def loop(ctx: NodeContext) -> list[Value]:
    """Without a condition input the body's condition is ignored."""
    count, cond = ctx.optional(0), ctx.optional(1)
    if count is None and cond is None:
        raise ModelError("Loop has neither a trip count nor a condition: it would never end")
    if count is not None:
        count = ctx.emit.cast(ctx.emit.reshape(count, ()), DType.I64)
    if cond is not None:
        cond = as_condition(ctx, ctx.emit, cond)
    carried = [ctx.input(k) for k in range(2, ctx.num_inputs)]
    body = Body(ctx.attrs.graph("body"), keeps_condition=cond is None)
    if len(body.proto.input) != len(carried) + 2:
        raise ModelError(f"Loop carries {len(carried)} values, its body takes {len(body.proto.input) - 2}")
    return looped(ctx, body, count, cond, carried)


@converter("Scan", since=9)
def scan(ctx: NodeContext) -> list[Value]:
    """A loop that reads one slice of each scanned input per trip."""
    proto, num_scanned = ctx.attrs.graph("body"), ctx.attrs.integer("num_scan_inputs")
    num_states = ctx.num_inputs - num_scanned
    if num_scanned < 1 or num_states < 0:
        raise ModelError(f"Scan has {ctx.num_inputs} inputs, of which it scans {num_scanned}")
    states = [ctx.input(k) for k in range(num_states)]
    inputs = [ctx.input(k) for k in range(num_states, ctx.num_inputs)]
    axes = _per_input(ctx, "scan_input_axes", num_scanned)
    directions = _per_input(ctx, "scan_input_directions", num_scanned)
    scanned = [(x, ctx.axis(a, x.rank), bool(d)) for x, a, d in zip(inputs, axes, directions, strict=True)]
    first, first_axis, _ = scanned[0]
    trips = ctx.emit.reshape(ctx.emit.dims([first.shape[first_axis]]), ())
    results = looped(ctx, Body(proto, scanned, has_counter=False), trips, None, states)
    stacked = results[num_states:]
    out_axes = _per_input(ctx, "scan_output_axes", len(stacked))
    out_directions = _per_input(ctx, "scan_output_directions", len(stacked))
    outputs = results[:num_states]
    for value, number, reverse in zip(stacked, out_axes, out_directions, strict=True):
        if reverse:
            value = ctx.emit.slice(value, 0, value.shape[0] - 1, value.shape[0], step=-1)
        axis = ctx.axis(number, value.rank)
        perm = list(range(1, value.rank))
        perm.insert(axis, 0)
        outputs.append(ctx.emit.transpose(value, perm))
    return outputs


def _per_input(ctx: NodeContext, name: str, count: int) -> tuple[int, ...]:
    values = ctx.attrs.ints(name) or (0,) * count
    if len(values) != count:
        raise ModelError(f"{name}={list(values)} of Scan should be {count} numbers")
    return values
