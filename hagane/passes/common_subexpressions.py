"""merge-common-subexpressions: equal ops on equal operands are computed once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hagane.core.hashing import content_hash
from hagane.ir.graph import Graph, Node, Value, join_locs
from hagane.ir.registry import op_def

KEPT_KINDS = ("control", "region", "host")
MAX_HASHED_BYTES = 1 << 16  # larger constants are compared by identity: equal big ones are rare


@dataclass(frozen=True)
class MergeCommonSubexpressions:
    """No options."""

    name: str = "merge-common-subexpressions"

    def run(self, graph: Graph) -> bool:
        mapping: dict[Value, Value] = {}
        seen: dict[Any, Node] = {}
        kept: list[Node] = []
        for node in graph.nodes:
            node.inputs = [None if v is None else mapping.get(v, v) for v in node.inputs]
            if op_def(node.op).kind in KEPT_KINDS or not node.outputs:
                kept.append(node)
                continue
            key = (
                node.op,
                tuple(map(_key, node.inputs)),
                tuple(sorted((k, repr(v)) for k, v in node.attrs.items())),
            )
            first = seen.setdefault(key, node)
            if first is node:
                kept.append(node)
            else:
                first.loc = join_locs([first.loc, node.loc])
                mapping.update(zip(node.outputs, first.outputs, strict=True))
        if not mapping:
            return False
        graph.nodes = kept
        graph.replace_uses(mapping)
        return True


def _key(value: Value | None) -> Any:
    if value is None or value.data is None:
        return value
    # floats that differ among themselves are weights: a refit may change one of two that are equal now
    is_weight = (
        value.dtype.is_float and value.data.size > 1 and bool((value.data != value.data.flat[0]).any())
    )
    if value.data.nbytes <= MAX_HASHED_BYTES and value.data.dtype != object and not is_weight:
        return (str(value.type), content_hash(value.data.tobytes()))
    return value
