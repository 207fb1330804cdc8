"""Runs one tactic on one region and compares it with the interpreter.

    case = Case(builder.graph, {"x": array})   # constants are weights; the arrays bind symbolic dims
    check(TACTIC, case, V4)                    # the error bound of the design, three thread counts
    check(TACTIC, case, V4, exact=True)        # == on small integers

A case fails too if halo or unused lanes of an output aren't zero, or the kernel writes outside its buffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import hagane.ops  # noqa: F401
from hagane.codegen.llvm import Module
from hagane.core.symbolic import Expr
from hagane.core.targets import CpuTarget
from hagane.host.recipes import run_recipe
from hagane.ir import interpreter
from hagane.ir.graph import Graph, Node, Type, Value
from hagane.ir.layout import Layout, num_elements
from hagane.ir.region import Region
from hagane.ir.registry import op_def
from hagane.kernels.tactic import (
    AnyLayout,
    Input,
    KernelLaunch,
    Lowering,
    Output,
    Packed,
    Params,
    Tactic,
    Temporary,
)
from hagane.plan.model import Constant
from tests.differential.layouts import pack, padding, unpack
from tests.unit.codegen.native import Loaded, load_modules

Array = np.ndarray[Any, Any]
_MARGIN = 256  # bytes around each buffer that must not change


@dataclass
class Case:
    """A graph whose nodes make one region, and values of its inputs."""

    graph: Graph
    feed: dict[str, Array]

    @property
    def dims(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for value in self.graph.inputs:
            interpreter.bind_dims(value, np.shape(self.feed[value.name]), found)
        return found

    def region(self) -> Region:
        return make_region(self.graph)


def make_region(graph: Graph) -> Region:
    """All nodes of a graph as one region; inputs and constants of more than one element are its operands."""
    body = Graph("body")
    mapping: dict[Value, Value] = {}
    operands: list[Value] = []
    for value in graph.referenced():
        if value in mapping or not (
            value in graph.inputs or (value.data is not None and value.data.size != 1)
        ):
            continue
        mapping[value] = Value(value.name + "~0", value.type, elements=value.elements)
        operands.append(value)
    body.inputs = [mapping[v] for v in operands]
    for node in graph.nodes:
        inner = Node(node.op, [None if v is None else mapping.get(v, v) for v in node.inputs], [], node.attrs)
        inner.outputs = [Value(v.name + "~0", v.type, inner) for v in node.outputs]
        mapping.update(zip(node.outputs, inner.outputs, strict=True))
        body.nodes.append(inner)
    body.outputs = [mapping[v] for v in graph.outputs]
    anchors = [op_def(n.op).kind for n in graph.nodes if op_def(n.op).kind == "contraction"]
    kind = anchors[0] if anchors else op_def(graph.nodes[-1].op).kind
    outputs = [Value(v.name, v.type) for v in graph.outputs]
    node = Node("region", list(operands), outputs, {"kind": kind}, {"body": body})
    for value in outputs:
        value.producer = node
    return Region(node)


def set_layouts(region: Region, tactic: Tactic, target: CpuTarget, extra_halo: int = 0) -> None:
    """Gives operands and outputs the layouts that the tactic asks for, with more halo if wanted."""
    wanted = tactic.layouts(region, target)
    for values, layouts in ((region.operands, wanted.inputs), (region.outputs, wanted.outputs)):
        for value, layout in zip(values, layouts, strict=True):
            value.layout = None if isinstance(layout, AnyLayout) else _widened(layout, value, extra_halo)


def _widened(layout: Layout | None, value: Value, extra: int) -> Layout | None:
    if layout is None or not extra or not layout.blocks:
        return layout
    # different on each side, so that a mix-up shows
    halo = [layout.halo_of(a) for a in range(value.rank)]
    wide = [(b + extra, a + 2 * extra) if axis >= 2 else (b, a) for axis, (b, a) in enumerate(halo)]
    return replace(layout, halo=tuple(wide))


class Buffer:
    """Memory of a size, aligned to 64 bytes, between margins filled with NaN patterns."""

    def __init__(self, nbytes: int) -> None:
        self._all = np.full(nbytes + 2 * _MARGIN + 64, 0xFF, np.uint8)
        self._first = _MARGIN + -(self._all.ctypes.data + _MARGIN) % 64
        self.bytes = self._all[self._first : self._first + nbytes]

    @property
    def address(self) -> int:
        return int(self.bytes.ctypes.data)

    def intact(self) -> bool:
        before, after = self._all[: self._first], self._all[self._first + len(self.bytes) :]
        return bool((before == 0xFF).all() and (after == 0xFF).all())


class Runner:
    """A lowered region, compiled and loaded, with its buffers."""

    def __init__(self, region: Region, lowering: Lowering, target: CpuTarget, case: Case) -> None:
        self.region, self.lowering, self.dims = region, lowering, case.dims
        module = Module(target)
        self.names = [f"k{n}_{launch.slug}" for n, launch in enumerate(lowering.launches)]
        for name, launch in zip(self.names, lowering.launches, strict=True):
            launch.emit(module, name)
        self.text = module.text()
        self.loaded: Loaded = load_modules(module, exports=self.names)
        weights = {v.name: v.data for v in case.graph.constants() if v.data is not None}
        self.inputs = [self._load(v, weights.get(v.name, case.feed.get(v.name))) for v in region.operands]
        self.outputs = [Buffer(self._nbytes(v)) for v in region.outputs]
        self.temporaries = [Buffer(e.evaluate(self.dims)) for e in lowering.temporaries]
        self.packed = {
            id(argument): self._packed(argument, weights)
            for launch in lowering.launches
            for argument in launch.args
            if isinstance(argument, Packed)
        }
        self._scratch_bytes = -(-lowering.scratch_bytes.evaluate(self.dims) // 64) * 64

    def _nbytes(self, value: Value) -> int:
        return num_elements(value.layout, value.shape).evaluate(self.dims) * value.dtype.itemsize

    def _load(self, value: Value, array: Array | None) -> Buffer:
        assert array is not None, f"no data for {value}"
        memory = pack(np.asarray(array, value.dtype.np), value.layout).view(np.uint8)
        buffer = Buffer(len(memory))
        buffer.bytes[:] = memory
        return buffer

    def _packed(self, argument: Packed, weights: Mapping[str, Array]) -> Buffer:
        constant = Constant("packed", argument.dtype, argument.shape, argument.recipe)
        array = run_recipe(constant, weights)
        memory = np.ascontiguousarray(array, argument.dtype.np).reshape(-1).view(np.uint8)
        buffer = Buffer(len(memory))
        buffer.bytes[:] = memory
        return buffer

    def run(self, num_threads: int = 1) -> list[Array]:
        """Runs all launches, one thread after the other; the logical outputs."""
        for buffer in (*self.outputs, *self.temporaries):
            buffer.bytes[:] = 0xFF
        scratch = [Buffer(self._scratch_bytes) for _ in range(num_threads)]
        for name, launch in zip(self.names, self.lowering.launches, strict=True):
            self.launch(name, launch, scratch)
        for buffer in (*self.inputs, *self.outputs, *self.temporaries, *self.packed.values(), *scratch):
            assert buffer.intact(), "the kernel wrote outside a buffer"
        return [self._result(v, b) for v, b in zip(self.region.outputs, self.outputs, strict=True)]

    def launch(self, name: str, launch: KernelLaunch, scratch: list[Buffer]) -> None:
        args = np.array([self._argument(a).address for a in launch.args], np.int64)
        dims = np.array([d.evaluate(self.dims) for d in launch.dims], np.int64)
        threads = scratch[:1] if launch.serial else scratch
        for tid, space in enumerate(threads):
            self.loaded(name, args, dims, space.address, tid, len(threads))

    def _argument(self, argument: Input | Output | Temporary | Packed) -> Buffer:
        match argument:
            case Input(position=position):
                return self.inputs[position]
            case Output(position=position):
                return self.outputs[position]
            case Temporary(number=number):
                return self.temporaries[number]
            case Packed():
                return self.packed[id(argument)]

    def _result(self, value: Value, buffer: Buffer) -> Array:
        memory = buffer.bytes.view(value.dtype.np)
        shape = tuple(d.evaluate(self.dims) for d in value.shape)
        assert not padding(memory, value.layout, shape).any(), f"halo or unused lanes of {value} aren't zero"
        return unpack(memory, value.layout, shape)


def prepare(
    tactic: Tactic, case: Case, target: CpuTarget, params: Params | None = None, extra_halo: int = 0
) -> Runner:
    """The case's region lowered with the tactic (its first guess of parameters unless given)."""
    region = case.region()
    assert tactic.supports(region, target), f"{tactic.name} doesn't support the case"
    set_layouts(region, tactic, target, extra_halo)
    chosen = params if params is not None else tactic.space(region, target)[0]
    return Runner(region, tactic.lower(region, target, chosen), target, case)


