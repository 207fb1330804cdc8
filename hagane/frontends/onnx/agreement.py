"""Checks at run time of what a model takes for granted: dynamic dims that broadcast, join or sum.

Shapes are inferred as if such dims agreed. Where that can't be shown, a require_dims goes before the node, so
that inputs that don't fit each other are refused, and nothing is read beyond its end.
"""

from __future__ import annotations

from collections.abc import Iterator

from hagane.core.symbolic import Expr, const, emax, emin
from hagane.ir.graph import Graph, Node, Shape
from hagane.ir.registry import op_def

Pair = tuple[Expr, Expr]


def require_agreement(graph: Graph) -> None:
    """Puts the checks into a graph and its branches. Sizes that only a loop's turns tell go unchecked."""
    bound = {s.name for v in graph.inputs for d in v.shape if (s := d.as_sym) is not None}
    _check(graph, bound, set())


def _check(graph: Graph, bound: set[str], seen: set[Pair]) -> None:
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "bind_symbols":
            bound |= set(node.attrs["names"])
        pairs = []
        for pair in dict.fromkeys(_agreements(node)):
            names = {s.name for side in pair for s in side.symbols()}
            if pair not in seen and names and names <= bound:
                pairs.append(pair)
        if pairs:
            seen |= set(pairs)
            nodes.append(_requirement(node, pairs))
        if node.op == "if":
            for branch in node.graphs.values():
                _check(branch, set(bound), set(seen))
        nodes.append(node)
    graph.nodes = nodes


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
    shapes = [v.shape for v in node.inputs if v is not None]
    if op_def(node.op).kind == "pointwise" and len(shapes) > 1:
        yield from _broadcast(shapes)
    elif node.op == "matmul" and all(shapes):
        a, b = shapes
        inner = b[-2] if len(b) > 1 else b[0]
        if a[-1] != inner:
            yield a[-1], inner
        yield from _broadcast([a[:-2], b[:-2]])
    elif node.op == "concat":
        for shape in shapes[1:]:
            axis = node.attrs["axis"] % len(shape)
            for k, (first, dim) in enumerate(zip(shapes[0], shape, strict=True)):
                if k != axis and first != dim:
                    yield first, dim


def _broadcast(shapes: list[Shape]) -> Iterator[Pair]:
    for place in range(1, 1 + max(len(s) for s in shapes)):
        dims = list(dict.fromkeys(s[-place] for s in shapes if len(s) >= place and s[-place] != 1))
        for k, a in enumerate(dims):
            for b in dims[k + 1 :]:  # equal, or one of them is 1
                yield emin(_distance(a, b), _distance(a, const(1)), _distance(b, const(1))), const(0)


def _distance(a: Expr, b: Expr) -> Expr:
    return emax(a - b, b - a)
