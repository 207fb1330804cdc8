"""Element types of tensors, with their names in IR text and their NumPy counterparts.

ml_dtypes is imported only when one of its types is asked for, since a small runtime must start fast.
"""

from __future__ import annotations

import enum
from functools import cache
from typing import Any

import numpy as np

from hagane.core.errors import ModelError

_NUMPY = {
    "f64": "float64", "f32": "float32", "f16": "float16",
    "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8",
    "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8",
    "bool": "bool", "str": "object",
}  # fmt: skip
_ML = {
    "bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2fnuz": "float8_e5m2fnuz",
    "i4": "int4", "u4": "uint4", "f4e2m1": "float4_e2m1fn",
}  # fmt: skip
_BITS = {"bool": 8, "bf16": 16, "str": 64, "i4": 4, "u4": 4, "f4e2m1": 4}


class DType(enum.Enum):
    """An element type; the value is its name in IR text."""

    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    F8E4M3 = "f8e4m3"
    F8E5M2 = "f8e5m2"
    F8E4M3FNUZ = "f8e4m3fnuz"
    F8E5M2FNUZ = "f8e5m2fnuz"
    F4E2M1 = "f4e2m1"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    I4 = "i4"
    U64 = "u64"
    U32 = "u32"
    U16 = "u16"
    U8 = "u8"
    U4 = "u4"
    BOOL = "bool"
    STRING = "str"

    def __repr__(self) -> str:
        return self.value

    __str__ = __repr__

    @property
    def bits(self) -> int:
        """Storage bits of one element (bool takes a byte)."""
        known = _BITS.get(self.value)
        if known is not None:
            return known
        digits = "".join(c for c in self.value[1:].partition("e")[0] if c.isdigit())
        return int(digits)

    @property
    def itemsize(self) -> int:
        """Bytes of one element in unpacked form; 4-bit types take one byte each, as NumPy stores them."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.value[0] == "f" or self is DType.BF16

    @property
    def is_int(self) -> bool:
        return self.value[0] in "iu"

    @property
    def is_signed(self) -> bool:
        return self.value[0] == "i" or self.is_float

    @property
    def np(self) -> np.dtype[Any]:
        """The NumPy dtype (an ml_dtypes one for types that NumPy lacks)."""
        return _numpy_dtype(self.value)


@cache
def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name in _NUMPY:
        return np.dtype(_NUMPY[name])
    import ml_dtypes

    scalar: type[np.generic] = getattr(ml_dtypes, _ML[name])
    return np.dtype(scalar)


@cache
def _by_numpy_name() -> dict[str, DType]:
    names = {numpy_name: DType(ours) for ours, numpy_name in (_NUMPY | _ML).items()}
    return names


def from_numpy(dtype: object) -> DType:
    """The DType of a NumPy dtype; strings and objects are STRING.

    Raises: ModelError for complex and other types that no op takes.
    """
    kind = np.dtype(dtype)  # type: ignore[call-overload]
    if kind.kind in "USOT":
        return DType.STRING
    found = _by_numpy_name().get(kind.name)
    if found is None:
        raise ModelError(
            f"element type {kind.name} is not supported",
            next_step="convert the array to one of: " + ", ".join(sorted(_NUMPY.values())),
        )
    return found
