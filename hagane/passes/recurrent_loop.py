"""Recurrent layers written as loops over time: one product for all inputs, then a step for each time.

What expand-recurrent puts in the place of layers that a target has no kernel for. The meaning is that of the
references in ops.recurrent, for any float type; each direction is a loop of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr, IntLike, const, to_expr
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Node, Type, Value
from hagane.ops.recurrent import NUM_GATES, Activation, activations, num_directions

Step = Callable[["Formulas", Value, list[Value]], list[Value]]
"""step(formulas of the loop's body, inputs' part of all gates [B, G*H], states) -> new states, h first."""

Product = Callable[["Formulas", Value], Value]


class Formulas:
    """Short names for the nodes that a layer is written with."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def op(self, name: str, *inputs: Value, **attrs: Any) -> Value:
        return self.builder.op(name, *inputs, **attrs)

    def number(self, like: Value, value: float) -> Value:
        return self.builder.scalar_like(like, value)

    def reshape(self, x: Value, *shape: IntLike) -> Value:
        return self.op("reshape", x, shape=tuple(to_expr(d) for d in shape))

    def part(self, x: Value, axis: int, start: int, size: int) -> Value:
        """`size` positions of an axis from `start` on."""
        starts = tuple(const(start if a == axis else 0) for a in range(x.rank))
        sizes = tuple(const(size) if a == axis else d for a, d in enumerate(x.shape))
        return self.op("slice", x, starts=starts, steps=(1,) * x.rank, sizes=sizes)

    def zeros(self, dtype: DType, *shape: IntLike) -> Value:
        zero = self.builder.const(np.asarray(0, dtype.np))
        return self.op("broadcast_to", zero, shape=tuple(to_expr(d) for d in shape))

    def count(self, extent: Expr) -> Value:
        """A dim as a scalar."""
        return self.reshape(self.op("shape_values", values=(extent,)))

    def clipped(self, x: Value, limit: float) -> Value:
        return self.op("clip", x, lo=-limit, hi=limit) if limit else x

    def activate(self, function: Activation, x: Value) -> Value:
        """An activation of a recurrent layer."""
        alpha, beta = function.alpha, function.beta
        match function.name:
            case "affine":
                return self.op("add", self.op("mul", x, self.number(x, alpha)), self.number(x, beta))
            case "leakyrelu":
                return self.op("leaky_relu", x, alpha=alpha)
            case "thresholdedrelu":
                return self.op("thresholded_relu", x, alpha=alpha)
            case "scaledtanh":
                inner = self.op("tanh", self.op("mul", x, self.number(x, beta)))
                return self.op("mul", inner, self.number(x, alpha))
            case "hardsigmoid":
                return self.op("hard_sigmoid", x, alpha=alpha, beta=beta)
            case "elu":
                return self.op("elu", x, alpha=alpha)
        return self.op(function.name, x)

    def mixed(self, share: Value, a: Value, b: Value) -> Value:
        """share * a + (1 - share) * b."""
        rest = self.op("sub", self.number(share, 1), share)
        return self.op("add", self.op("mul", share, a), self.op("mul", rest, b))


@dataclass(frozen=True)
class _Cell:
    """Of one direction: what its steps share. r is transposed: [H, G*H]."""

    r: Value
    bias: Value | None
    peepholes: Value | None
    functions: tuple[Activation, ...]
    hidden: int
    clip: float
    node: Node

    def gates(self, f: Formulas, first: int, count: int) -> Product:
        """The state's part of some gates, with its bias. f: where weights are cut, outside of the loop."""
        start, size = first * self.hidden, count * self.hidden
        columns = f.part(self.r, 1, start, size)
        bias = None if self.bias is None else f.part(self.bias, 0, self.r.shape[1].value + start, size)

        def product(inner: Formulas, h: Value) -> Value:
            found = inner.op("matmul", h, columns)
            return found if bias is None else inner.op("add", found, bias)

        return product

    def apply(self, f: Formulas, number: int, x: Value) -> Value:
        return f.activate(self.functions[number], f.clipped(x, self.clip))


def expand_layer(node: Node, builder: Builder) -> list[Value]:
    """The outputs of an rnn, gru or lstm, from nodes that the builder writes."""
    f = Formulas(builder)
    results = [_direction(node, f, d) for d in range(num_directions(node.attrs))]
    every, *states = zip(*results, strict=True)
    y = _joined(f, list(every), 1)
    return [y, *(_joined(f, list(s), 0) for s in states)]


def _joined(f: Formulas, parts: list[Value], axis: int) -> Value:
    """The directions beside each other along a new axis."""
    shape = parts[0].shape
    widened = [f.reshape(p, *shape[:axis], 1, *shape[axis:]) for p in parts]
    return widened[0] if len(widened) == 1 else f.op("concat", *widened, axis=axis)


