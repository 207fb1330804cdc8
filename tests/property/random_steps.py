"""The steps by which random graphs grow: each puts some nodes on values of the draft's pool, or none."""

from __future__ import annotations

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.symbolic import const, sym
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Type, Value
from hagane.ir.registry import OpDef, Sample, all_ops
from hagane.ops.conv import conv_attrs
from tests.property.draft import EXTENTS, Draft, extent_of


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
ARITHMETIC = ("add", "sub", "mul", "div", "pow")
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
    op, a = draft.one_of(ARITHMETIC if draft.flip() else BINARY), draft.value()
    if a is None or (a.dtype is DType.BOOL and op not in ("and", "or", "xor", "eq", "ne")):
        return
    if draft.flip():
        extents = [extent_of(d) for d in a.shape]
        kept = draft.integer(0, len(extents))
        shape = [e if draft.flip() else 1 for e in extents[len(extents) - kept :]]
        if draft.integer(0, 3) == 0:  # the constant may be the larger one
            shape = [draft.one_of(EXTENTS) if e == 1 else e for e in extents]
            shape = [draft.one_of(EXTENTS), *shape] if len(shape) < 4 and draft.flip() else shape
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


def movement(draft: Draft) -> None:
    """Two or three movements of one value, one after the other."""
    value = draft.value(lambda v: v.rank > 1)
    pool = draft.pool
    for _ in range(draft.integer(2, 3)):
        if value is None:
            return
        draft.pool = [value]
        draft.one_of([reshape, transpose, transpose, take_slice])(draft)
        value, pool = draft.pool[-1], [*pool, *draft.pool[1:]]
    draft.pool = pool


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


def runtime_dim(draft: Draft) -> None:
    """A dim that data tells: as many leading elements as are above zero."""
    x = draft.value(lambda v: v.rank == 1 and v.dtype.is_float and v not in draft.tainted)
    if x is None:
        return
    builder = draft.builder
    above = builder.op("cast", builder.op("gt", x, builder.const(np.zeros(1), x.dtype)), to=DType.I64)
    count = builder.op("reduce_sum", above, axes=(0,), keepdims=False)
    name = f"N{len(builder.graph.nodes)}"
    builder.ops("bind_symbols", count, names=(name,))
    part = builder.op("slice", x, starts=(0,), steps=(1,), sizes=(sym(name, 0, 64),))
    draft.extra.append(builder.op("neg", builder.op("mul", part, part)))
    draft.extra.append(builder.op("shape_values", values=(sym(name, 0, 64) + 1,)))


STEPS = (
    unary, unary, binary, binary, binary, binary, binary, select, cast, reshape, transpose, broadcast,
    movement, movement, take_slice, concat, reduce, softmax, matmul, scaled_conv, scaled_conv, scaled_conv,
    shapes_in_the_making, sampled, sampled, branches, loop, runtime_dim,
)  # fmt: skip
