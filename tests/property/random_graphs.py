"""Random graphs over the registered ops, with shapes that fit, and inputs to run them on.

A graph grows from a pool of values. Passes may change the rounding of some results (a power becomes products,
a scale goes into weights); what such a result goes into must be continuous, or one unit in the last place
could flip a comparison: `Draft.exact` keeps them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

import hagane.ir.region
import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.core.symbolic import Expr, const, sym
from hagane.ir.builder import Builder
from hagane.ir.graph import Array, Graph, Shape, Type, Value
from hagane.ir.registry import OpDef, Sample, all_ops
from hagane.ir.text import print_graph
from hagane.ops.conv import conv_attrs

EXTENTS = (1, 2, 3, 4)
FLOATS = (DType.F64, DType.F32)
SYMBOLS = {extent: sym(f"D{extent}", 1, 64) for extent in EXTENTS if extent > 1}
"""A dim of a known extent may be symbolic: D3 is 3 at run time."""

DISCONTINUOUS = frozenset({
    "floor", "ceil", "round", "sign", "mod", "fmod", "isnan", "isinf", "eq", "ne", "lt", "le", "gt", "ge",
    "cast", "argmax", "argmin", "topk", "thresholded_relu", "quantize", "dynamic_quantize", "one_hot",
    "compress", "nonzero", "roi_align", "resize",
})  # fmt: skip
INEXACT = frozenset({"pow", "batch_norm", "conv", "conv_transpose", "div"})


def extent_of(dim: Expr) -> int:
    """The size that a dim has at run time."""
    return dim.evaluate({f"D{extent}": extent for extent in EXTENTS})


@dataclass
class Draft:
    """A graph in the making. pool: values to build on. tainted: those whose rounding passes may change.
    folded: those that follow from constants."""

    rng: np.random.Generator
    builder: Builder = field(default_factory=lambda: Builder(Graph()))
    pool: list[Value] = field(default_factory=list)
    tainted: set[Value] = field(default_factory=set)
    folded: set[Value] = field(default_factory=set)

    def one_of(self, items: Any) -> Any:
        choices = list(items)
        return choices[self.integer(0, len(choices) - 1)]

    def integer(self, lo: int, hi: int) -> int:
        """A number from lo to hi, both included."""
        return int(self.rng.integers(lo, hi + 1))

    def flip(self) -> bool:
        return self.integer(0, 1) == 1

    def value(self, accept: Callable[[Value], bool] = lambda value: True) -> Value | None:
        """A value of the pool that is fit, the newest ones rather than old ones."""
        fit = [v for v in self.pool if accept(v)]
        if not fit:
            return None
        return self.one_of(fit[-4:] if self.flip() else fit)

    def dims(self, *extents: int, new: bool = False) -> Shape:
        """Dims of these extents, some of them symbolic. new: also symbols that no input has bound so far."""
        bound = {d for v in self.builder.graph.inputs for d in v.shape}
        known = {e: s for e, s in SYMBOLS.items() if new or s in bound}
        return tuple(known[e] if e in known and self.integer(0, 2) == 0 else const(e) for e in extents)

    def constant(self, dtype: DType, *extents: int) -> Value:
        """A constant, of numbers that exact arithmetic likes (0, 1, 2 ...) or of any."""
        seed = self.integer(0, 999)
        rng = np.random.default_rng(seed)
        if dtype is DType.BOOL:
            return self.builder.const(rng.integers(0, 2, extents).astype(bool))
        simple = self.one_of([0, 1, 2, -1, 3, None])
        if simple is not None and (dtype.is_signed or simple >= 0):
            return self.builder.const(np.full(extents, simple), dtype)
        low = 1 if not dtype.is_signed else -3
        numbers = (
            rng.integers(low, 5, extents)
            if dtype.is_int
            else rng.choice([-1.5, -0.5, 0.5, 0.7, 1.1, 2, 4], extents)
        )
        return self.builder.const(numbers, dtype)

    def add(self, values: list[Value]) -> None:
        """Puts values into the pool, but for those whose extents only a run tells."""
        known = {f"D{extent}" for extent in EXTENTS}
        self.pool += [v for v in values if all(s.name in known for d in v.shape for s in d.symbols())]

    def op(self, op: str, *inputs: Value | None, **attrs: Any) -> list[Value]:
        """Appends a node; what it gives goes into the pool. Nothing happens if it doesn't fit."""
        present = [v for v in inputs if v is not None]
        tainted = any(v in self.tainted for v in present)
        if tainted and op in DISCONTINUOUS:
            return []
        nodes, names = len(self.builder.graph.nodes), set(self.builder._names)
        try:
            outputs = self.builder.ops(op, *inputs, **attrs)
        except ModelError:
            del self.builder.graph.nodes[nodes:]
            self.builder._names.intersection_update(names)
            return []
        self.add(outputs)
        floats = any(v.dtype.is_float for v in outputs)
        if all(v.is_const or v in self.folded for v in present):
            self.folded.update(outputs)
            tainted = tainted or (floats and outputs[0].dtype is not DType.F64)  # rounded where it is folded
        if tainted or (op in INEXACT and floats):
            self.tainted.update(outputs)
        return outputs


