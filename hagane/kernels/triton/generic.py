"""The generic tactic for GPUs: any region that has a tensor expression, one lane for each output element.

Reductions are loops of each lane by itself. It is the fallback for every numeric op, and the tactic of choice
for pointwise regions.
"""

from __future__ import annotations

from hagane.codegen.triton import Source
from hagane.core.errors import HaganeError
from hagane.core.symbolic import Expr, ceildiv, product
from hagane.core.targets import CudaTarget
from hagane.ir.graph import Value as Tensor
from hagane.ir.layout import num_elements, offset_of
from hagane.ir.region import Region, region_symbols
from hagane.kernels.tactic import ANY, Argument, Input, Layouts, Output, Params
from hagane.kernels.triton.indices import Indices
from hagane.kernels.triton.launch import TritonLaunch, TritonLowering
from hagane.kernels.triton.scalars import ScalarEmitter, Value
from hagane.kernels.triton.types import has_kernels, pointer_signature

LANES = 512
_WARPS = 4
_MOST_I32 = 1 << 31


class Generic:
    """See the module."""

    name = "generic"

    def supports(self, region: Region, target: CudaTarget) -> bool:
        values = [*region.operands, *region.outputs, *(v for n in region.body.nodes for v in n.outputs)]
        if not all(has_kernels(v.dtype) for v in values):
            return False
        try:
            for output in range(len(region.outputs)):
                region.expression(_index(region, output), output)
        except HaganeError:
            return False
        return True

    def layouts(self, region: Region, target: CudaTarget) -> Layouts:
        return Layouts(tuple(ANY for _ in region.operands), tuple(ANY for _ in region.outputs))

    def space(self, region: Region, target: CudaTarget) -> list[Params]:
        return [{}]

    def lower(self, region: Region, target: CudaTarget, params: Params) -> TritonLowering:
        full = [k for k, v in enumerate(region.outputs) if product(v.shape) != 0]
        return TritonLowering(tuple(self._launch(region, k) for k in full))

    def _launch(self, region: Region, output: int) -> TritonLaunch:
        dims = region_symbols(region)
        args: tuple[Argument, ...] = (*(Input(k) for k in range(len(region.operands))), Output(output))
        tensors = [*region.operands, region.outputs[output]]
        index_type = _index_type(tensors)
        pointers = tuple(pointer_signature(t.dtype) for t in tensors)

        def write(name: str) -> str:
            return _write(name, region, output, dims, index_type)

        return TritonLaunch(
            "elements",
            write,
            args,
            dims,
            (*pointers, *(index_type for _ in dims)),
            (ceildiv(product(region.outputs[output].shape), LANES),),
            {"BLOCK": LANES},
            num_warps=_WARPS,
        )


def _index(region: Region, output: int) -> tuple[Expr, ...]:
    return tuple(Expr([((axis.sym,), 1)]) for axis in region.axes(output))


def _index_type(tensors: list[Tensor]) -> str:
    """i32 where no tensor can have more elements than it counts: divisions in i64 are four times as slow."""
    most = [num_elements(t.layout, t.shape).bounds()[1] for t in tensors]
    return "i32" if all(m is not None and m + LANES < _MOST_I32 for m in most) else "i64"


def _write(name: str, region: Region, output: int, dims: tuple[Expr, ...], index_type: str) -> str:
    """The kernel of one output."""
    operands = [(f"x{k}", value) for k, value in enumerate(region.operands)]
    result = region.outputs[output]
    names = [s.name for s in (dim.as_sym for dim in dims) if s is not None]
    source = Source(name, [*(n for n, _ in operands), "y"], [f"dim_{n}" for n in names], ["BLOCK"])
    for node in region.node.loc.nodes:
        source.comment(node)
    indices = Indices(source, index_type)
    for symbol in names:
        indices.bind(symbol, f"dim_{symbol}", lanes=False)
    flat = source.let(f"tl.program_id(0).to({indices.triton_type}) * BLOCK + tl.arange(0, BLOCK)", "element")
    total = indices.text(product(result.shape))
    mask = Value(source.let(f"{flat} < {total}", "mask"), True)
    _bind_axes(source, indices, region, output, flat)
    emitter = ScalarEmitter(source, operands, indices, mask)
    index = _index(region, output)
    value = emitter.emit(region.expression(index, output))
    offset = offset_of(result.layout, result.shape, index)
    place = indices.text(offset)
    if not indices.varies(offset):
        place = source.let(f"tl.full((BLOCK,), {place}, {indices.triton_type})", "i")
    emitter.store(value, "y", result, place)
    return source.text()


def _bind_axes(source: Source, indices: Indices, region: Region, output: int, flat: str) -> None:
    """Takes the element's number apart, the last axis first."""
    rest = flat
    axes = region.axes(output)
    for axis in axes:
        if axis.extent.is_const and axis.extent.value == 1:
            indices.bind(axis.sym.name, "0", lanes=False)
    axes = tuple(a for a in axes if not indices.has(a.sym.name))
    for number, axis in reversed(list(enumerate(axes))):
        extent = indices.text(axis.extent)
        if number == 0:
            indices.bind(axis.sym.name, rest, lanes=True)
            break
        indices.bind(axis.sym.name, source.let(f"{rest} % {extent}", axis.sym.name + "_"), lanes=True)
        rest = source.let(f"{rest} // {extent}", "rest")


TACTIC = Generic()
