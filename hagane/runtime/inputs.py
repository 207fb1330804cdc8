"""Checks what a caller feeds, and turns shapes into values of symbols.

An array is used in place if it has the right dtype and is C-contiguous and aligned; otherwise its layout is
converted, never its dtype.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import RunError
from hagane.core.symbolic import Expr, evaluate_all
from hagane.plan.model import Port, Program, Symbol

Array = np.ndarray[Any, Any]

_addressof = ctypes.addressof
_from_buffer = ctypes.c_char.from_buffer


def address_of(array: Array) -> int:
    """Where an array's first element lies."""
    try:
        # a fourth of the time of array.ctypes.data
        return _addressof(_from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, empty, or of an ml_dtypes type
        return int(array.ctypes.data)


def port_text(port: Port) -> str:
    """A port as messages show it: x: f32[B, 128]."""
    return f"{port.name}: {port.dtype}[{', '.join(map(str, port.shape))}]"


def admit(port: Port, value: object) -> Array:
    """The array to use for an input.

    Raises: RunError if the value is no array on the CPU, or has another dtype.
    """
    if not isinstance(value, np.ndarray):
        value = _as_array(port, value)
    if port.dtype is DType.STRING:
        if value.dtype.kind not in "USOT":
            raise _dtype_error(port, value)
        return value.astype(object)
    if value.dtype != port.dtype.np:
        raise _dtype_error(port, value)
    if not (value.flags.c_contiguous and value.flags.aligned):
        try:
            value = np.array(value, order="C", copy=True)
        except MemoryError as error:
            raise RunError(
                f"input {port.name} can't be made contiguous: {error}", next_step="run smaller inputs"
            ) from error
    return value


def _as_array(port: Port, value: object) -> Array:
    if isinstance(value, np.generic):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except (BufferError, TypeError, ValueError, RuntimeError) as error:
            raise RunError(
                f"input {port.name} can't be taken from its {type(value).__name__}: {error}",
                where={"expected": port_text(port)},
                next_step="move the tensor to the CPU",
            ) from error
    raise RunError(
        f"input {port.name} is a {type(value).__name__}, not an array",
        where={"expected": port_text(port)},
        next_step=f"pass a NumPy array of {port.dtype.np}, or an object with __dlpack__",
    )


def _dtype_error(port: Port, value: Array) -> RunError:
    wanted = "strings" if port.dtype is DType.STRING else str(port.dtype.np)
    return RunError(
        f"input {port.name} has dtype {value.dtype}, expected {wanted}",
        where={"expected": port_text(port), "given": f"{value.dtype}{list(value.shape)}"},
        next_step="convert it with .astype(); dtypes are never changed silently",
    )


def feed_error(ports: Sequence[Port], feed: object) -> RunError:
    """The error for a feed with missing or unknown names, or that is no mapping."""
    if not isinstance(feed, Mapping):
        return RunError(
            f"the feed is a {type(feed).__name__}, not a dict of arrays by name",
            where={"inputs": ", ".join(map(port_text, ports))},
            next_step=f"pass {{{ports[0].name!r}: array}}" if ports else "pass {}",
        )
    names = {port.name for port in ports}
    missing = [port_text(port) for port in ports if port.name not in feed]
    unknown = sorted(str(name) for name in feed if name not in names)
    parts = [f"the feed lacks {', '.join(missing)}"] if missing else []
    if unknown:
        parts.append(f"the engine has no input {', '.join(unknown)}")
    return RunError(
        "; ".join(parts),
        where={"inputs": ", ".join(map(port_text, ports))},
        next_step="pass one array for each input, by name",
    )


def bind_shapes(
    program: Program, symbols: Mapping[str, Symbol], shapes: Sequence[tuple[int, ...]]
) -> dict[str, int]:
    """Values of the symbols that the input shapes give.

    Raises: RunError if a shape doesn't fit its port, or a symbol's range or divisor.
    """
    env: dict[str, int] = {}
    for port, shape in zip(program.inputs, shapes, strict=True):
        bind_dims(port, shape, env, symbols)
    for port, shape in zip(program.inputs, shapes, strict=True):
        check_dims(port, shape, env)
    return env


def bind_dims(port: Port, shape: tuple[int, ...], env: dict[str, int], symbols: Mapping[str, Symbol]) -> None:
    """Binds the unbound symbols that are dims of their own."""
    if len(shape) != len(port.shape):
        raise _shape_error(port, shape, f"it has {len(shape)} dims, expected {len(port.shape)}")
    for axis, (dim, size) in enumerate(zip(port.shape, shape, strict=True)):
        symbol = dim.as_sym
        if symbol is not None and symbol.name not in env:
            reason = range_fault(symbols.get(symbol.name), size)
            if reason:
                raise _shape_error(port, shape, f"dim {axis} ({symbol.name}) is {size}, {reason}")
            env[symbol.name] = size


def check_dims(port: Port, shape: tuple[int, ...], env: Mapping[str, int]) -> None:
    """Compares a shape to the dims under known symbols."""
    expected = evaluate(port.shape, env)
    for axis, (size, wanted) in enumerate(zip(shape, expected, strict=True)):
        if size != wanted:
            dim = port.shape[axis]
            source = "" if dim.is_const else f" ({dim})"
            raise _shape_error(port, shape, f"dim {axis} is {size}, expected {wanted}{source}")


def range_fault(symbol: Symbol | None, value: int) -> str:
    """What is wrong with a symbol's value, or nothing."""
    if symbol is None:
        return ""
    if value < symbol.lo or (symbol.hi is not None and value > symbol.hi):
        return f"outside {symbol.lo}..{'' if symbol.hi is None else symbol.hi}"
    return f"not a multiple of {symbol.multiple}" if value % symbol.multiple else ""


def evaluate(exprs: Sequence[Expr], env: Mapping[str, int]) -> list[int]:
    """Values of expressions. Raises: RunError if one divides by zero or is too large for 64 bits."""
    try:
        values = evaluate_all(exprs, env) if exprs else []
    except (ZeroDivisionError, KeyError, OverflowError) as error:
        raise RunError(
            f"a size of the engine can't be computed: {error!r}",
            where={"symbols": ", ".join(f"{name}={value}" for name, value in env.items())},
            next_step="these input shapes are impossible for the model",
        ) from error
    for value in values:
        if not -(2**62) <= value <= 2**62:
            raise RunError(f"a size of the engine is {value}", next_step="run smaller inputs")
    return values


def _shape_error(port: Port, shape: tuple[int, ...], reason: str) -> RunError:
    return RunError(
        f"{port.name} has shape {list(shape)}: {reason}",
        where={"expected": port_text(port)},
        next_step="give it a shape that the engine was built for, or build with a wider shapes=",
    )
