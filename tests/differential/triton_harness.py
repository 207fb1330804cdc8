"""Runs tactics for GPUs on the CPU, under Triton's interpreter, on NumPy arrays and without torch.

Triton decides when it is imported whether it interprets: in a process that uses this module it always does.
Three things are mended here, for tests only: f32 to bf16 conversions round instead of cutting off bits,
conversions keep scalars scalar, and libdevice's functions are NumPy's.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import triton.language as tl
from triton.runtime import interpreter as triton_interpreter

from hagane.codegen.triton.compile import KernelSource, load_kernel
from hagane.core.targets import CudaTarget
from hagane.host.recipes import run_recipe
from hagane.ir import interpreter
from hagane.ir.layout import num_elements
from hagane.ir.region import Region
from hagane.kernels.tactic import Input, Output, Packed
from hagane.kernels.triton.launch import TritonLaunch, TritonLowering
from hagane.plan.model import Constant
from tests.differential.harness import Case
from tests.differential.layouts import pack, unpack

Array = np.ndarray[Any, Any]
TARGET = CudaTarget(90)
_MARGIN = 64  # bytes on each side of a buffer that must not change


class _Pointer:
    """What the interpreter takes for a tensor: an address with an element type."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.dtype = "bfloat16" if array.dtype == ml_dtypes.bfloat16 else array.dtype

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def untyped_storage(self) -> _Pointer:
        return self

    def cpu(self) -> _Pointer:
        return self

    def new_empty(self, *args: Any, **kwargs: Any) -> _Pointer:
        return self

    def set_(self, *args: Any) -> None: ...

    def copy_(self, other: Any) -> None: ...

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self.array.shape

    stride = size


def _cast(builder: Any, source: Any, target: Any) -> Any:
    """The interpreter's conversion, with rounding to bf16."""
    handle = triton_interpreter.TensorHandle
    data, element = source.data, target.scalar
    if source.dtype.scalar == tl.bfloat16:
        data = data.view(ml_dtypes.bfloat16).astype(np.float32)
    if element == tl.bfloat16:
        return handle(data.astype(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16), element)
    return handle(data.astype(triton_interpreter._get_np_dtype(target)), element)


_RENAMED = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
    "atanh": "arctanh", "pow": "power",
}  # fmt: skip


class _Libdevice:
    """libdevice by NumPy, in float64 rounded to the arguments' type."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name == "erf":
            function: Callable[..., Any] = np.vectorize(math.erf, otypes=[np.float64])
        else:
            function = getattr(np, _RENAMED.get(name, name))

        def call(*args: Any) -> Any:
            element = args[0].type.scalar
            data = np.asarray(function(*(a.handle.data.astype(np.float64) for a in args)))
            data = data.astype(args[0].handle.data.dtype)
            kind = tl.block_type(element, list(data.shape)) if data.shape else element
            return tl.tensor(triton_interpreter.TensorHandle(data, element), kind)

        return call


def _range(*bounds: Any) -> Any:
    """range() over the interpreter's numbers, which are arrays of one element."""
    return range(*(int(b.handle.data.item()) if isinstance(b, tl.tensor) else int(b) for b in bounds))


triton_interpreter.InterpreterBuilder.cast_impl = _cast  # type: ignore[method-assign]
triton_interpreter.InterpreterBuilder.create_fp_to_fp = (  # type: ignore[method-assign]
    lambda self, source, target, rounding: _cast(self, source, target)
)


def kernel_source(launch: TritonLaunch, name: str = "kernel") -> KernelSource:
    """The launch's kernel, as the compiler takes it."""
    return KernelSource(
        name, launch.write(name), launch.signature, launch.constants, launch.num_warps, launch.num_stages
    )


class _Buffer:
    """Memory between margins."""

    def __init__(self, content: Array) -> None:
        self._all = np.full(content.nbytes + 2 * _MARGIN, 0xA5, np.uint8)
        inner = self._all[_MARGIN : _MARGIN + content.nbytes]
        inner[...] = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        self.array: Array = inner.view(content.dtype)

    def intact(self) -> bool:
        return bool(
            (self._all[:_MARGIN] == 0xA5).all() and (self._all[len(self._all) - _MARGIN :] == 0xA5).all()
        )


def run(region: Region, lowering: TritonLowering, case: Case) -> list[Array]:
    """The region's outputs, in their logical order. Fails if a kernel writes outside its buffers."""
    weights = {v.name: v.data for v in case.graph.constants() if v.data is not None}
    dims = case.dims
    given = [np.asarray(weights.get(v.name, case.feed.get(v.name)), v.dtype.np) for v in region.operands]
    inputs = [_Buffer(pack(a, v.layout)) for a, v in zip(given, region.operands, strict=True)]
    outputs = []
    for value in region.outputs:
        size = num_elements(value.layout, value.shape).evaluate(dims)
        outputs.append(_Buffer(np.full(size * value.dtype.itemsize, 0xCD, np.uint8).view(value.dtype.np)))
    sizes = [expr.evaluate(dims) for expr in lowering.temporaries]
    temporaries = [_Buffer(np.full(size, 0xCD, np.uint8)) for size in sizes]
    for number, launch in enumerate(lowering.launches):
        buffers = []
        for argument in launch.args:
            if isinstance(argument, Input):
                buffers.append(inputs[argument.position])
            elif isinstance(argument, Output):
                buffers.append(outputs[argument.position])
            elif isinstance(argument, Packed):
                constant = Constant("packed", argument.dtype, argument.shape, argument.recipe)
                buffers.append(_Buffer(np.asarray(run_recipe(constant, weights), argument.dtype.np)))
            else:
                buffers.append(temporaries[argument.number])
        _run_launch(launch, f"kernel{number}", buffers, dims)
    assert all(b.intact() for b in [*inputs, *outputs, *temporaries])
    shapes = [tuple(d.evaluate(dims) for d in v.shape) for v in region.outputs]
    return [
        unpack(b.array, v.layout, shape) for v, b, shape in zip(region.outputs, outputs, shapes, strict=True)
    ]


def _run_launch(launch: TritonLaunch, name: str, buffers: list[_Buffer], dims: dict[str, int]) -> None:
    grid = tuple(expr.evaluate(dims) for expr in launch.grid)
    with tempfile.TemporaryDirectory() as folder:
        function = load_kernel(kernel_source(launch, name), Path(folder))
        function.fn.__globals__.update(libdevice=_Libdevice(), range=_range)
        values = [expr.evaluate(dims) for expr in launch.dims]
        with np.errstate(all="ignore"):
            function[grid](*(_Pointer(b.array) for b in buffers), *values, **launch.constants)


def reference(case: Case) -> list[Array]:
    """The interpreter's outputs."""
    return list(interpreter.run(case.graph, case.feed).values())