def check(
    tactic: Tactic,
    case: Case,
    target: CpuTarget,
    params: Params | None = None,
    *,
    exact: bool = False,
    extra_halo: int = 0,
    c: float = 2.0,
    error_tile: int = 1,
    threads: tuple[int, ...] = (1, 2, 3),
) -> Runner:
    """Compares each thread count with the interpreter; all must give the same bits. Returns the runner."""
    runner = prepare(tactic, case, target, params, extra_halo)
    expected = list(interpreter.run(case.graph, case.feed).values())
    bounds = [np.zeros_like(e) for e in expected] if exact else error_bounds(case, c, error_tile)
    first: list[Array] | None = None
    for num_threads in threads:
        results = runner.run(num_threads)
        for result, want, bound in zip(results, expected, bounds, strict=True):
            _compare(result, want, bound, f"{tactic.name} {dict(params or {})} on {num_threads} threads")
        if first is not None:
            for result, before in zip(results, first, strict=True):
                assert result.tobytes() == before.tobytes(), f"{num_threads} threads give other bits"
        first = first or results
    return runner


def _compare(result: Array, want: Array, bound: Array, what: str) -> None:
    same = (result == want) | (np.isnan(result) & np.isnan(want))
    if want.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            same |= np.abs(result.astype(np.float64) - want.astype(np.float64)) <= bound
    if not same.all():
        place = tuple(int(i) for i in np.argwhere(~same)[0])
        raise AssertionError(
            f"{what}: {int((~same).sum())} of {same.size} elements are off, first {place}: "
            f"{result[place]} for {want[place]}, bound {bound[place]}"
        )


