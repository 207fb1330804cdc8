"""Pools over sliding windows: max (with indices on demand), average and Lp. Global pools are reductions.

Padding takes no part in a maximum and counts in an average only with count_include_pad; what ceil_mode adds
beyond the padding never counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, ceildiv, const, emax, emin, product, sym
from hagane.ir.graph import Array, Node, Shape, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Guard, Index, IndexValue, LetIndex, Read, Scalar, both, cast, fn, lit
from hagane.ops.loops import Loops, accumulator, loops
from hagane.ops.windows import Ints, Windows, at_tap, taps, view_windows, windows_of


def _windows(node: Node) -> Windows:
    return windows_of(node.attrs, node.attrs["kernel"], node.input(0).rank - 2)


def _ceil_mode(attrs: Attrs) -> bool:
    return bool(attrs.get("ceil_mode", False))


def _output_shape(node: Node) -> Shape:
    x = node.input(0)
    if x.rank < 3:
        raise ShapeError(f"{node.op} takes [N, C, spatial...], not {x}")
    return (*x.shape[:2], *_windows(node).outputs(x.shape[2:], _ceil_mode(node.attrs)))


def _infer(node: Node) -> list[Type]:
    return [Type(node.input(0).dtype, _output_shape(node))]


def _infer_max(node: Node) -> list[Type]:
    types = _infer(node)
    if node.attrs.get("indices", False):
        types.append(Type(DType.I64, types[0].shape))
    return types


def lowest(dtype: DType) -> float | int:
    """The identity of max."""
    return -np.inf if dtype.is_float else int(np.iinfo(dtype.np).min)


def _guarded(node: Node, read: Read, index: Index, nest: Loops, other: float, wide: DType) -> Scalar:
    """The element under the loops' tap, or `other` in the padding."""
    x, windows = node.input(0), _windows(node)
    positions = windows.positions(index[2:], nest.positions)
    element = cast(read(0, (*index[:2], *positions)), wide)
    conditions = windows.inside(positions, x.shape[2:], _ceil_mode(node.attrs))
    return Guard(wide, both(*conditions), element, lit(wide, other)) if conditions else element


def _define_max(node: Node, read: Read, index: Index, output: int) -> Scalar:
    dtype = node.input(0).dtype
    if output == 1:
        return _define_indices(node, read, index)
    nest = loops(index, node.attrs["kernel"])
    return nest.reduce("max", _guarded(node, read, index, nest, lowest(dtype), dtype))


def _define_indices(node: Node, read: Read, index: Index) -> Scalar:
    """Position of the first maximum in the whole tensor, as if padding were absent."""
    x, windows, kernel = node.input(0), _windows(node), node.attrs["kernel"]
    nest = loops(index, [product(kernel)])
    scanned = Loops(nest.axes, _split(nest.positions[0], kernel))
    element = _guarded(node, read, index, scanned, lowest(x.dtype), x.dtype)
    best = sym(f"{nest.axes[0].sym.name}_best", 0, None, bound=product(kernel)) if nest.axes else const(0)
    flat = (index[0] * x.shape[1] + index[1]) * product(x.shape[2:])
    steps = spatial_steps(x.shape[2:], node.attrs.get("storage_order", 0))
    found = windows.positions(index[2:], _split(best, kernel))
    for position, extent, step in zip(found, x.shape[2:], steps, strict=True):
        # an all -inf window may find its maximum in the padding
        flat = flat + emin(emax(position, 0), extent - 1) * step
    result = IndexValue(DType.I64, flat)
    if best.as_sym is None:
        return result
    return LetIndex(DType.I64, best.as_sym.name, nest.reduce("argmax", element, DType.I64), result)


def _split(flat: Expr, kernel: Ints) -> tuple[Expr, ...]:
    """Positions along the kernel's axes from one that counts taps, the last axis fastest."""
    result: list[Expr] = []
    for extent in reversed(kernel):
        result.append(flat % extent)
        flat = flat // extent
    return tuple(reversed(result))


def spatial_steps(spatial: Shape, storage_order: int) -> list[Expr]:
    """Elements between neighbours along each spatial axis; storage order 1 puts the first axis innermost."""
    if storage_order:
        return [product(spatial[:a]) for a in range(len(spatial))]
    return [product(spatial[a + 1 :]) for a in range(len(spatial))]


