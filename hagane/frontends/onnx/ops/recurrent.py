"""LSTM, GRU and RNN."""

from __future__ import annotations

from typing import Any

from hagane.core.errors import ModelError, ShapeError
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Value

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULTS = {
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "GRU": ("Sigmoid", "Tanh"),
    "RNN": ("Tanh",),
}


def _check(ctx: NodeContext, cell: str, hidden: int, directions: int) -> None:
    x, w, r = ctx.input(0), ctx.input(1), ctx.input(2)
    rows = GATES[cell] * hidden
    if x.rank != 3 or w.rank != 3 or r.rank != 3:
        raise ShapeError(f"{ctx.op_type} takes three dims each: x {x.type}, w {w.type}, r {r.type}")
    wanted = (directions, rows, hidden)
    for dim, size in zip(r.shape, wanted, strict=True):
        if dim.is_const and dim != size:
            raise ShapeError(
                f"the recurrence weight of {ctx.op_type} is {r.type}; it should be {list(wanted)}"
            )
    columns = w.shape[2]
    if columns.is_const and x.shape[2].is_const and columns != x.shape[2]:
        raise ShapeError(f"{ctx.op_type} has {x.shape[2]} input features, its weight wants {columns}")


@converter("LSTM", "GRU", "RNN", since=7)
def recurrent(ctx: NodeContext) -> list[Value]:
    """The op's name says which cell it is."""
    return recurrent_layer(ctx, ctx.op_type)


def recurrent_layer(ctx: NodeContext, cell: str) -> list[Value]:
    """layout=1 puts the batch first in inputs and outputs; the IR has the sequence first."""
    direction = ctx.attrs.choice("direction", "forward", ("forward", "reverse", "bidirectional"))
    directions = 2 if direction == "bidirectional" else 1
    hidden = ctx.attrs.optional_int("hidden_size")
    if hidden is None:
        sizes = ctx.input(2).static_shape or (0,)
        hidden = sizes[-1] if sizes else 0
    if hidden < 1:
        raise ModelError(f"{ctx.op_type} needs a hidden_size of 1 or more")
    _check(ctx, cell, hidden, directions)
    attrs: dict[str, Any] = {"direction": direction, "hidden": hidden}
    attrs["activations"] = ctx.attrs.strings("activations") or DEFAULTS[cell] * directions
    attrs["alphas"] = ctx.attrs.floats("activation_alpha") or ()
    attrs["betas"] = ctx.attrs.floats("activation_beta") or ()
    attrs["clip"] = ctx.attrs.number("clip", 0.0)
    ctx.attrs.ignore("output_sequence")
    if cell == "LSTM":
        attrs["input_forget"] = ctx.attrs.flag("input_forget", False)
    if cell == "GRU":
        attrs["linear_before_reset"] = ctx.attrs.flag("linear_before_reset", False)
    batch_first = ctx.attrs.flag("layout", False)
    count = {"LSTM": 8, "GRU": 6, "RNN": 6}[cell]
    operands = [ctx.optional(k) for k in range(count)]
    if batch_first:
        for k in (0, 5, 6)[: 3 if cell == "LSTM" else 2]:
            value = operands[k]
            operands[k] = None if value is None else ctx.emit.transpose(value, (1, 0, 2))
    outputs = ctx.emit.ops(cell.lower(), *operands, **attrs)
    if batch_first:
        every, *last_states = outputs
        outputs = [ctx.emit.transpose(every, (2, 0, 1, 3))]
        outputs += [ctx.emit.transpose(v, (1, 0, 2)) for v in last_states]
    return outputs
