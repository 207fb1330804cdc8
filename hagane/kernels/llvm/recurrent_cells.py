"""One step of a recurrent layer for a vector of hidden units of one sequence: gates in, new state out."""

from __future__ import annotations

from collections.abc import Callable

from hagane.codegen.llvm import Function, Value, math
from hagane.ops.recurrent import Activation

Gate = Callable[[int], Value]
"""Part of the sum in front of a gate's activation, by the gate's number."""


def activate(f: Function, activation: Activation, x: Value) -> Value:
    """An activation of a recurrent layer on a register."""
    alpha, beta = activation.alpha, activation.beta
    match activation.name:
        case "tanh":
            return math.tanh(x)
        case "sigmoid":
            return math.sigmoid(x)
        case "relu":
            return f.fmax(x, 0.0)
        case "softsign":
            return x / (f.abs(x) + 1.0)
        case "softplus":
            return math.softplus(x)
        case "affine":
            return x * alpha + beta
        case "leakyrelu":
            return f.select(x.ge(0.0), x, x * alpha)
        case "thresholdedrelu":
            return f.select(x.gt(alpha), x, 0.0)
        case "scaledtanh":
            return math.tanh(x * beta) * alpha
        case "hardsigmoid":
            return f.fmax(f.fmin(x * alpha + beta, 1.0), 0.0)
        case "elu":
            return f.select(x.ge(0.0), x, math.expm1(x) * alpha)
    raise AssertionError(f"activation {activation.name} was checked when the layer was made")


class Cell:
    """The arithmetic of a cell; clip: the limit of what goes into activations, 0 for none."""

    def __init__(self, f: Function, functions: tuple[Activation, ...], clip: float) -> None:
        self.f, self.functions, self.clip = f, functions, clip

    def apply(self, number: int, x: Value) -> Value:
        """The clipped value through activation `number`."""
        if self.clip:
            x = self.f.fmax(self.f.fmin(x, self.clip), -self.clip)
        return activate(self.f, self.functions[number], x)

    def rnn(self, total: Gate) -> Value:
        return self.apply(0, total(0))

    def lstm(self, total: Gate, c: Value, peephole: Gate | None, coupled: bool) -> tuple[Value, Value]:
        """The new h and c; gates are in, out, forget, cell, peepholes in, out, forget."""
        f = self.f

        def peek(gate: int, number: int, state: Value) -> Value:
            return total(gate) if peephole is None else f.fma(peephole(number), state, total(gate))

        enter = self.apply(0, peek(0, 0, c))
        keep = 1.0 - enter if coupled else self.apply(0, peek(2, 2, c))
        c = f.fma(keep, c, enter * self.apply(1, total(3)))
        return self.apply(0, peek(1, 1, c)) * self.apply(2, c), c

    def update_and_reset(self, total: Gate) -> tuple[Value, Value]:
        """The first two gates of a GRU."""
        return self.apply(0, total(0)), self.apply(0, total(1))

    def gru(self, update: Value, candidate: Value, h: Value) -> Value:
        """The new h from the update gate and what goes into the candidate's activation."""
        return self.f.fma(update, h, (1.0 - update) * self.apply(1, candidate))