def _define_avg(node: Node, read: Read, index: Index, output: int) -> Scalar:
    dtype = node.input(0).dtype
    wide = accumulator(dtype)
    nest = loops(index, node.attrs["kernel"])
    total = nest.reduce("sum", _guarded(node, read, index, nest, 0, wide))
    divisor = cast(IndexValue(DType.I64, product(_counted(node, index))), wide)
    return cast(fn("div", total, divisor), dtype)


def _counted(node: Node, index: Index) -> list[Expr]:
    """Number of taps along each spatial axis that an average counts."""
    x, windows = node.input(0), _windows(node)
    with_padding = node.attrs.get("count_include_pad", False)
    result: list[Expr] = []
    for axis, kernel in enumerate(windows.kernel):
        begin, end, dilation = windows.pads_begin[axis], windows.pads_end[axis], windows.dilations[axis]
        if ((begin == 0 and end == 0) or with_padding) and not _ceil_mode(node.attrs):
            result.append(kernel)
            continue
        first = windows.position(axis, index[axis + 2], const(0))
        last = x.shape[axis + 2] + (end if with_padding else 0)
        skipped = const(0) if with_padding or begin == 0 else ceildiv(emax(-first, 0), dilation)
        result.append(emin(kernel, ceildiv(last - first, dilation)) - skipped)
    return result


def _define_lp(node: Node, read: Read, index: Index, output: int) -> Scalar:
    dtype, p = node.input(0).dtype, node.attrs["p"]
    wide = accumulator(dtype)
    nest = loops(index, node.attrs["kernel"])
    element = _guarded(node, read, index, nest, 0, wide)
    if p == 1:
        return cast(nest.reduce("sum", fn("abs", element)), dtype)
    if p == 2:
        return cast(fn("sqrt", nest.reduce("sum", fn("mul", element, element))), dtype)
    total = nest.reduce("sum", fn("pow", fn("abs", element), lit(wide, p)))
    return cast(fn("pow", total, lit(wide, 1 / p)), dtype)


def _static_outputs(attrs: Attrs, x: Array) -> Ints:
    windows = windows_of(attrs, attrs["kernel"], x.ndim - 2)
    shape = windows.outputs(tuple(const(d) for d in x.shape[2:]), _ceil_mode(attrs))
    return tuple(d.value for d in shape)


def _accumulate(attrs: Attrs, x: Array, combine: Callable[[Array, Array], Array], padding: float) -> Array:
    """The windows' taps combined one after the other."""
    outputs = _static_outputs(attrs, x)
    view = view_windows(x, attrs["kernel"], attrs, outputs, padding)
    first, *rest = taps(attrs["kernel"])
    result = at_tap(view, first).copy()
    for tap in rest:
        result = combine(result, at_tap(view, tap))
    return result


def _padding(x: Array) -> float | int:
    return -np.inf if x.dtype.kind == "f" else int(np.iinfo(x.dtype).min)


def _max_pool(attrs: Attrs, x: Array) -> Array | tuple[Array, Array]:
    y = _accumulate(attrs, x, np.maximum, _padding(x))
    return (y, _max_indices(attrs, x)) if attrs.get("indices", False) else y


def _max_indices(attrs: Attrs, x: Array) -> Array:
    outputs, kernel = _static_outputs(attrs, x), attrs["kernel"]
    view = view_windows(x, kernel, attrs, outputs, _padding(x))
    winner = view.reshape((*x.shape[:2], *outputs, -1)).argmax(axis=-1)
    planes = np.arange(x.shape[0] * x.shape[1]).reshape((*x.shape[:2],) + (1,) * len(outputs))
    flat = planes * int(np.prod(x.shape[2:]))
    spatial = tuple(const(d) for d in x.shape[2:])
    steps = spatial_steps(spatial, attrs.get("storage_order", 0))
    for axis, tap in enumerate(np.unravel_index(winner, kernel)):
        window = np.arange(outputs[axis]).reshape((-1,) + (1,) * (len(outputs) - axis - 1))
        start = window * attrs["strides"][axis] - attrs["pads_begin"][axis]
        position = start + tap * attrs["dilations"][axis]
        flat = flat + np.clip(position, 0, x.shape[axis + 2] - 1) * steps[axis].value
    return flat


