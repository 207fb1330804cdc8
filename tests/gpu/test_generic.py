"""The generic tactic for GPUs on every op that has a tensor expression, on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from hagane.codegen.triton.compile import KernelSource, compile_kernel
from hagane.core.targets import CudaTarget
from hagane.ir import interpreter
from hagane.ir.layout import num_elements
from hagane.ir.registry import OpDef, Sample
from hagane.kernels.tactic import Input
from hagane.kernels.triton.generic import TACTIC
from tests.differential.kernel_cases import check_close, op_case, op_cases
from tests.differential.layouts import pack, unpack
from tests.gpu.device import DeviceBuffer, capability, launch

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("op", "sample", "symbolic"), op_cases())
def test_generic_kernel_matches_reference(op: OpDef, sample: Sample, symbolic: bool) -> None:
    target = CudaTarget(capability())
    case = op_case(op, sample, symbolic)
    region, dims = case.region(), case.dims
    if not TACTIC.supports(region, target):
        pytest.skip("needs an element type that no GPU kernel computes on")
    weights = {v.name: v.data for v in case.graph.constants() if v.data is not None}
    given = [np.asarray(weights.get(v.name, case.feed.get(v.name)), v.dtype.np) for v in region.operands]
    inputs = [DeviceBuffer(pack(a, v.layout)) for a, v in zip(given, region.operands, strict=True)]
    sizes = [num_elements(v.layout, v.shape).evaluate(dims) * v.dtype.itemsize for v in region.outputs]
    outputs = [
        DeviceBuffer(np.full(size, 0xCD, np.uint8).view(v.dtype.np))
        for size, v in zip(sizes, region.outputs, strict=True)
    ]
    for number, step in enumerate(TACTIC.lower(region, target, {}).launches):
        name = f"{op.name}_{number}"
        source = KernelSource(
            name, step.write(name), step.signature, step.constants, step.num_warps, step.num_stages
        )
        buffers = [
            inputs[a.position] if isinstance(a, Input) else outputs[a.position]  # type: ignore[union-attr]
            for a in step.args
        ]
        types = list(step.signature[len(buffers) :])
        grid = tuple(e.evaluate(dims) for e in step.grid)
        values = [d.evaluate(dims) for d in step.dims]
        launch(compile_kernel(source, target.capability), buffers, values, types, grid)
    results = [b.read() for b in outputs]
    for buffer in inputs:
        buffer.read()
    want = list(interpreter.run(case.graph, case.feed).values())
    for value, memory, expected in zip(region.outputs, results, want, strict=True):
        shape = tuple(d.evaluate(dims) for d in value.shape)
        check_close(unpack(memory, value.layout, shape), expected)
