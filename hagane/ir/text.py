"""The printed form of a graph. It is deterministic and parses back (see parse.py)."""

from __future__ import annotations

import json
import math
from typing import Any

from hagane.core.dtypes import DType
from hagane.core.hashing import content_hash
from hagane.core.symbolic import Expr, Sym
from hagane.ir.graph import Graph, Node, Value


def print_graph(graph: Graph, *, locs: bool = True) -> str:
    """Text of a graph; constants appear in a list at the end, by type and content hash."""
    lines = _signature(graph)
    lines += _body(graph, 1, locs)
    lines.append("}")
    consts = [f"const {_operand(v)}: {_type(v)} = {hash_of(v)}" for v in graph.constants()]
    return "\n".join(lines + consts) + "\n"


def hash_of(value: Value) -> str:
    """Content hash of a constant's data."""
    assert value.data is not None
    return content_hash(value.data.tobytes() if value.data.dtype != object else repr(value.data.tolist()))


def _signature(graph: Graph) -> list[str]:
    inputs = ", ".join(f"%{v.name}: {_type(v)}" for v in graph.inputs)
    outputs = ", ".join(_type(v) for v in graph.outputs)
    facts = sorted({s for v in graph.inputs for d in v.shape for s in d.symbols()}, key=lambda s: s.name)
    where = ", ".join(_fact(s) for s in facts)
    return [f"graph @{graph.name}({inputs}) -> {outputs}" + (f" where {where}" if where else "") + " {"]


def _fact(symbol: Sym) -> str:
    text = f"{symbol.name} in {symbol.lo}..{'' if symbol.hi is None else symbol.hi}"
    return text + (f" by {symbol.multiple}" if symbol.multiple != 1 else "")


def _body(graph: Graph, depth: int, locs: bool) -> list[str]:
    pad = "  " * depth
    lines: list[str] = []
    for node in graph.nodes:
        lines += _node(node, depth, locs)
    lines.append(pad + "return " + ", ".join(_operand(v) for v in graph.outputs))
    return lines


def _node(node: Node, depth: int, locs: bool) -> list[str]:
    pad = "  " * depth
    results = ", ".join(f"%{v.name}" for v in node.outputs)
    operands = ", ".join("none" if v is None else _operand(v) for v in node.inputs)
    attrs = ", ".join(f"{k}={_attribute(node.attrs[k])}" for k in sorted(node.attrs))
    head = f"{pad}{results}{' = ' if results else ''}{node.op}({operands})" + (
        f" {{{attrs}}}" if attrs else ""
    )
    types = " : " + ", ".join(_type(v) for v in node.outputs) if node.outputs else ""
    where = ""
    if locs and node.loc.nodes:
        where = "  // " + json.dumps([node.loc.file, *node.loc.nodes], ensure_ascii=True)
    if not node.graphs:
        return [head + types + where]
    lines = [head + types + " {" + where]
    for name in sorted(node.graphs):
        graph = node.graphs[name]
        inputs = ", ".join(f"%{v.name}: {_type(v)}" for v in graph.inputs)
        lines.append(f"{pad}  {name}({inputs}) {{")
        lines += _body(graph, depth + 2, locs)
        lines.append(f"{pad}  }}")
    lines.append(pad + "}")
    return lines


def _operand(value: Value) -> str:
    return ("@" if value.is_const else "%") + value.name


def _type(value: Value) -> str:
    return str(value.type) + (f"{{{value.layout}}}" if value.layout is not None else "")


def _attribute(attribute: Any) -> str:
    match attribute:
        case bool():
            return "true" if attribute else "false"
        case None:
            return "none"
        case DType():
            return str(attribute)
        case Expr():
            return f"`{attribute}`"
        case float():
            return repr(attribute) if math.isfinite(attribute) else f"float({attribute})"
        case int():
            return str(attribute)
        case str():
            return json.dumps(attribute)
        case tuple():
            return "[" + ", ".join(map(_attribute, attribute)) + "]"
    raise TypeError(f"attribute {attribute!r} has no text form")