def _avg_pool(attrs: Attrs, x: Array) -> Array:
    total = _accumulate(attrs, x, np.add, 0)
    counted = np.ones((1, 1, *x.shape[2:]))
    inner = dict(attrs)
    if attrs.get("count_include_pad", False):
        widths = [(0, 0), (0, 0), *zip(attrs["pads_begin"], attrs["pads_end"], strict=True)]
        counted = np.pad(counted, widths, constant_values=1)
        inner |= {"pads_begin": (0,) * (x.ndim - 2), "pads_end": (0,) * (x.ndim - 2)}
    outputs = total.shape[2:]
    view = view_windows(counted, attrs["kernel"], inner, outputs)
    return np.asarray(total / view.sum(axis=tuple(range(2 - x.ndim, 0))))


def _lp_pool(attrs: Attrs, x: Array) -> Array:
    return np.asarray(_accumulate(attrs, np.abs(x) ** attrs["p"], np.add, 0) ** (1 / attrs["p"]))


def pool_attrs(*kernel: int, **changed: object) -> Attrs:
    """Attributes of a pool: strides and dilations of one and no padding unless given."""
    plain = {"strides": 1, "pads_begin": 0, "pads_end": 0, "dilations": 1}
    attrs: Attrs = {name: (value,) * len(kernel) for name, value in plain.items()}
    return attrs | {"kernel": kernel, "ceil_mode": False} | changed


def _samples(**extra: object) -> Iterable[Sample]:
    rng = np.random.default_rng(0)

    def x(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    padded = {"pads_begin": (1, 1), "pads_end": (1, 1)}
    free = ((0, 0), (0, 2), (0, 3))
    yield Sample((x(2, 5, 9, 11),), pool_attrs(3, 3, strides=(2, 2), **padded, **extra), dynamic=free)
    yield Sample((x(1, 17, 8, 6),), pool_attrs(2, 2, strides=(2, 2), **extra), dynamic=free)
    yield Sample((x(1, 3, 8, 10),), pool_attrs(3, 3, strides=(2, 2), ceil_mode=True, **extra), dynamic=free)
    yield Sample(
        (x(1, 3, 10, 7),), pool_attrs(3, 2, strides=(3, 2), ceil_mode=True, **padded, **extra), dynamic=free
    )
    yield Sample((x(1, 3, 9, 9),), pool_attrs(5, 5, pads_begin=(2, 2), pads_end=(2, 2), **extra))
    yield Sample(
        (x(1, 3, 12, 9),),
        pool_attrs(2, 3, dilations=(3, 2), pads_begin=(1, 0), pads_end=(0, 2), **extra),
        dynamic=free,
    )
    yield Sample(
        (x(2, 3, 19),),
        pool_attrs(4, strides=(3,), pads_begin=(2,), pads_end=(1,), **extra),
        dynamic=((0, 2),),
    )
    yield Sample((x(1, 2, 4, 5, 6),), pool_attrs(2, 2, 2, strides=(2, 2, 2), ceil_mode=True, **extra))
    yield Sample((x(1, 3, 7, 7).astype(np.float16),), pool_attrs(3, 3, strides=(2, 2), **padded, **extra))


def _max_samples() -> Iterable[Sample]:
    yield from _samples()
    yield from _samples(indices=True, storage_order=0)
    x = np.random.default_rng(1).integers(-99, 99, (1, 3, 7, 9)).astype(np.int8)
    attrs = pool_attrs(
        3, 3, strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1), indices=True, storage_order=1
    )
    yield Sample((x,), attrs, dynamic=((0, 2), (0, 3)))


def _avg_samples() -> Iterable[Sample]:
    yield from _samples(count_include_pad=False)
    yield from _samples(count_include_pad=True)


def _lp_samples() -> Iterable[Sample]:
    for p in (1, 2, 3):
        yield from list(_samples(p=p))[:4]


register(OpDef("max_pool", "window", _infer_max, _max_pool, define=_define_max, samples=_max_samples))
register(OpDef("avg_pool", "window", _infer, _avg_pool, define=_define_avg, samples=_avg_samples))
register(OpDef("lp_pool", "window", _infer, _lp_pool, define=_define_lp, samples=_lp_samples))