def draft_inputs(draft: Draft) -> None:
    """Two or three inputs: floats of one type, an integer tensor."""
    dtype = draft.one_of(FLOATS)
    for rank in [draft.one_of([0, 1, 2, 3, 4, 4]) for _ in range(draft.integer(1, 2))]:
        extents = [draft.one_of(EXTENTS) for _ in range(rank)]
        draft.pool.append(
            draft.builder.input(f"x{len(draft.pool)}", Type(dtype, draft.dims(*extents, new=True)))
        )
    integer = draft.one_of([DType.I64, DType.I32, DType.BOOL])
    extents = [draft.one_of(EXTENTS) for _ in range(draft.integer(0, 3))]
    draft.pool.append(draft.builder.input("n", Type(integer, draft.dims(*extents, new=True))))


def _first_samples(op: OpDef) -> list[Sample]:
    return list(op.samples())


UNARY = {
    op.name: _first_samples(op)
    for op in all_ops()
    if op.kind == "pointwise" and op.name not in ("cast",) and all(len(s.inputs) == 1 for s in op.samples())
}
BINARY = [
    op.name
    for op in all_ops()
    if op.kind == "pointwise" and _first_samples(op) and all(len(s.inputs) == 2 for s in op.samples())
]
SAMPLED = {
    op.name: _first_samples(op) for op in all_ops() if op.kind not in ("control", "host", "region", "shape")
}
SAMPLED = {name: samples for name, samples in SAMPLED.items() if samples}


def unary(draft: Draft) -> None:
    op = draft.one_of(UNARY)
    value = draft.value()
    fit = [
        s
        for s in UNARY[op]
        if value is not None and (np.asarray(s.inputs[0]).dtype.kind == "f") == value.dtype.is_float
    ]
    if fit and value is not None:
        draft.op(op, value, **draft.one_of(fit).attrs)


def binary(draft: Draft) -> None:
    op, a = draft.one_of(BINARY), draft.value()
    if a is None or (a.dtype is DType.BOOL and op not in ("and", "or", "xor", "eq", "ne")):
        return
    if draft.flip():
        extents = [extent_of(d) for d in a.shape]
        kept = draft.integer(0, len(extents))
        shape = [e if draft.flip() else 1 for e in extents[len(extents) - kept :]]
        b: Value | None = draft.constant(a.dtype, *shape)
    else:
        b = draft.value(lambda v: v.dtype is a.dtype and fits(a, v))
    if b is not None:
        draft.op(op, *((a, b) if draft.flip() else (b, a)))


