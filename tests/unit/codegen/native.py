"""Runs generated code: compile, link, map, call."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from hagane.codegen.llvm.compile import compile_module
from hagane.codegen.llvm.dsl import Function, Module, Value, vector
from hagane.codegen.llvm.link import Blob, link
from hagane.core.targets import CpuTarget

V4 = CpuTarget("x86-64-v4")
V4_ALL = CpuTarget("x86-64-v4", frozenset({"vnni", "bf16"}))
V3 = CpuTarget("x86-64-v3")
NEON = CpuTarget("aarch64")

_libc = ctypes.CDLL(None)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_mapped: list[mmap.mmap] = []


class Loaded:
    """A blob in executable memory."""

    def __init__(self, blob: Blob) -> None:
        self.blob = blob
        memory = mmap.mmap(-1, max(len(blob.code), blob.import_table_offset + 1))
        _mapped.append(memory)
        memory.write(blob.code)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        slots = (ctypes.c_uint64 * len(blob.imports)).from_buffer(memory, blob.import_table_offset)
        for i, name in enumerate(blob.imports):
            slots[i] = ctypes.cast(getattr(_libc, name), ctypes.c_void_p).value or 0
        assert _libc.mprotect(self.base, blob.import_table_offset, 1 | 4) == 0

    def __call__(self, name: str, *args: np.ndarray[Any, Any] | int) -> int:
        """Calls a function with pointers to arrays, and integers; returns what is in rax."""
        values = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in args]
        kinds = [ctypes.c_void_p if isinstance(a, np.ndarray) else ctypes.c_int64 for a in args]
        return int(ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(self.base + self.blob.symbols[name])(*values))


def load_modules(*modules: Module, exports: list[str]) -> Loaded:
    """Compiles and links modules, and maps the result."""
    return Loaded(link([compile_module(m.text(), m.target) for m in modules], exports))


Array = np.ndarray[Any, Any]
DTYPES: dict[str, Any] = {
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}
_KINDS = {np.dtype(dtype): kind for kind, dtype in DTYPES.items()}


def run(target: CpuTarget, emit: Callable[[Function], None], *arrays: Array | int) -> None:
    """Emits a function of as many arguments, named a, b, c, ..., and calls it."""
    module = Module(target)
    kinds = ["ptr" if isinstance(a, np.ndarray) else "i64" for a in arrays]
    f = module.function("k", list(zip("abcdefgh", kinds, strict=False)))
    emit(f)
    load_modules(module, exports=["k"])("k", *arrays)


def each(target: CpuTarget, op: Callable[..., Value], lanes: int, *inputs: Array, out: str) -> Array:
    """Applies op(f, *values) to vectors of the inputs, so many lanes at a time; out is the result's type."""
    result = np.zeros(len(inputs[0]), DTYPES[out])
    assert len(result) % lanes == 0

    def emit(f: Function) -> None:
        with f.loop(0, len(result), lanes) as i:
            values = [
                f.load(vector(lanes, _KINDS[x.dtype]), f.arg("bcde"[n]), i * x.itemsize)
                for n, x in enumerate(inputs)
            ]
            f.store(op(f, *values), f.arg("a"), i * result.itemsize)

    run(target, emit, result, *inputs)
    return result
