"""Which regions move no data: a reshape of a plain tensor is the same memory under another shape."""

from __future__ import annotations

from hagane.ir.graph import Node

VIEW_OPS = ("reshape", "identity")


def is_view(node: Node) -> bool:
    """True if the region's output can share its input's memory: only reshapes, both sides of one layout."""
    if node.op != "region" or len(node.inputs) != 1:
        return False
    source, target = node.input(0), node.output
    only_views = all(inner.op in VIEW_OPS for inner in node.graphs["body"].nodes)
    return (
        only_views
        and source.layout == target.layout
        and (source.layout is None or source.shape == target.shape)
    )
