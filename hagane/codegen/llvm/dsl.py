"""The kernel language in one import: modules, functions, values, types.

Kernels are written with it as ordinary Python that emits LLVM IR; it knows nothing of regions or layouts.
"""

from hagane.codegen.llvm.function import Function
from hagane.codegen.llvm.module import Module, Target
from hagane.codegen.llvm.types import (
    Type,
    as_type,
    bf16,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
    ptr,
    vector,
    void,
)
from hagane.codegen.llvm.value import Operand, Value, Var

__all__ = [
    "Function",
    "Module",
    "Operand",
    "Target",
    "Type",
    "Value",
    "Var",
    "as_type",
    "bf16",
    "f16",
    "f32",
    "f64",
    "i1",
    "i8",
    "i16",
    "i32",
    "i64",
    "ptr",
    "vector",
    "void",
]
