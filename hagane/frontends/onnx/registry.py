"""The table of converters: for an ONNX op, one function per version whose meaning or signature changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, Union

from hagane.ir.graph import Value

if TYPE_CHECKING:
    from hagane.frontends.onnx.context import NodeContext
    from hagane.frontends.onnx.scope import Entry

Result = Union[Value, "Sequence[Entry | None]", "Entry", None]
"""What a converter gives: the outputs, or None for the function that ONNX defines the op by."""
Converter = Callable[["NodeContext"], Result]
F = TypeVar("F", bound=Converter)

_CONVERTERS: dict[tuple[str, str], dict[int, Converter]] = {}


def converter(*ops: str, since: int = 1, domain: str = "") -> Callable[[F], F]:
    """Registers a function for ops of a domain, from opset `since` up to the next registered version."""

    def add(function: F) -> F:
        for op in ops:
            versions = _CONVERTERS.setdefault((domain, op), {})
            assert since not in versions, f"{op} has two converters for opset {since}"
            versions[since] = function
        return function

    return add


def find_converter(domain: str, op: str, opset: int) -> Converter | None:
    """The converter of the newest version that is not newer than the opset."""
    versions = _CONVERTERS.get((domain, op), {})
    usable = [since for since in versions if since <= opset]
    return versions[max(usable)] if usable else None


def known_ops(domain: str = "") -> list[str]:
    """Names of all ops of a domain that have a converter."""
    return sorted(op for d, op in _CONVERTERS if d == domain)
