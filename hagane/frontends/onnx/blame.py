"""Says where in the user's model an error arose: the node, what goes into it, and where that comes from."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import AttributeProto, NodeProto

from hagane.core.errors import HaganeError, ModelError, ShapeError
from hagane.frontends.onnx.scope import Entry
from hagane.ir.graph import Value

_A = AttributeProto
MAX_SHOWN = 8  # inputs and attributes that a message lists


def locate(
    error: HaganeError, file: str, node: NodeProto, name: str, entries: Sequence[Entry | None]
) -> None:
    """Adds the node and its inputs, by the model's own names, to an error that was raised while importing it.

    The innermost node wins: an error that a function or a sub-graph raised keeps its place.
    """
    if getattr(error, "located", False):
        return
    error.located = True  # type: ignore[attr-defined]
    operands = [_operand(n, e) for n, e in zip(node.input, _padded(entries, len(node.input)), strict=True)]
    shown = [*operands[:MAX_SHOWN], *_attributes(node)]
    rest = {k: v for k, v in error.where.items() if k not in ("node", "inputs")}
    error.where = {"node": f"{name} ({node.op_type}) in {file}", "inputs": ", ".join(shown) or "none", **rest}
    if isinstance(error, ShapeError):
        origins = [o for n, e in zip(node.input, entries, strict=False) if (o := _origin(n, e))]
        if origins:
            error.where["from"] = "; ".join(origins[:3])
        if error.next_step is None:
            error.next_step = f"hagane check {file} lists every shape conflict; shapes= overrides input dims"
    elif isinstance(error, ModelError) and error.next_step is None:
        error.next_step = f"export the model anew; if ONNX Runtime runs {file} as it is, report it"


def _padded(entries: Sequence[Entry | None], length: int) -> list[Entry | None]:
    return [*entries, *[None] * length][:length]


def _operand(name: str, entry: Entry | None) -> str:
    return f"{name} {entry.type}" if isinstance(entry, Value) else name or "none"


def _origin(name: str, entry: Entry | None) -> str:
    """The node that an input comes from."""
    if not isinstance(entry, Value) or entry.producer is None or not entry.producer.loc.nodes:
        return ""
    return f"{name} is the output of {entry.producer.loc.nodes[-1]}"


def _attributes(node: NodeProto) -> list[str]:
    """Attributes that are numbers or words."""
    shown = []
    for attribute in node.attribute:
        if attribute.type == _A.INT:
            shown.append(f"{attribute.name}={attribute.i}")
        elif attribute.type == _A.FLOAT:
            shown.append(f"{attribute.name}={attribute.f:g}")
        elif attribute.type == _A.STRING and len(attribute.s) <= 40:
            shown.append(f"{attribute.name}={attribute.s.decode('utf-8', 'replace')}")
        elif attribute.type == _A.INTS and len(attribute.ints) <= MAX_SHOWN:
            shown.append(f"{attribute.name}={list(attribute.ints)}")
    return shown[:MAX_SHOWN]
