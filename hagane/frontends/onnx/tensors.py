"""Tensors of a model file as arrays: every encoding, external data mapped rather than copied.

Sizes are checked against the bytes that are there before anything is allocated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import SparseTensorProto, TensorProto

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.ir.graph import Array

_P = TensorProto
DTYPES: dict[int, DType] = {
    _P.FLOAT: DType.F32, _P.DOUBLE: DType.F64, _P.FLOAT16: DType.F16, _P.BFLOAT16: DType.BF16,
    _P.INT64: DType.I64, _P.INT32: DType.I32, _P.INT16: DType.I16, _P.INT8: DType.I8, _P.INT4: DType.I4,
    _P.UINT64: DType.U64, _P.UINT32: DType.U32, _P.UINT16: DType.U16, _P.UINT8: DType.U8, _P.UINT4: DType.U4,
    _P.BOOL: DType.BOOL, _P.STRING: DType.STRING, _P.FLOAT8E4M3FN: DType.F8E4M3, _P.FLOAT8E5M2: DType.F8E5M2,
    _P.FLOAT8E4M3FNUZ: DType.F8E4M3FNUZ, _P.FLOAT8E5M2FNUZ: DType.F8E5M2FNUZ, _P.FLOAT4E2M1: DType.F4E2M1,
}  # fmt: skip
PROTO_TYPES: dict[DType, int] = {ours: theirs for theirs, ours in DTYPES.items()}

_DENSE_LIMIT_BYTES = 1 << 30  # a sparse tensor of a few bytes may claim any size
_FIELDS = {
    DType.F32: "float_data", DType.F64: "double_data", DType.I64: "int64_data",
    DType.U64: "uint64_data", DType.U32: "uint64_data", DType.STRING: "string_data",
}  # fmt: skip


def dtype_of(code: int, what: str) -> DType:
    """Our element type for ONNX's code. Raises: ModelError for one that no op takes."""
    found = DTYPES.get(code)
    if found is None:
        known = code in _P.DataType.values()
        shown = _P.DataType.Name(code).lower() if known else f"number {code}"
        raise ModelError(
            f"{what} has the element type {shown}, which is not supported",
            next_step="cast it to one of: " + ", ".join(sorted(d.value for d in DType)),
        )
    return found


@dataclass(frozen=True)
class TensorReader:
    """Reads the tensors of one model. base_dir holds its external data; None if the model came as bytes."""

    base_dir: Path | None = None

    def read(self, proto: TensorProto) -> tuple[Array, DType]:
        """The array (read-only where it is a view of the file). Raises: ModelError."""
        what = f"tensor {proto.name!r}" if proto.name else "a constant"
        dtype = dtype_of(proto.data_type, what)
        shape = tuple(proto.dims)
        if any(d < 0 for d in shape):
            raise ModelError(f"{what} has the negative dim {min(shape)}")
        if proto.HasField("segment"):
            raise ModelError(f"{what} is stored in segments, which is not supported")
        count = math.prod(shape)
        if proto.data_location == _P.EXTERNAL:
            return self._external(proto, what, dtype, count).reshape(shape), dtype
        if proto.HasField("raw_data"):
            return _from_raw(proto.raw_data, what, dtype, count).reshape(shape), dtype
        return _from_field(proto, what, dtype, count).reshape(shape), dtype

    def read_sparse(self, proto: SparseTensorProto) -> tuple[Array, DType]:
        """The dense array of a sparse tensor in coordinate form. Raises: ModelError."""
        values, dtype = self.read(proto.values)
        indices, _ = self.read(proto.indices)
        what, shape = f"sparse tensor {proto.values.name!r}", tuple(proto.dims)
        if any(d < 0 for d in shape) or math.prod(shape) * dtype.itemsize > _DENSE_LIMIT_BYTES:
            raise ModelError(f"{what} has the shape {list(shape)}, too large to store densely")
        flat = indices.astype(np.int64)
        if values.ndim != 1 or flat.shape not in ((values.size,), (values.size, len(shape))):
            raise ModelError(f"{what} has values of shape {values.shape} and indices of shape {flat.shape}")
        if flat.ndim == 2:
            if flat.size and (flat.min() < 0 or (flat >= np.array(shape)).any()):
                raise ModelError(f"{what} has an index outside its shape {list(shape)}")
            flat = np.ravel_multi_index(tuple(flat.T), shape) if len(shape) else flat.reshape(-1)
        if flat.size and (flat.min() < 0 or flat.max() >= math.prod(shape)):
            raise ModelError(f"{what} has an index outside its shape {list(shape)}")
        dense = np.zeros(math.prod(shape), dtype.np)
        dense[flat] = values
        return dense.reshape(shape), dtype

    def _external(self, proto: TensorProto, what: str, dtype: DType, count: int) -> Array:
        entries = {e.key: e.value for e in proto.external_data}
        path = self._external_path(entries.get("location", ""), what)
        size = path.stat().st_size
        offset = _figure(entries, "offset", 0, what)
        length = _figure(entries, "length", size - offset, what)
        if offset + length > size or length < 0:
            raise ModelError(
                f"{what} lies at bytes {offset} to {offset + length} of {path.name}, which has {size} bytes",
                next_step="copy the external data file again, or export the model again",
            )
        wanted = _num_bytes(dtype, count, what)
        if length < wanted or (length > wanted and "length" in entries):
            raise ModelError(f"{what} needs {wanted} bytes, but its external data has {length}")
        if wanted == 0:
            return np.zeros(0, dtype.np)
        mapped = np.memmap(path, np.uint8, "r", offset, (wanted,))
        return _decode(np.asarray(mapped), dtype, count)

    def _external_path(self, location: str, what: str) -> Path:
        if self.base_dir is None:
            raise ModelError(
                f"{what} is stored in the file {location!r}, but the model came without a path",
                next_step="pass the model's path instead of its bytes, or store the weights inside it",
            )
        base = self.base_dir.resolve()
        path = (base / location).resolve()
        if not location or Path(location).is_absolute() or base not in path.parents:
            raise ModelError(
                f"{what} is stored in {location!r}, which is outside the model's folder",
                next_step="keep external data files beside the model",
            )
        if not path.is_file():
            raise ModelError(
                f"{what} is stored in the file {location!r}, which doesn't exist",
                tried=str(self.base_dir / location),
                next_step="put the external data file beside the model",
            )
        return path