def error_bounds(case: Case, c: float = 2.0, tile: int = 1) -> list[Array]:
    """Per output c * (u_out*|y| + sqrt(K)*u_acc*sum|a||b|), the second part carried through the epilogue.

    To u_out*|y| comes the rounding of what the epilogue computes on the way, which may be larger than y.
    tile: sum|a||b| is its largest in tiles of so many rows and columns, as in Winograd convolution.
    """
    graph = case.graph
    anchors = [n for n in graph.nodes if op_def(n.op).kind == "contraction"]
    outputs = interpreter.run(graph, case.feed)
    unit = [float(np.finfo(v.dtype.np).eps) / 2 if v.dtype.is_float else 0.0 for v in graph.outputs]
    plain = [
        np.asarray(c * u * np.abs(y.astype(np.float64))) for u, y in zip(unit, outputs.values(), strict=True)
    ]
    if not anchors:
        return plain
    (anchor,) = anchors
    values = _watched(graph, case.feed)
    for node in graph.nodes[graph.nodes.index(anchor) + 1 : -1]:
        for bound, u in zip(plain, unit, strict=True):
            if values[node.output].shape == bound.shape:
                bound += u * np.abs(values[node.output])
    arrays = [None if v is None else _array(v, values) for v in anchor.inputs]
    attrs = {k: interpreter.concrete(a, case.dims) for k, a in anchor.attrs.items()}
    magnitude = op_def(anchor.op).reference(attrs, *[None if a is None else np.abs(a) for a in arrays])
    num_terms = _num_terms(anchor, arrays)
    delta = c * np.sqrt(num_terms) * 2.0**-24 * _largest_in_tiles(np.asarray(magnitude), tile)
    moved = [_shifted(graph, anchor, case, values[anchor.output] + sign * delta) for sign in (1, -1)]
    centre = _shifted(graph, anchor, case, values[anchor.output])
    spread = [np.maximum(np.abs(a - m), np.abs(b - m)) for a, b, m in zip(*moved, centre, strict=True)]
    return [p + s for p, s in zip(plain, spread, strict=True)]


