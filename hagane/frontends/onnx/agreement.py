"""Checks at run time of what a model takes for granted: dynamic dims that broadcast, join or sum.

Shapes are inferred as if such dims agreed. Where that can't be shown, a require_dims goes before the node, so
that inputs that don't fit each other are refused, and nothing is read beyond its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hagane.core.symbolic import Expr, const, emax, emin, product, provably_nonneg
from hagane.ir.graph import Graph, Node, Shape
from hagane.ir.registry import op_def

Pair = tuple[Expr, Expr]


def require_agreement(graph: Graph) -> None:
    """Puts the checks into a graph and its branches. Sizes that only a loop's turns tell go unchecked."""
    bound = {s.name for v in graph.inputs for d in v.shape if (s := d.as_sym) is not None}
    _check(graph, bound, set())


def _check(graph: Graph, bound: set[str], seen: set[Pair]) -> None:
    """Checks that nothing here decides stand first: those between launches would keep them apart."""
    outer = frozenset(bound)
    first: list[Node] = []
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "bind_symbols":
            bound |= set(node.attrs["names"])
        if node.op == "require_dims":
            pairs = list(zip(node.attrs["left"], node.attrs["right"], strict=True))
            seen |= set(pairs)
            (first if _names(pairs) <= outer else nodes).append(node)
            continue
        found = [pair for pair in dict.fromkeys(_agreements(node)) if pair not in seen and _names([pair])]
        for early in (True, False):
            pairs = [p for p in found if _names([p]) <= bound and (_names([p]) <= outer) is early]
            if pairs:
                (first if early else nodes).append(_requirement(node, pairs))
                seen |= set(pairs)
        if node.op == "if":
            for branch in node.graphs.values():
                _check(branch, set(bound), set(seen))
        nodes.append(node)
    graph.nodes = first + nodes


def _names(pairs: Sequence[Pair]) -> set[str]:
    return {s.name for pair in pairs for side in pair for s in side.symbols()}


def _requirement(node: Node, pairs: list[Pair]) -> Node:
    shown = " and ".join(str(v.type) for v in node.inputs if v is not None)
    left, right = zip(*pairs, strict=True)
    attrs = {
        "left": left,
        "right": right,
        "message": f"{node.loc}: the shapes of {shown} don't fit each other",
    }
    return Node("require_dims", [], [], attrs, {}, node.loc)


def _agreements(node: Node) -> Iterator[Pair]:
    """Pairs that must be equal for the node to have a meaning."""
    rule = _RULES.get(node.op)
    if rule is not None:
        yield from ((a, b) for a, b in rule(node) if a != b)
    elif op_def(node.op).kind == "pointwise" and len(node.inputs) > 1:
        yield from broadcast_pairs([v.shape for v in node.inputs if v is not None])


def broadcast_pairs(shapes: Sequence[Shape]) -> Iterator[Pair]:
    """What must be equal for shapes to broadcast: dims are equal, or one of them is 1."""
    for place in range(1, 1 + max(len(s) for s in shapes)):
        dims = list(dict.fromkeys(s[-place] for s in shapes if len(s) >= place and s[-place] != 1))
        for k, a in enumerate(dims):
            for b in dims[k + 1 :]:
                yield emin(_distance(a, b), _distance(a, const(1)), _distance(b, const(1))), const(0)


def _stretched(shape: Shape, wanted: Shape) -> Iterator[Pair]:
    """A shape that broadcasts to another one, which stays as it is."""
    for a, b in zip(shape[::-1], wanted[::-1], strict=False):
        if a not in (b, 1):
            yield emin(_distance(a, b), _distance(a, const(1))), const(0)


def _distance(a: Expr, b: Expr) -> Expr:
    return emax(a - b, b - a)


def _matmul(node: Node) -> Iterator[Pair]:
    a, b = node.input(0).shape, node.input(1).shape
    yield a[-1], b[-2] if len(b) > 1 else b[0]
    yield from broadcast_pairs([a[:-2], b[:-2]])


def _concat(node: Node) -> Iterator[Pair]:
    first, *others = (v.shape for v in node.inputs if v is not None)
    for shape in others:
        for axis, pair in enumerate(zip(first, shape, strict=True)):
            if axis != node.attrs["axis"] % len(first):
                yield pair


def _broadcast_to(node: Node) -> Iterator[Pair]:
    yield from _stretched(node.input(0).shape, node.output.shape)


def _reshape(node: Node) -> Iterator[Pair]:
    """As many elements; dims on both sides that can't be 0 don't matter."""
    before, after = list(node.input(0).shape), []
    for dim in node.output.shape:
        if dim in before and provably_nonneg(dim - 1):
            before.remove(dim)
        else:
            after.append(dim)
    yield product(before), product(after)


def _conv(node: Node) -> Iterator[Pair]:
    yield node.input(0).shape[1], node.input(1).shape[1] * node.attrs["group"]


def _conv_transpose(node: Node) -> Iterator[Pair]:
    yield node.input(0).shape[1], node.input(1).shape[0]


def _trailing_norm(node: Node) -> Iterator[Pair]:
    for value in node.inputs[1:]:
        if value is not None:
            yield from _stretched(value.shape, node.input(0).shape)


def _channel_norm(node: Node) -> Iterator[Pair]:
    x = node.input(0)
    for value in node.inputs[1:]:
        if value is not None and x.rank > 1:
            yield value.shape[0], x.shape[1]


def _attention(node: Node) -> Iterator[Pair]:
    q, k, v = (node.input(i).shape for i in range(3))
    yield from ((q[0], k[0]), (q[0], v[0]), (q[3], k[3]), (k[1], v[1]), (k[2], v[2]))
    mask = node.optional(3)
    if mask is not None:
        yield from _stretched(mask.shape, (*q[:3], k[2]))


def _recurrent(node: Node) -> Iterator[Pair]:
    _, batch, features = node.input(0).shape
    yield features, node.input(1).shape[2]
    for position, axis in ((4, 0), (5, 1), (6, 1)):  # lengths, initial h, initial c
        value = node.optional(position)
        if value is not None:
            yield batch, value.shape[axis]


def _quantize(node: Node) -> Iterator[Pair]:
    """Scales along an axis have its extent; those in blocks are fitted by the converter."""
    x, block = node.input(0), node.attrs.get("block")
    for value in node.inputs[1:]:
        if value is None or block:
            continue
        if value.rank == 1 and value.shape[0] != 1:
            yield value.shape[0], x.shape[node.attrs["axis"] % x.rank]
        elif value.rank > 1:
            yield from _stretched(value.shape, x.shape)


_RULES: dict[str, Callable[[Node], Iterator[Pair]]] = {
    "attention": _attention,
    "batch_norm": _channel_norm,
    "broadcast_to": _broadcast_to,
    "concat": _concat,
    "conv": _conv,
    "conv_integer": _conv,
    "conv_transpose": _conv_transpose,
    "dequantize": _quantize,
    "group_norm": _channel_norm,
    "gru": _recurrent,
    "instance_norm": _channel_norm,
    "layer_norm": _trailing_norm,
    "lstm": _recurrent,
    "matmul": _matmul,
    "matmul_integer": _matmul,
    "quantize": _quantize,
    "reshape": _reshape,
    "rms_norm": _trailing_norm,
    "rnn": _recurrent,
}