def _figure(entries: dict[str, str], key: str, default: int, what: str) -> int:
    text = entries.get(key)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise ModelError(f"{what} has the external data {key} {text[:40]!r}, which is no size")
    return value


def _num_bytes(dtype: DType, count: int, what: str) -> int:
    if dtype is DType.STRING:
        raise ModelError(f"{what} holds strings as raw bytes, which ONNX doesn't allow")
    return (count * dtype.bits + 7) // 8


def _from_raw(raw: bytes, what: str, dtype: DType, count: int) -> Array:
    wanted = _num_bytes(dtype, count, what)
    if len(raw) != wanted:
        raise ModelError(f"{what} needs {wanted} bytes for {count} elements of {dtype}, but has {len(raw)}")
    return _decode(np.frombuffer(raw, np.uint8), dtype, count)


def _decode(data: Array, dtype: DType, count: int) -> Array:
    """Little-endian bytes as elements; copies only where the bytes aren't usable as they lie."""
    if dtype.bits == 4:
        nibbles = np.stack([data & 0xF, data >> 4], axis=-1).reshape(-1)[:count]
        return _from_nibbles(nibbles, dtype)
    if dtype is DType.BOOL:
        return np.asarray(data != 0)
    if data.ctypes.data % dtype.itemsize:
        data = data.copy()
    decoded: Array = data.view(dtype.np)
    return decoded


def _from_nibbles(nibbles: Array, dtype: DType) -> Array:
    if dtype is DType.I4:
        return ((nibbles.astype(np.int8) ^ 8) - 8).astype(dtype.np)
    if dtype is DType.U4:
        return nibbles.astype(dtype.np)
    return nibbles.astype(np.uint8).view(dtype.np)


def _from_field(proto: TensorProto, what: str, dtype: DType, count: int) -> Array:
    field: Any = getattr(proto, _FIELDS.get(dtype, "int32_data"))
    stored = (count + 1) // 2 if dtype.bits == 4 else count
    if len(field) != stored:
        raise ModelError(f"{what} has {len(field)} stored numbers for {count} elements of {dtype}")
    if dtype is DType.STRING:
        return np.array([_text(s) for s in field] or [], dtype=object)
    if dtype.np.name in ("float32", "float64", "int64", "uint64"):
        return np.array(field, dtype.np)
    if dtype is DType.U32:
        return np.array(field, np.uint64).astype(np.uint32)
    numbers = np.array(field, np.int32)
    if dtype.bits == 4:
        return _decode(numbers.astype(np.uint8), dtype, count)
    if dtype is DType.BOOL:
        return np.asarray(numbers != 0)
    if dtype.is_int:
        return np.asarray(numbers.astype(dtype.np))
    bits = numbers.astype(np.uint16 if dtype.bits == 16 else np.uint8)
    decoded: Array = bits.view(dtype.np)
    return decoded


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
