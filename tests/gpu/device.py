"""Launches compiled Triton kernels on the first NVIDIA GPU, through the driver's own interface."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from hagane.codegen.triton.compile import Cubin

Array = np.ndarray[Any, Any]


def checked(result: tuple[Any, ...]) -> Any:
    """What a driver call gave. Fails on its error."""
    error, *values = result
    assert int(error) == 0, f"the driver says {error}"
    return values[0] if len(values) == 1 else tuple(values)


@cache
def capability() -> int:
    """The GPU's compute capability, such as 90. Skips the test where there is no GPU."""
    driver = pytest.importorskip("cuda.bindings.driver", reason="needs cuda-bindings")
    try:
        (error,) = driver.cuInit(0)
    except RuntimeError as fault:  # there is no driver library
        pytest.skip(f"needs an NVIDIA GPU: {fault}")
    if int(error) != 0:
        pytest.skip(f"needs an NVIDIA GPU: {error}")
    device = checked(driver.cuDeviceGet(0))
    checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(device))))
    kinds = driver.CUdevice_attribute
    major = checked(driver.cuDeviceGetAttribute(kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
    minor = checked(driver.cuDeviceGetAttribute(kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
    return int(major) * 10 + int(minor)


class DeviceBuffer:
    """A copy of an array in the GPU's memory, between margins that must not change."""

    MARGIN = 256

    def __init__(self, content: Array) -> None:
        from cuda.bindings import driver

        self._host = np.full(content.nbytes + 2 * self.MARGIN, 0xA5, np.uint8)
        inner = self._host[self.MARGIN : self.MARGIN + content.nbytes]
        inner[...] = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        self._dtype = content.dtype
        self._base = int(checked(driver.cuMemAlloc(self._host.nbytes)))
        checked(driver.cuMemcpyHtoD(self._base, self._host.ctypes.data, self._host.nbytes))

    @property
    def address(self) -> int:
        return self._base + self.MARGIN

    def read(self) -> Array:
        """The content now. Fails if a margin changed; frees the memory."""
        from cuda.bindings import driver

        checked(driver.cuMemcpyDtoH(self._host.ctypes.data, self._base, self._host.nbytes))
        checked(driver.cuMemFree(self._base))
        end = len(self._host) - self.MARGIN
        assert (self._host[: self.MARGIN] == 0xA5).all() and (self._host[end:] == 0xA5).all()
        return self._host[self.MARGIN : end].view(self._dtype)


def launch(
    cubin: Cubin, buffers: list[DeviceBuffer], dims: list[int], types: list[str], grid: tuple[int, ...]
) -> None:
    """Runs a kernel and waits. types: those of the dims, i32 or i64."""
    from cuda.bindings import driver

    module = checked(driver.cuModuleLoadData(cubin.code))
    function = checked(driver.cuModuleGetFunction(module, cubin.entry.encode()))
    if cubin.shared_bytes > 48 << 10:
        kind = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(driver.cuFuncSetAttribute(function, kind, cubin.shared_bytes))
    values = [np.array([b.address], np.uint64) for b in buffers]
    values += [np.array([d], np.int32 if t == "i32" else np.int64) for d, t in zip(dims, types, strict=True)]
    values += [np.zeros(1, np.uint64)] * 2  # Triton's scratch memory, which these kernels don't use
    pointers = np.array([v.ctypes.data for v in values], np.uint64)
    x, y, z = (*grid, 1, 1)[:3]
    threads = cubin.num_warps * 32
    checked(
        driver.cuLaunchKernel(
            function, x, y, z, threads, 1, 1, cubin.shared_bytes, 0, pointers.ctypes.data, 0
        )
    )
    checked(driver.cuCtxSynchronize())
    checked(driver.cuModuleUnload(module))