def fits(a: Value, b: Value) -> bool:
    """True if the values can be broadcast together at run time, without dims that only a run tells."""
    pairs = zip(reversed(a.shape), reversed(b.shape), strict=False)
    return all(x == y or x == 1 or y == 1 for x, y in pairs)


def select(draft: Draft) -> None:
    a = draft.value()
    b = None if a is None else draft.value(lambda v: v.dtype is a.dtype and fits(a, v))
    cond = draft.value(
        lambda v: v.dtype is DType.BOOL and a is not None and b is not None and fits(a, v) and fits(b, v)
    )
    if cond is not None:
        draft.op("where", cond, a, b)


def cast(draft: Draft) -> None:
    value = draft.value()
    if value is not None:
        draft.op(
            "cast", value, to=draft.one_of([DType.F64, DType.F32, DType.I64, DType.I32, DType.U8, DType.BOOL])
        )


def reshape(draft: Draft) -> None:
    value = draft.value()
    if value is None:
        return
    dims = list(value.shape)
    match draft.integer(0, 3):
        case 0:
            dims.insert(draft.integer(0, len(dims)), const(1))
        case 1:
            dims = [d for d in dims if d != 1]
        case 2 if len(dims) > 1:
            at = draft.integer(0, len(dims) - 2)
            dims[at : at + 2] = [dims[at] * dims[at + 1]]
        case _:
            fours = [k for k, d in enumerate(dims) if d == 4]
            if fours:
                dims[fours[0] : fours[0] + 1] = [const(2), const(2)]
    if len(dims) <= 5:
        draft.op("reshape", value, shape=tuple(dims))


def transpose(draft: Draft) -> None:
    value = draft.value()
    if value is not None:
        draft.op("transpose", value, perm=tuple(map(int, draft.rng.permutation(value.rank))))


def broadcast(draft: Draft) -> None:
    value = draft.value(lambda v: v.rank < 4)
    if value is not None:
        spread = tuple(draft.dims(draft.one_of(EXTENTS))[0] if d == 1 else d for d in value.shape)
        draft.op(
            "broadcast_to",
            value,
            shape=(*draft.dims(draft.one_of(EXTENTS)), *spread) if draft.flip() else spread,
        )


def take_slice(draft: Draft) -> None:
    value = draft.value(lambda v: v.rank > 0)
    if value is None:
        return
    starts, steps, sizes = [], [], []
    for dim in value.shape:
        extent = extent_of(dim)
        match draft.integer(0, 3):
            case 0 if dim.is_const and extent:
                starts.append(extent - 1), steps.append(-1), sizes.append(extent)
            case 1 if dim.is_const and extent:
                start = draft.integer(0, extent - 1)
                (
                    starts.append(start),
                    steps.append(1),
                    sizes.append(draft.integer(0, extent - start)),
                )
            case _:
                starts.append(0), steps.append(1), sizes.append(dim)
    draft.op("slice", value, starts=tuple(starts), steps=tuple(steps), sizes=tuple(sizes))


def concat(draft: Draft) -> None:
    first = draft.value(lambda v: v.rank > 0)
    if first is None:
        return
    parts = [first]
    axis = draft.integer(0, first.rank - 1)
    for _ in range(draft.integer(0, 2)):
        other = draft.value(
            lambda v: (
                v.dtype is first.dtype
                and v.rank == first.rank
                and all(
                    a == b or k == axis for k, (a, b) in enumerate(zip(v.shape, first.shape, strict=True))
                )
            )
        )
        parts += [other] if other is not None else []
    draft.op("concat", *parts, axis=axis)


def reduce(draft: Draft) -> None:
    value = draft.value()
    if value is not None:
        axes = [axis for axis in range(value.rank) if draft.flip()]
        kinds = ["any", "all"] if value.dtype is DType.BOOL else ["sum", "mean", "max", "min", "prod"]
        draft.op(f"reduce_{draft.one_of(kinds)}", value, axes=tuple(axes), keepdims=draft.flip())