def _direction(node: Node, f: Formulas, d: int) -> list[Value]:
    """y[S, B, H] and the last states [B, H] of one direction."""
    x, w, r = (node.input(k) for k in range(3))
    bias, lengths, h, c, peepholes = (node.optional(k) for k in range(3, 8))
    hidden, gates = int(node.attrs["hidden"]), NUM_GATES[node.op]
    batch = x.shape[1]

    def own(value: Value | None) -> Value | None:
        return None if value is None else f.reshape(f.part(value, 0, d, 1), *value.shape[1:])

    def columns(rows: Value) -> Value:
        return f.op("transpose", f.reshape(f.part(rows, 0, d, 1), *rows.shape[1:]), perm=(1, 0))

    cell = _Cell(
        columns(r),
        own(bias),
        own(peepholes),
        activations(node.op, node.attrs)[d],
        hidden,
        float(node.attrs.get("clip") or 0.0),
        node,
    )
    inputs = f.op("matmul", x, columns(w))
    if cell.bias is not None:
        inputs = f.op("add", inputs, f.part(cell.bias, 0, 0, gates * hidden))
    states = [own(s) or f.zeros(x.dtype, batch, hidden) for s in ([h, c] if node.op == "lstm" else [h])]
    backwards = node.attrs["direction"] == "reverse" or d == 1
    return _walk(f, _STEPS[node.op](f, cell), inputs, states, lengths, backwards)


def _walk(
    f: Formulas, step: Step, inputs: Value, states: list[Value], lengths: Value | None, backwards: bool
) -> list[Value]:
    """The loop over time. A sequence that has ended keeps its states and gives zeros."""
    length = inputs.shape[0]
    body = Graph("body")
    inner = Formulas(Builder(body, f.builder))
    trip = inner.builder.input("t", Type(DType.I64, ()))
    going = inner.builder.input("going", Type(DType.BOOL, ()))
    old = [inner.builder.input("state", s.type) for s in states]
    rows = inner.builder.input("rows", Type(states[0].dtype, (length, *states[0].shape)))
    time = trip
    if backwards:
        last = inner.count(length - 1)
        time = inner.op("sub", last, trip)
    new = step(inner, inner.op("gather", inputs, time, axis=0), old)
    row = new[0]
    if lengths is not None:
        alive = inner.op("lt", time, inner.op("cast", lengths, to=DType.I64))
        alive = inner.reshape(alive, *lengths.shape, 1)
        row = inner.op("where", alive, row, inner.number(row, 0))
        new = [inner.op("where", alive, a, b) for a, b in zip(new, old, strict=True)]
    place = inner.reshape(time, 1, 1)
    written = inner.op("scatter_nd", rows, place, inner.reshape(row, 1, *row.shape), reduction="none")
    body.outputs = [going, *new, written]
    start = f.zeros(rows.dtype, *rows.shape)
    trips = f.count(length)
    *ends, y = f.builder.ops("loop", trips, None, *states, start, graphs={"body": body})
    return [y, *ends]


def _rnn(outer: Formulas, cell: _Cell) -> Step:
    recurrent = cell.gates(outer, 0, 1)

    def step(f: Formulas, inputs: Value, states: list[Value]) -> list[Value]:
        return [cell.apply(f, 0, f.op("add", inputs, recurrent(f, states[0])))]

    return step


def _gru(outer: Formulas, cell: _Cell) -> Step:
    hidden = cell.hidden
    first, last = cell.gates(outer, 0, 2), cell.gates(outer, 2, 1)
    after_reset = not cell.node.attrs.get("linear_before_reset", False)

    def step(f: Formulas, inputs: Value, states: list[Value]) -> list[Value]:
        (h,) = states
        both = cell.apply(f, 0, f.op("add", f.part(inputs, 1, 0, 2 * hidden), first(f, h)))
        update, reset = f.part(both, 1, 0, hidden), f.part(both, 1, hidden, hidden)
        recurrent = last(f, f.op("mul", reset, h)) if after_reset else f.op("mul", reset, last(f, h))
        candidate = cell.apply(f, 1, f.op("add", f.part(inputs, 1, 2 * hidden, hidden), recurrent))
        return [f.mixed(update, h, candidate)]

    return step


def _lstm(outer: Formulas, cell: _Cell) -> Step:
    hidden, recurrent = cell.hidden, cell.gates(outer, 0, 4)
    peeps = None
    if cell.peepholes is not None:
        peeps = [outer.part(cell.peepholes, 0, k * hidden, hidden) for k in range(3)]

    def step(f: Formulas, inputs: Value, states: list[Value]) -> list[Value]:
        h, c = states
        total = f.op("add", inputs, recurrent(f, h))
        into, out, forget, candidate = (f.part(total, 1, k * hidden, hidden) for k in range(4))

        def gate(x: Value, number: int, state: Value) -> Value:
            if peeps is not None:
                x = f.op("add", x, f.op("mul", peeps[number], state))
            return cell.apply(f, 0, x)

        enter, candidate = gate(into, 0, c), cell.apply(f, 1, candidate)
        if cell.node.attrs.get("input_forget", False):
            c = f.mixed(enter, candidate, c)
        else:
            kept = f.op("mul", gate(forget, 2, c), c)
            c = f.op("add", kept, f.op("mul", enter, candidate))
        return [f.op("mul", gate(out, 1, c), cell.apply(f, 2, c)), c]

    return step


_STEPS: dict[str, Callable[[Formulas, _Cell], Step]] = {"rnn": _rnn, "gru": _gru, "lstm": _lstm}
