"""Recurrent layers rnn, gru and lstm, in one or both directions, with ONNX's weights and gate order.

Inputs: x[S, B, I], w[D, G*H, I], r[D, G*H, H], bias[D, 2*G*H], lengths i32[B], initial h[D, B, H]; lstm also
has initial c[D, B, H] and peepholes[D, 3*H]. G is 1 for rnn, 3 (update, reset, hidden) for gru, 4 (in, out,
forget, cell) for lstm. All but the first three may be None. Outputs: y[S, D, B, H], last h[D, B, H] and, of
lstm, last c. Past its length a sequence gives zeros and keeps its state; reverse starts at its last step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.symbolic import to_expr
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register

Function = Callable[[Array], Array]

NUM_GATES = {"rnn": 1, "gru": 3, "lstm": 4}
DEFAULT_ACTIVATIONS = {"rnn": ("tanh",), "gru": ("sigmoid", "tanh"), "lstm": ("sigmoid", "tanh", "tanh")}

# Activations that take parameters: (alpha, beta) if the model gives none; None: it takes none.
PARAMETERS: dict[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, None),
}
_PLAIN: dict[str, Function] = {
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "softplus": lambda x: np.logaddexp(x, 0),
}


@dataclass(frozen=True)
class Activation:
    """An activation of a recurrent layer: a lower-case name and its parameters (0 where it takes none)."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    def __call__(self, x: Array) -> Array:
        match self.name:
            case "affine":
                return self.alpha * x + self.beta
            case "leakyrelu":
                return np.where(x >= 0, x, self.alpha * x)
            case "thresholdedrelu":
                return np.where(x > self.alpha, x, 0)
            case "scaledtanh":
                return self.alpha * np.tanh(self.beta * x)
            case "hardsigmoid":
                return np.clip(self.alpha * x + self.beta, 0, 1)
            case "elu":
                return np.where(x >= 0, x, self.alpha * np.expm1(np.minimum(x, 0)))
        return _PLAIN[self.name](x)


def activations(op: str, attrs: Attrs) -> list[tuple[Activation, ...]]:
    """The activations of each direction. Raises: ShapeError for an unknown name or a wrong number.

    Those that take an alpha (or beta) consume the given ones in order, as ONNX says.
    """
    directions = num_directions(attrs)
    names = tuple(attrs.get("activations") or DEFAULT_ACTIVATIONS[op] * directions)
    each = len(DEFAULT_ACTIVATIONS[op])
    if len(names) != each * directions:
        raise ShapeError(f"{op} wants {each * directions} activations, not {names}")
    alphas, betas = iter(attrs.get("alphas") or ()), iter(attrs.get("betas") or ())
    found: list[Activation] = []
    for name in (n.lower() for n in names):
        if name not in PARAMETERS and name not in _PLAIN:
            raise ShapeError(f"{op} knows no activation {name!r}")
        alpha, beta = PARAMETERS.get(name, (None, None))
        found.append(
            Activation(
                name,
                0.0 if alpha is None else next(alphas, alpha),
                0.0 if beta is None else next(betas, beta),
            )
        )
    return [tuple(found[d * each : (d + 1) * each]) for d in range(directions)]


def num_directions(attrs: Attrs) -> int:
    """1, or 2 for a bidirectional layer. Raises: ShapeError."""
    if attrs["direction"] not in ("forward", "reverse", "bidirectional"):
        raise ShapeError(
            f"a layer's direction is forward, reverse or bidirectional, not {attrs['direction']!r}"
        )
    return 2 if attrs["direction"] == "bidirectional" else 1