def softmax(draft: Draft) -> None:
    value = draft.value(lambda v: v.rank > 0 and v.dtype.is_float)
    if value is not None:
        draft.op(
            draft.one_of(["softmax", "log_softmax"]),
            value,
            axis=draft.integer(-value.rank, value.rank - 1),
        )


def matmul(draft: Draft) -> None:
    a = draft.value(lambda v: v.rank > 0 and v.dtype.is_float and v.shape[-1].is_const)
    if a is not None:
        draft.op("matmul", a, draft.constant(a.dtype, a.shape[-1].value, draft.one_of(EXTENTS)))


def scaled_conv(draft: Draft) -> None:
    """A convolution with constant weights, then a scale or shift that may or may not be per channel."""
    x = draft.value(lambda v: v.rank == 4 and v.dtype.is_float and v.shape[1].is_const and 0 not in v.shape)
    if x is None:
        return
    channels, group = x.shape[1].value, 1
    filters = draft.one_of([2, 4])
    if channels in (2, 4) and draft.flip():
        group = 2
    bias = draft.constant(x.dtype, filters) if draft.flip() else None
    if draft.flip():
        weights = draft.constant(x.dtype, filters, channels // group, 1, 1)
        found = draft.op("conv", x, weights, bias, **conv_attrs(2, group))
    else:
        weights = draft.constant(x.dtype, channels, filters // group, 1, 2)
        attrs = conv_attrs(2, group) | {"output_padding": (0, 0)}
        found = draft.op("conv_transpose", x, weights, bias, **attrs)
    if not found:
        return
    y = found[0]
    for _ in range(draft.integer(0, 2)):
        shape = draft.one_of([(filters, 1, 1), (1, filters, 1, 1), (), (1,), (1, 1, 1), (filters,), (1, 1)])
        scale = draft.constant(x.dtype, *shape)
        op = draft.one_of(["mul", "add", "sub"])
        if not fits(y, scale):
            continue
        outputs = draft.op(op, *((y, scale) if draft.flip() else (scale, y)))
        y = outputs[0] if outputs else y


def shapes_in_the_making(draft: Draft) -> None:
    """Integer arithmetic on dims, as exported models have it."""
    x = draft.value(lambda v: v.rank > 0)
    if x is None:
        return
    dims = draft.builder.op("shape_values", values=x.shape)
    draft.pool.append(dims)
    first = draft.builder.op("slice", dims, starts=(0,), steps=(1,), sizes=(1,))
    scaled = draft.builder.op(draft.one_of(["mul", "add", "sub", "max"]), first, draft.builder.const([2]))
    draft.pool.append(draft.builder.op("concat", scaled, dims, axis=0))


def sampled(draft: Draft) -> None:
    """Any op on one of its own samples: inputs of the graph, or constants."""
    op = draft.one_of(SAMPLED)
    sample = draft.one_of(SAMPLED[op])
    values: list[Value | None] = []
    constant = draft.integer(0, 2)
    for number, array in enumerate(sample.inputs):
        if array is None:
            values.append(None)
        elif number >= constant and number > 0:
            values.append(draft.builder.const(np.asarray(array)))
        else:
            value = draft.builder.const(np.asarray(array))
            if value.dtype.is_float or value.dtype.is_int:
                value = draft.builder.op("identity", value)
            values.append(value)
    draft.op(op, *values, **sample.attrs)


def branches(draft: Draft) -> None:
    """An `if` whose branches read values around it and constants of their own."""
    x = draft.value(lambda v: v not in draft.tainted)
    cond = draft.value(lambda v: v.dtype is DType.BOOL and v.rank == 0)
    if x is None:
        return
    if cond is None:
        cond = draft.builder.const(np.asarray(draft.flip()))
    graphs = {}
    for name in ("then", "else"):
        inner = Builder(Graph(name), draft.builder)
        k = inner.const(np.asarray(draft.one_of([0, 1, 2])), x.dtype)
        y = x
        for op in [draft.one_of(["mul", "max", "min"]) for _ in range(draft.integer(0, 3))]:
            y = inner.op("identity", inner.op(op, y, k)) if x.dtype is not DType.BOOL else y
        inner.graph.outputs = [y]
        graphs[name] = inner.graph
    draft.add(draft.builder.ops("if", cond, graphs=graphs))


def loop(draft: Draft) -> None:
    """A loop of a few trips that carries one value and reads another one from outside."""
    x = draft.value(lambda v: v.dtype.is_float and v not in draft.tainted)
    if x is None:
        return
    trips = draft.builder.const(np.asarray(draft.integer(0, 3)))
    body = Builder(Graph("body"), draft.builder)
    body.input("i", Type(DType.I64, ()))
    go, state = body.input("go", Type(DType.BOOL, ())), body.input("s", x.type)
    half = body.op("add", body.const(np.asarray(0.25), x.dtype), body.const(np.asarray(0.25), x.dtype))
    after = body.op("mul", body.op("add", state, x), half)
    scanned = [after] if draft.flip() else []
    body.graph.outputs = [body.op("identity", go), after, *scanned]
    draft.add(draft.builder.ops("loop", trips, None, x, graphs={"body": body.graph}))


STEPS = (
    unary, unary, unary, binary, binary, binary, binary, select, cast, reshape, reshape, transpose, broadcast,
    take_slice, concat, reduce, softmax, matmul, scaled_conv, scaled_conv, shapes_in_the_making, sampled,
    sampled, branches, loop,
)  # fmt: skip


class Case:
    """A graph; it shows itself as the text that it had when it was drawn."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.text = print_graph(graph)

    def __repr__(self) -> str:
        return f"\n{self.text}"


def make_case(seed: int, num_steps: int) -> Case:
    """A graph of some nodes; any of its values, also inputs and constants, may be outputs.

    Fewer steps from one seed give the beginning of the same graph.
    """
    draft = Draft(np.random.default_rng(seed))
    draft_inputs(draft)
    for _ in range(num_steps):
        draft.one_of(STEPS)(draft)
    if draft.integer(0, 4) == 0:
        draft.pool.append(draft.constant(DType.F32, 2))
    graph = draft.builder.graph
    picked = [draft.one_of(draft.pool) for _ in range(draft.integer(0, 3))]
    graph.outputs = [*picked, draft.pool[-1]]
    graph.output_names = [f"y{k}" for k in range(len(graph.outputs))]
    return Case(graph)


def cases(max_steps: int = 16) -> st.SearchStrategy[Case]:
    """Graphs of up to max_steps steps."""
    return st.builds(make_case, st.integers(0, 2**40), st.integers(1, max_steps))


def random_feed(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Inputs for a graph whose symbols are those of SYMBOLS, or any within their range."""
    rng = np.random.default_rng(seed)
    sizes: dict[str, int] = {f"D{extent}": extent for extent in EXTENTS}
    for value in graph.inputs:
        for dim in value.shape:
            for symbol in dim.symbols():
                top = min(symbol.hi or 6, max(symbol.lo + 3, 6))
                choices = [n for n in range(max(symbol.lo, 1), top + 1) if n % symbol.multiple == 0]
                sizes.setdefault(symbol.name, int(rng.choice(choices or [symbol.multiple])))
    return {v.name: _random_array(v, tuple(d.evaluate(sizes) for d in v.shape), rng) for v in graph.inputs}


def _random_array(value: Value, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if value.elements is not None:
        return np.array([e.value for e in value.elements], value.dtype.np).reshape(shape)
    if value.dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if value.dtype.is_int:
        return rng.integers(0 if not value.dtype.is_signed else -3, 5, shape).astype(value.dtype.np)
    array = rng.uniform(-2, 2, shape)
    special = rng.random(shape)
    array = np.where(
        special < 0.04, np.nan, np.where(special > 0.96, np.inf, np.where(special > 0.9, 0.0, array))
    )
    return array.astype(value.dtype.np)
