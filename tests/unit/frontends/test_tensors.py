"""Every encoding of a tensor, and broken ones."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.frontends.onnx.tensors import DTYPES, TensorReader

VALUES = np.array([[0, 1, 2], [3, 5, 6]])


@pytest.mark.parametrize("code", sorted(set(DTYPES) - {TensorProto.STRING}))
@pytest.mark.parametrize("raw", [False, True])
def test_encodings(code: int, raw: bool) -> None:
    dtype = DTYPES[code]
    wanted = VALUES.astype(dtype.np)
    proto = numpy_helper.from_array(wanted, "w")
    assert proto.data_type == code
    if not raw:
        proto = helper.make_tensor("w", code, wanted.shape, wanted.astype(np.float64).ravel().tolist())
        assert not proto.HasField("raw_data")
    array, found = TensorReader().read(proto)
    assert found is dtype and array.dtype == dtype.np
    np.testing.assert_array_equal(array.astype(np.float64), wanted.astype(np.float64))


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
def test_odd_number_of_nibbles(dtype: type) -> None:
    wanted = np.array([7, 1, 3], dtype)
    array, _ = TensorReader().read(numpy_helper.from_array(wanted, "w"))
    np.testing.assert_array_equal(array.astype(int), wanted.astype(int))


def test_negative_nibbles() -> None:
    wanted = np.array([-8, -1, 7, 0], ml_dtypes.int4)
    array, dtype = TensorReader().read(numpy_helper.from_array(wanted, "w"))
    assert dtype is DType.I4
    np.testing.assert_array_equal(array.astype(int), [-8, -1, 7, 0])


def test_strings() -> None:
    array, dtype = TensorReader().read(numpy_helper.from_array(np.array(["a", "bé"], object), "w"))
    assert dtype is DType.STRING and array.tolist() == ["a", "bé"]


def test_sparse() -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [3.0, 4.0])
    flat = helper.make_tensor("i", TensorProto.INT64, [2], [1, 5])
    pairs = helper.make_tensor("i", TensorProto.INT64, [2, 2], [0, 1, 1, 2])
    for indices in (flat, pairs):
        sparse = SparseTensorProto(values=values, indices=indices, dims=[2, 3])
        array, _ = TensorReader().read_sparse(sparse)
        np.testing.assert_array_equal(array, [[0, 3, 0], [0, 0, 4]])


@pytest.mark.parametrize("indices,dims", [([1, 6], [2, 3]), ([-1, 0], [2, 3]), ([0, 1], [1 << 40, 3])])
def test_bad_sparse(indices: list[int], dims: list[int]) -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [3.0, 4.0])
    sparse = SparseTensorProto(values=values, indices=helper.make_tensor("i", 7, [2], indices), dims=dims)
    with pytest.raises(ModelError):
        TensorReader().read_sparse(sparse)


def test_sizes_are_checked_before_memory_is_taken() -> None:
    huge = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 40, 1 << 20], raw_data=b"1234")
    with pytest.raises(ModelError, match="needs"):
        TensorReader().read(huge)
    huge = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 40], float_data=[1.0])
    with pytest.raises(ModelError, match="1 stored numbers"):
        TensorReader().read(huge)


def test_negative_dims() -> None:
    with pytest.raises(ModelError, match="negative dim"):
        TensorReader().read(TensorProto(name="w", data_type=1, dims=[-1, 2]))


@pytest.mark.parametrize("code", [0, TensorProto.COMPLEX64, 99])
def test_unknown_types(code: int) -> None:
    with pytest.raises(ModelError, match="is not supported"):
        TensorReader().read(TensorProto(name="w", data_type=code, dims=[0]))


def test_bool_bytes_are_truth_values() -> None:
    array, _ = TensorReader().read(
        TensorProto(name="w", data_type=TensorProto.BOOL, dims=[3], raw_data=b"\0\1\7")
    )
    assert array.tolist() == [False, True, True]
