"""Fourier transforms and mel filters."""

from __future__ import annotations

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.ops.padding import as_int
from hagane.frontends.onnx.registry import converter
from hagane.frontends.onnx.tensors import dtype_of
from hagane.ir.graph import Array, Value


@converter("DFT", since=17)
def dft(ctx: NodeContext) -> Value:
    """x[..., 1 or 2] of real or complex numbers; the axis is an attribute before opset 20."""
    x = ctx.input(0)
    ctx.rank_at_least(x, 2)
    if ctx.opset < 20:
        number = ctx.attrs.integer("axis", 1)
    else:
        number = ctx.known_ints(2, "axis")[0] if ctx.optional(2) is not None else -2
    length = None
    if ctx.optional(1) is not None:
        (size,) = ctx.sizes(1, "dft_length")
        length = as_int(size)
    inverse, onesided = ctx.attrs.flag("inverse", False), ctx.attrs.flag("onesided", False)
    axis = ctx.axis(number, x.rank)
    return ctx.op("dft", x, axis=axis, inverse=inverse, onesided=onesided, length=length)


@converter("STFT", since=17)
def stft(ctx: NodeContext) -> Value:
    """signal[B, T, 1 or 2] cut into overlapping frames -> [B, frames, frequencies, 2]."""
    signal, window, emit = ctx.input(0), ctx.optional(2), ctx.emit
    if signal.rank == 2:
        signal = emit.unsqueeze(signal, (2,))
    if signal.rank != 3:
        raise ShapeError(f"STFT takes a signal[batch, length, 1 or 2], not {signal.type}")
    (step,) = ctx.known_ints(1, "frame_step")
    if ctx.optional(3) is not None:
        (length,) = ctx.known_ints(3, "frame_length")
    elif window is not None and window.shape[0].is_const:
        length = window.shape[0].value
    else:
        raise ModelError("STFT needs a frame_length or a window of fixed size")
    if step < 1 or length < 1:
        raise ModelError(f"STFT has the frame_step {step} and the frame_length {length}")
    frames = (signal.shape[1] - length) // step + 1
    starts = emit.op("iota", dtype=DType.I64, shape=(as_int(frames), 1), axis=0)
    offsets = emit.op("iota", dtype=DType.I64, shape=(1, length), axis=1)
    positions = emit.op("add", emit.op("mul", starts, emit.scalar(step, DType.I64)), offsets)
    cut = emit.op("gather", signal, positions, axis=1)
    if window is not None:
        cut = emit.op("mul", cut, emit.unsqueeze(emit.cast(window, signal.dtype), (1,)))
    onesided = ctx.attrs.flag("onesided", True)
    return ctx.op("dft", cut, axis=2, inverse=False, onesided=onesided, length=None)


@converter("MelWeightMatrix", since=17)
def mel_weights(ctx: NodeContext) -> Value:
    """Triangular filters from spectrogram bins to mel bins, made at import."""
    numbers = [ctx.known(k, "parameters").reshape(()).item() for k in range(5)]
    dtype = dtype_of(ctx.attrs.integer("output_datatype", 1), "the result of MelWeightMatrix")
    num_mels, dft_length, rate, low, high = numbers
    if not (0 < num_mels <= 1 << 16 and 0 < dft_length <= 1 << 24 and rate > 0):
        raise ModelError(f"MelWeightMatrix has the parameters {numbers}")
    return ctx.emit.const(mel_matrix(int(num_mels), int(dft_length), int(rate), low, high), dtype)


def mel_matrix(num_mels: int, dft_length: int, rate: int, low: float, high: float) -> Array:
    """f64[dft_length // 2 + 1, num_mels]. Source: the ONNX specification of MelWeightMatrix."""
    ends = 2595 * np.log10(1 + np.array([low, high], np.float64) / 700)
    mels = np.arange(num_mels + 2) * (ends[1] - ends[0]) / (num_mels + 2) + ends[0]
    hertz = 700 * (10 ** (mels / 2595) - 1)
    bins = ((dft_length + 1) * hertz // rate).astype(np.int64)
    if bins.min() < 0 or bins.max() > dft_length // 2:
        raise ModelError(f"MelWeightMatrix has edges {low} and {high} outside of the spectrum")
    matrix = np.zeros((dft_length // 2 + 1, num_mels))
    for k, (first, centre, last) in enumerate(zip(bins, bins[1:], bins[2:], strict=False)):
        if centre == first:
            matrix[centre, k] = 1
        else:
            matrix[first : centre + 1, k] = np.arange(centre - first + 1) / (centre - first)
        if last > centre:
            matrix[centre:last, k] = np.arange(last - centre, 0, -1) / (last - centre)
    return matrix
