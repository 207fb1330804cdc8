"""Types of the kernel language: scalars, pointers and fixed-length vectors of them.

A vector of one lane is the scalar, so that a kernel written for any lane count also yields its scalar tail.
Integers have no sign: operations have one.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass

_LLVM_NAMES = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}
_BITS = {
    "i1": 1,
    "i8": 8,
    "i16": 16,
    "i32": 32,
    "i64": 64,
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "ptr": 64,
}


@dataclass(frozen=True)
class Type:
    """An element kind ("f32", "i8", "ptr", ...) and a number of lanes; lanes is 1 for a scalar."""

    kind: str
    lanes: int = 1

    def __post_init__(self) -> None:
        if self.kind not in _BITS and self.kind != "void":
            raise ValueError(f"unknown type {self.kind!r}; the types are {', '.join(_BITS)}")
        if self.lanes < 1:
            raise ValueError(f"a vector needs one lane or more, not {self.lanes}")

    @property
    def is_vector(self) -> bool:
        return self.lanes > 1

    @property
    def is_float(self) -> bool:
        return self.kind in _LLVM_NAMES

    @property
    def is_int(self) -> bool:
        return self.kind[0] == "i"

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return _BITS[self.kind]

    @property
    def element_bytes(self) -> int:
        return max(1, self.bits // 8)

    @property
    def nbytes(self) -> int:
        return self.element_bytes * self.lanes

    @property
    def element(self) -> Type:
        return Type(self.kind)

    def with_lanes(self, lanes: int) -> Type:
        return Type(self.kind, lanes)

    def with_kind(self, kind: str) -> Type:
        return Type(kind, self.lanes)

    @property
    def as_int(self) -> Type:
        """The integer type of the same width and lane count."""
        return Type(f"i{self.bits}", self.lanes)

    @property
    def llvm(self) -> str:
        """The type in LLVM's syntax."""
        name = _LLVM_NAMES.get(self.kind, self.kind)
        return f"<{self.lanes} x {name}>" if self.is_vector else name

    @property
    def suffix(self) -> str:
        """The type as it is mangled into the name of an intrinsic."""
        kind = "p0" if self.kind == "ptr" else self.kind
        return f"v{self.lanes}{kind}" if self.is_vector else kind

    def __str__(self) -> str:
        return f"{self.lanes}x{self.kind}" if self.is_vector else self.kind


i1, i8, i16, i32, i64 = (Type(kind) for kind in ("i1", "i8", "i16", "i32", "i64"))
f16, bf16, f32, f64 = (Type(kind) for kind in ("f16", "bf16", "f32", "f64"))
ptr = Type("ptr")
void = Type("void")


def vector(lanes: int, element: Type | str) -> Type:
    """The vector type of that many lanes; the scalar itself if lanes is 1."""
    return as_type(element).with_lanes(lanes)


def as_type(text: Type | str) -> Type:
    """Reads a type: "f32", "16xf32"; a Type is returned as it is."""
    if isinstance(text, Type):
        return text
    found = re.fullmatch(r"(?:(\d+)x)?([a-z]+\d*)", text)
    if not found:
        raise ValueError(f"unknown type {text!r}")
    return Type(found.group(2), int(found.group(1) or 1))


def round_float(value: float, kind: str) -> float:
    """The value rounded to what the type holds (to nearest even; too large becomes inf)."""
    if kind == "f64" or not math.isfinite(value):
        return value
    if kind == "bf16":
        return _bf16_value(_bf16_bits(value))
    code = "e" if kind == "f16" else "f"
    try:
        return float(struct.unpack(code, struct.pack(code, value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def float_text(value: float, kind: str) -> str:
    """The constant in LLVM's syntax: hexadecimal bits, so that no digits are lost."""
    if kind == "bf16":
        return f"0xR{_bf16_bits(value):04X}"
    value = round_float(value, kind)
    if kind == "f16":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _bf16_bits(value: float) -> int:
    if math.isnan(value):
        return 0x7FC0
    bits = int(struct.unpack("<I", struct.pack("<f", round_float(value, "f32")))[0])
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF


def _bf16_value(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