def _infer(node: Node) -> list[Type]:
    x, op = node.input(0), node.op
    activations(op, node.attrs)
    directions, hidden, gates = num_directions(node.attrs), node.attrs["hidden"], NUM_GATES[op]
    if x.rank != 3:
        raise ShapeError(f"{op} takes x[S, B, I], not {x}")
    length, batch, features = x.shape
    wanted: list[tuple[str, tuple[object, ...]]] = [
        ("w", (directions, gates * hidden, features)),
        ("r", (directions, gates * hidden, hidden)),
        ("bias", (directions, 2 * gates * hidden)),
        ("lengths", (batch,)),
        ("initial h", (directions, batch, hidden)),
        ("initial c", (directions, batch, hidden)),
        ("peepholes", (directions, 3 * hidden)),
    ]
    for position, (name, shape) in enumerate(wanted, 1):
        value = node.optional(position)
        if value is None:
            continue
        dims = tuple(to_expr(d) for d in shape)  # type: ignore[arg-type]
        clash = any(a.is_const and b.is_const and a != b for a, b in zip(value.shape, dims, strict=False))
        if value.rank != len(dims) or clash:
            raise ShapeError(f"{op} wants {name} of shape [{', '.join(map(str, dims))}], it has {value}")
        if name != "lengths" and value.dtype is not x.dtype:
            raise ShapeError(f"{op} wants {name} of {x.dtype}, it has {value}")
    lengths = node.optional(4)
    if lengths is not None and lengths.dtype not in (DType.I32, DType.I64):
        raise ShapeError(f"{op} wants lengths of i32, it has {lengths}")
    state = Type(x.dtype, (to_expr(directions), batch, to_expr(hidden)))
    y = Type(x.dtype, (length, to_expr(directions), batch, to_expr(hidden)))
    return [y, state, state] if op == "lstm" else [y, state]


Step = Callable[[Array, tuple[Array, ...]], tuple[Array, ...]]
"""step(x W^T of one time step, states) -> new states, h first."""


def _walk(
    gates: Array, step: Step, states: tuple[Array, ...], lengths: Array, backwards: bool
) -> tuple[Array, ...]:
    """(y[S, B, H], last states...) of one direction over gates[S, B, G*H]."""
    y = np.zeros((gates.shape[0], *states[0].shape))
    order = range(gates.shape[0])
    for t in reversed(order) if backwards else order:
        alive = (t < lengths)[:, None]
        states = tuple(
            np.where(alive, new, old) for new, old in zip(step(gates[t], states), states, strict=True)
        )
        y[t] = np.where(alive, states[0], 0)
    return (y, *states)


def _clipper(attrs: Attrs) -> Function:
    limit = attrs.get("clip")
    return (lambda x: x) if not limit else (lambda x: np.clip(x, -limit, limit))


