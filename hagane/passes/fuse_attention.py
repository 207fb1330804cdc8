"""fuse-attention: matmul, scale, mask, softmax, matmul become one region around the op `attention`.

Transposes, reshapes and slices that queries, keys and values come through go into the region too, as long as
what they read stays strided: nothing is moved then. So does a transpose behind it. The region is written
here, before fuse, because it takes in values that others read as well: movement costs nothing to repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hagane.core.dtypes import DType
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Node, Value, join_locs
from hagane.passes.base import control_graphs
from hagane.passes.dead_code import RemoveDeadCode
from hagane.passes.fuse import fresh_name
from hagane.passes.strided_views import View, scalar_factor, strided_view

Users = dict[Value, list[Node]]
_NEVER = float("-inf")


@dataclass(frozen=True)
class FuseAttention:
    """enabled: False leaves the graph as it is."""

    enabled: bool = True
    name: str = "fuse-attention"

    def run(self, graph: Graph) -> bool:
        if not self.enabled:
            return False
        changed = False
        names = graph.value_names()
        for inner in control_graphs(graph):
            for softmax in [node for node in inner.nodes if node.op == "softmax"]:
                found = _match(softmax, inner.users(), set(inner.outputs))
                if found is not None:
                    _rewrite(inner, found, names)
                    changed = True
        if changed:
            RemoveDeadCode().run(graph)
        return changed


@dataclass
class _Match:
    """What was found; `nodes` are those that the region replaces, the last one computing its output."""

    q: Value
    k: Value  # transposed, as the product takes it
    v: Value
    scale: float = 1.0
    masks: list[Value] = field(default_factory=list)
    keep: Value | None = None
    flipped: bool = False
    blind: str = "nan"  # what a row gives that is hidden as a whole
    nodes: list[Node] = field(default_factory=list)


def _match(softmax: Node, users: Users, outputs: set[Value]) -> _Match | None:
    scores = softmax.input(0)
    if scores.dtype is not DType.F32 or not 2 <= scores.rank <= 4:
        return None
    if softmax.attrs["axis"] not in (-1, scores.rank - 1):
        return None

    def sole(value: Value) -> bool:
        return len(users.get(value, ())) == 1 and value not in outputs

    before = _scores(scores, sole)
    if before is None:
        return None
    after = _weights(softmax, users, outputs, before)
    return after if after is not None and _fits(after) else None


def _scores(value: Value, sole: Callable[[Value], bool]) -> _Match | None:
    """Walks back from the softmax to the product of queries and keys."""
    masks: list[Value] = []
    nodes: list[Node] = []
    keep: Value | None = None
    scale, scaled = 1.0, False
    shape = value.shape
    while True:
        node = value.producer
        if node is None or not sole(value) or node.output.shape != shape:
            return None
        nodes.append(node)
        if node.op == "matmul":
            return _Match(node.input(0), node.input(1), value, scale, masks, keep, nodes=nodes)
        factor = scalar_factor(node)
        if factor is not None:
            value, scale, scaled = factor[0], scale * factor[1], True
        elif node.op == "add" and not scaled and keep is None:
            side = 0 if _leads_to_product(node.input(0)) else 1
            value = node.input(side)
            masks.append(node.input(1 - side))
        elif node.op == "where" and not scaled and keep is None and not masks and _is(node.input(2), _NEVER):
            keep, value = node.input(0), node.input(1)
        else:
            return None


def _leads_to_product(value: Value) -> bool:
    """True if few steps up, along first inputs that are no constants, there is a matmul."""
    for _ in range(4):
        node = value.producer
        if node is None:
            return False
        if node.op == "matmul":
            return True
        if node.op not in ("add", "mul", "div", "where"):
            return False
        step = [v for v in node.inputs if v is not None and v.shape == node.output.shape and not v.is_const]
        if not step:
            return False
        value = step[-1] if node.op == "where" else step[0]
    return False


def _is(value: Value, number: float) -> bool:
    return value.data is not None and value.data.size == 1 and value.data.reshape(-1)[0] == number


def _weights(softmax: Node, users: Users, outputs: set[Value], match: _Match) -> _Match | None:
    """Walks on from the softmax to the product with the values and a transpose behind it."""
    weights = softmax.output
    match.nodes.append(softmax)
    readers = users.get(weights, [])
    if len(readers) == 2:  # exporters replace the NaN of a row that is hidden as a whole by zeros
        test = next((n for n in readers if n.op == "isnan"), None)
        pick = next((n for n in readers if n.op == "where"), None)
        if test is None or pick is None or pick.input(0) is not test.output or not _is(pick.input(1), 0.0):
            return None
        if pick.input(2) is not weights or users.get(test.output) != [pick] or weights in outputs:
            return None
        match.nodes += [test, pick]
        match.blind = "zero"
        weights = pick.output
    node = _only_reader(weights, users, outputs)
    if node is not None and node.op == "transpose" and node.attrs["perm"] == _swap(weights.rank):
        match.flipped = True
        match.nodes.append(node)
        weights = node.output
        node = _only_reader(weights, users, outputs)
    position = 1 if match.flipped else 0
    if node is None or node.op != "matmul" or node.input(position) is not weights:
        return None
    match.v = node.input(1 - position)
    match.nodes.append(node)
    follower = _only_reader(node.output, users, outputs)
    if follower is not None and follower.op == "transpose":
        match.nodes.append(follower)
    return match


def _only_reader(value: Value, users: Users, outputs: set[Value]) -> Node | None:
    readers = users.get(value, [])
    return readers[0] if len(readers) == 1 and value not in outputs else None


def _swap(rank: int) -> tuple[int, ...]:
    """The permutation that exchanges the last two axes."""
    return (*range(rank - 2), rank - 1, rank - 2)


def _fits(match: _Match) -> bool:
    """True if the operands have equal leading dims and heads of constant size."""
    q, k, v = match.q, match.k, match.v
    if not q.rank == k.rank == v.rank or not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        return False
    value_size = v.shape[-2] if match.flipped else v.shape[-1]
    sizes = (q.shape[-1], value_size)
    return all(s.is_const and s.value > 0 for s in sizes) and all(m.rank <= q.rank for m in match.masks)


def _rewrite(graph: Graph, match: _Match, names: set[str]) -> None:
    """Puts the region in the place of the last node that it replaces."""
    last = match.nodes[-1]
    scratch = Builder(Graph(), names=names)
    scratch.loc = last.loc
    mask = match.keep
    for value in match.masks:
        mask = value if mask is None else scratch.op("add", mask, value)
    region = _region(match, mask, names)
    dropped = set(match.nodes)
    result: list[Node] = []
    for node in graph.nodes:
        if node is last:
            result += [*scratch.graph.nodes, region]
        elif node not in dropped:
            result.append(node)
    graph.nodes = result


def _region(match: _Match, mask: Value | None, names: set[str]) -> Node:
    body = Builder(Graph("body"), names=names)
    operands: dict[Value, Value] = {}
    locs = [node.loc for node in match.nodes]

    def inner(value: Value) -> Value:
        if value not in operands:
            operands[value] = Value(fresh_name(value.name, names), value.type, elements=value.elements)
            body.graph.inputs.append(operands[value])
        return operands[value]

    def seen(view: View) -> Value:
        value = inner(view.source)
        for node in view.nodes:
            value = body.op(node.op, value, **node.attrs)
        locs.extend(node.loc for node in view.nodes)
        lead = (1,) * (4 - value.rank)
        return body.op("reshape", value, shape=(*lead, *value.shape)) if lead else value

    swap = _swap(4)
    views = [strided_view(match.q, True), strided_view(match.k, True), strided_view(match.v, False)]
    q, k, v = (seen(view) for view in views)
    k = body.op("transpose", k, perm=swap)
    v = body.op("transpose", v, perm=swap) if match.flipped else v
    scale = match.scale * views[0].scale * views[1].scale
    inside = None if mask is None else inner(mask)
    y = body.op("attention", q, k, v, inside, scale=scale, causal=False, softcap=None, blind=match.blind)
    y = body.op("transpose", y, perm=swap) if match.flipped else y
    product = next(n for n in reversed(match.nodes) if n.op == "matmul")
    if product.output.rank < 4:
        y = body.op("reshape", y, shape=product.output.shape)
    last = match.nodes[-1]
    if last is not product:
        y = body.op("transpose", y, perm=last.attrs["perm"])
    body.graph.outputs = [y]
    region = Node("region", list(operands), last.outputs, {"kind": "attention"}, {"body": body.graph})
    region.loc = join_locs(locs)
    last.output.producer = region
    return region
