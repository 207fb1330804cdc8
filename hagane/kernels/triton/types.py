"""Which Triton types hold values of a dtype: in memory, and while they are computed with."""

from __future__ import annotations

from hagane.core.dtypes import DType
from hagane.core.errors import InternalError

_MEMORY = {
    DType.F64: "float64", DType.F32: "float32", DType.F16: "float16", DType.BF16: "bfloat16",
    DType.BOOL: "int1", DType.I64: "int64", DType.U64: "uint64", DType.I32: "int32", DType.U32: "uint32",
    DType.I16: "int16", DType.U16: "uint16", DType.I8: "int8", DType.U8: "uint8",
}  # fmt: skip
_SIGNATURE = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def has_kernels(dtype: DType) -> bool:
    """True if GPU kernels compute on the dtype."""
    return dtype in _MEMORY


def memory_type(dtype: DType) -> str:
    """The type of elements in memory. Raises: InternalError for dtypes without kernels."""
    if dtype not in _MEMORY:
        raise InternalError(f"no GPU kernels compute on {dtype}")
    return "tl." + _MEMORY[dtype]


def compute_type(dtype: DType) -> str:
    """The register type: 16-bit floats are computed in f32 and rounded where the graph says so."""
    return "tl.float32" if dtype in (DType.F16, DType.BF16) else memory_type(dtype)


def pointer_signature(dtype: DType) -> str:
    """How a kernel's signature names a pointer to elements of the dtype."""
    name = _MEMORY[dtype]
    return "*" + _SIGNATURE.get(name, name.replace("uint", "u").replace("int", "i"))
