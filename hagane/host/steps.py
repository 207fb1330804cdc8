"""NumPy functions that host steps of a plan call by name.

They compute what no kernel can: results whose size depends on the data, and strings. A step gets its
attributes and arrays, which it doesn't change, and returns a tuple of arrays; strings come as arrays of
Python objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hagane.core.errors import EngineError
from hagane.plan.model import Attrs

Array = np.ndarray[Any, Any]
HostStep = Callable[..., tuple[Array, ...]]

HOST_STEPS: dict[str, HostStep] = {}


def host_step(function: HostStep) -> HostStep:
    """Registers a function under its own name."""
    HOST_STEPS[function.__name__] = function
    return function


def find_step(name: str) -> HostStep:
    """The function of a host step.

    Raises: EngineError if there is none of that name.
    """
    found = HOST_STEPS.get(name)
    if found is None:
        raise EngineError(
            f"the engine needs the host step {name}, which this version doesn't have",
            next_step="run it with the version of hagane that built it, or build it anew",
        )
    return found


@host_step
def nonzero(attrs: Attrs, x: Array) -> tuple[Array, ...]:
    """Indices of the elements that aren't zero, as i64[rank, count], in row-major order."""
    return (np.stack(np.nonzero(np.atleast_1d(x))).astype(np.int64)[: x.ndim],)


@host_step
def unique(attrs: Attrs, x: Array) -> tuple[Array, ...]:
    """Unique elements, or slices along `axis`: values, first positions, inverse, counts (ONNX's Unique).

    sorted=False keeps the order of first occurrence.
    """
    axis = attrs.get("axis")
    if axis is not None and not isinstance(axis, int):
        raise EngineError(f"unique has the axis {axis!r}")
    found: tuple[Array, ...] = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    values, first, inverse, counts = found
    inverse = inverse.reshape(-1)
    if not attrs.get("sorted", True):
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        values = np.take(values, order, axis=axis or 0)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


@host_step
def string_concat(attrs: Attrs, a: Array, b: Array) -> tuple[Array, ...]:
    """Joins strings element by element, with broadcasting."""
    return (np.asarray(a.astype(object) + b.astype(object), object),)


@host_step
def string_equal(attrs: Attrs, a: Array, b: Array) -> tuple[Array, ...]:
    """Compares strings element by element, with broadcasting; gives bool."""
    return (np.asarray(a.astype(object) == b.astype(object), np.bool_),)