def _rnn_step(attrs: Attrs, r: Array, bias: Array, functions: tuple[Activation, ...]) -> Step:
    clip, total = _clipper(attrs), bias.reshape(2, -1).sum(axis=0)

    def step(gates: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
        return (functions[0](clip(gates + states[0] @ r.T + total)),)

    return step


def _gru_step(attrs: Attrs, r: Array, bias: Array, functions: tuple[Activation, ...]) -> Step:
    clip, (f, g) = _clipper(attrs), functions
    hidden = r.shape[1]
    w_bias, r_bias = bias.reshape(2, -1)
    after_reset = not attrs.get("linear_before_reset", False)

    def step(gates: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
        (h,) = states
        gates = gates + w_bias
        both = f(clip(gates[:, : 2 * hidden] + h @ r[: 2 * hidden].T + r_bias[: 2 * hidden]))
        update, reset = both[:, :hidden], both[:, hidden:]
        if after_reset:
            recurrent = (reset * h) @ r[2 * hidden :].T + r_bias[2 * hidden :]
        else:
            recurrent = reset * (h @ r[2 * hidden :].T + r_bias[2 * hidden :])
        candidate = g(clip(gates[:, 2 * hidden :] + recurrent))
        return ((1 - update) * candidate + update * h,)

    return step


def _lstm_step(
    attrs: Attrs, r: Array, bias: Array, functions: tuple[Activation, ...], peepholes: Array
) -> Step:
    clip, (f, g, h_function) = _clipper(attrs), functions
    total = bias.reshape(2, -1).sum(axis=0)
    p_in, p_out, p_forget = peepholes.reshape(3, -1)
    coupled = bool(attrs.get("input_forget", False))

    def step(gates: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
        h, c = states
        into, out, forget, cell = np.split(gates + h @ r.T + total, 4, axis=-1)
        enter = f(clip(into + p_in * c))
        keep = 1 - enter if coupled else f(clip(forget + p_forget * c))
        c = keep * c + enter * g(clip(cell))
        return f(clip(out + p_out * c)) * h_function(clip(c)), c

    return step


def _reference(op: str) -> Callable[..., tuple[Array, ...]]:
    def reference(attrs: Attrs, x: Array, w: Array, r: Array, *optional: Array | None) -> tuple[Array, ...]:
        bias, lengths, h, c, peepholes = optional + (None,) * (5 - len(optional))
        directions, hidden, batch = num_directions(attrs), attrs["hidden"], x.shape[1]
        bias = np.zeros((directions, 2 * w.shape[1])) if bias is None else bias
        lengths = np.full(batch, x.shape[0]) if lengths is None else lengths
        zeros = np.zeros((directions, batch, hidden))
        initial = [zeros if h is None else h]
        if op == "lstm":
            initial.append(zeros if c is None else c)
            peepholes = np.zeros((directions, 3 * hidden)) if peepholes is None else peepholes
        results: list[tuple[Array, ...]] = []
        for d, functions in enumerate(activations(op, attrs)):
            if op == "rnn":
                step = _rnn_step(attrs, r[d], bias[d], functions)
            elif op == "gru":
                step = _gru_step(attrs, r[d], bias[d], functions)
            else:
                assert peepholes is not None
                step = _lstm_step(attrs, r[d], bias[d], functions, peepholes[d])
            backwards = attrs["direction"] == "reverse" or d == 1
            results.append(_walk(x @ w[d].T, step, tuple(s[d] for s in initial), lengths, backwards))
        y, *states = zip(*results, strict=True)
        return (np.stack(y, axis=1), *(np.stack(s) for s in states))

    return reference


def _samples(op: str) -> Callable[[], Iterable[Sample]]:
    def samples() -> Iterable[Sample]:
        rng = np.random.default_rng(0)
        gates = NUM_GATES[op]
        free = ((0, 0), (0, 1))

        def x(*shape: int) -> Array:
            return rng.uniform(-1, 1, shape).astype(np.float32)

        def inputs(directions: int, hidden: int, length: int, batch: int) -> list[Array | None]:
            rows = gates * hidden
            found: list[Array | None] = [
                x(length, batch, 5),
                x(directions, rows, 5),
                x(directions, rows, hidden),
            ]
            found += [x(directions, 2 * rows), rng.integers(1, length + 1, batch).astype(np.int32)]
            found += [x(directions, batch, hidden)]
            return found + ([x(directions, batch, hidden), x(directions, 3 * hidden)] if op == "lstm" else [])

        attrs: Attrs = {"activations": DEFAULT_ACTIVATIONS[op], "alphas": (), "betas": (), "clip": None}
        attrs |= {"direction": "forward", "hidden": 7}
        if op != "rnn":
            attrs["linear_before_reset" if op == "gru" else "input_forget"] = False
        yield Sample(tuple(inputs(1, 7, 6, 3)[:3]), attrs, dynamic=free)
        full = inputs(2, 7, 6, 3)
        both = attrs | {"direction": "bidirectional", "activations": DEFAULT_ACTIVATIONS[op] * 2}
        yield Sample(tuple(full), both)
        full[4] = None
        yield Sample(tuple(full), both)
        yield Sample(tuple(inputs(1, 7, 1, 1)[:4]), attrs | {"direction": "reverse", "clip": 0.5})
        if op != "rnn":
            changed = attrs | {"linear_before_reset" if op == "gru" else "input_forget": True}
            yield Sample(tuple(inputs(1, 7, 4, 2)), changed)
        others = ("hardsigmoid", "affine", "scaledtanh")[: len(DEFAULT_ACTIVATIONS[op])]
        yield Sample(
            tuple(inputs(1, 7, 3, 2)), attrs | {"activations": others, "alphas": (0.3,), "betas": (0.4,)}
        )

    return samples


for _op in ("rnn", "gru", "lstm"):
    register(OpDef(_op, "scan", _infer, _reference(_op), samples=_samples(_op)))