def _largest_in_tiles(array: Array, tile: int) -> Array:
    if tile == 1:
        return array
    for axis in (array.ndim - 2, array.ndim - 1):
        starts = np.arange(0, array.shape[axis], tile)
        largest = np.maximum.reduceat(array, starts, axis)
        array = np.repeat(largest, tile, axis).take(np.arange(array.shape[axis]), axis)
    return array


def _watched(graph: Graph, feed: Mapping[str, Array]) -> dict[Value, Array]:
    values = {v: interpreter.widen(feed[v.name], v.dtype) for v in graph.inputs}
    interpreter.run(graph, feed, lambda value, array: values.__setitem__(value, array))
    return values


def _array(value: Value, values: dict[Value, Array]) -> Array:
    return interpreter.widen(value.data, value.dtype) if value.data is not None else values[value]


def _num_terms(anchor: Node, arrays: list[Array | None]) -> int:
    a, b = arrays[0], arrays[1]
    assert a is not None and b is not None
    if anchor.op == "matmul":
        return int(a.shape[-1])
    # a convolution's weight is [M, C/group, kernel], a transposed one's [C, M/group, kernel]
    size = int(np.prod(b.shape[1:])) if anchor.op == "conv" else b.size // b.shape[1] // anchor.attrs["group"]
    return max(size, 1)


def _shifted(graph: Graph, anchor: Node, case: Case, value: Array) -> list[Array]:
    """The outputs with the anchor's result replaced, in float64."""
    from hagane.core.dtypes import DType

    stand_in = Value("acc~", Type(DType.F64, anchor.output.shape))
    mapping = {anchor.output: stand_in}
    rest = Graph("rest", [*graph.inputs, stand_in])
    for node in graph.nodes:
        if node is anchor:
            continue
        copy = Node(node.op, [None if v is None else mapping.get(v, v) for v in node.inputs], [], node.attrs)
        copy.outputs = [Value(v.name, v.type, copy) for v in node.outputs]
        mapping.update(zip(node.outputs, copy.outputs, strict=True))
        rest.nodes.append(copy)
    rest.outputs = [mapping.get(v, v) for v in graph.outputs]
    values = _watched(rest, {**case.feed, stand_in.name: value})
    return [_array(v, values) for v in rest.outputs]


def uniform(seed: int, *shape: int) -> Array:
    """Reproducible numbers in [-1, 1)."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def integers(seed: int, low: int, high: int, *shape: int) -> Array:
    """Reproducible whole numbers from low to high, both included, as f32."""
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(np.float32)


def dims_of(shape: tuple[int, ...], names: tuple[str | None, ...]) -> list[int | Expr]:
    """A shape with a symbol where a name is given."""
    from hagane.core.symbolic import sym

    return [d if name is None else sym(name, 1) for d, name in zip(shape, names, strict=True)]
