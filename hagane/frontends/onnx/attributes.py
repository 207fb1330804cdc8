"""Typed access to the attributes of one node; which ones were read is noted, so that none goes unnoticed."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import AttributeProto, GraphProto, NodeProto

from hagane.core.errors import ModelError
from hagane.frontends.onnx.tensors import TensorReader
from hagane.ir.graph import Array

_A = AttributeProto
_KINDS = {
    _A.INT: "an integer", _A.FLOAT: "a number", _A.STRING: "a string", _A.TENSOR: "a tensor",
    _A.GRAPH: "a graph", _A.INTS: "integers", _A.FLOATS: "numbers", _A.STRINGS: "strings",
    _A.SPARSE_TENSOR: "a sparse tensor",
}  # fmt: skip


class Attributes:
    """The attributes of a node, references to a function's attributes resolved."""

    def __init__(
        self, node: NodeProto, function_attributes: Mapping[str, AttributeProto], reader: TensorReader
    ) -> None:
        self._by_name: dict[str, AttributeProto] = {}
        self._reader = reader
        self._read: set[str] = set()
        for attribute in node.attribute:
            if attribute.name in self._by_name:
                raise ModelError(f"attribute {attribute.name!r} is given twice")
            if attribute.ref_attr_name:
                actual = function_attributes.get(attribute.ref_attr_name)
                if actual is None:
                    continue  # the caller left it out, so the op's own default holds
                renamed = AttributeProto()
                renamed.CopyFrom(actual)
                renamed.name = attribute.name
                self._by_name[attribute.name] = renamed
            else:
                self._by_name[attribute.name] = attribute

    def __contains__(self, name: str) -> bool:
        self._read.add(name)
        return name in self._by_name

    def _find(self, name: str, kind: AttributeProto.AttributeType) -> AttributeProto | None:
        self._read.add(name)
        found = self._by_name.get(name)
        if found is None:
            return None
        if found.type != kind:
            # an empty list has no type of its own in old files
            if found.type == _A.UNDEFINED and kind in (_A.INTS, _A.FLOATS, _A.STRINGS):
                return found
            is_kind = _KINDS.get(found.type, "something else")
            raise ModelError(f"attribute {name!r} should be {_KINDS[kind]}, but is {is_kind}")
        return found

    def _required(self, name: str, kind: AttributeProto.AttributeType) -> AttributeProto:
        found = self._find(name, kind)
        if found is None:
            raise ModelError(f"attribute {name!r} is missing")
        return found

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer; without a default it must be there."""
        found = self._find(name, _A.INT) if default is not None else self._required(name, _A.INT)
        return int(found.i) if found is not None else int(default or 0)

    def flag(self, name: str, default: bool) -> bool:
        """An integer used as a switch."""
        return self.integer(name, int(default)) != 0

    def optional_int(self, name: str) -> int | None:
        """An integer or None."""
        found = self._find(name, _A.INT)
        return None if found is None else int(found.i)

    def number(self, name: str, default: float | None = None) -> float:
        """A number; without a default it must be there."""
        found = self._find(name, _A.FLOAT) if default is not None else self._required(name, _A.FLOAT)
        return float(found.f) if found is not None else float(default or 0.0)

    def optional_float(self, name: str) -> float | None:
        """A number or None."""
        found = self._find(name, _A.FLOAT)
        return None if found is None else float(found.f)

    def text(self, name: str, default: str | None = None) -> str:
        """A string; without a default it must be there."""
        found = self._find(name, _A.STRING) if default is not None else self._required(name, _A.STRING)
        return found.s.decode("utf-8", "replace") if found is not None else default or ""

    def choice(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        """A string out of a set."""
        value = self.text(name, default)
        if value not in allowed:
            raise ModelError(f"attribute {name!r} is {value!r}; it can be " + ", ".join(allowed))
        return value

    def ints(self, name: str) -> tuple[int, ...] | None:
        """Integers or None."""
        found = self._find(name, _A.INTS)
        return None if found is None else tuple(int(v) for v in found.ints)

    def floats(self, name: str) -> tuple[float, ...] | None:
        """Numbers or None."""
        found = self._find(name, _A.FLOATS)
        return None if found is None else tuple(float(v) for v in found.floats)

    def strings(self, name: str) -> tuple[str, ...] | None:
        """Strings or None."""
        found = self._find(name, _A.STRINGS)
        return None if found is None else tuple(s.decode("utf-8", "replace") for s in found.strings)

    def tensor(self, name: str) -> Array | None:
        """An array or None."""
        found = self._find(name, _A.TENSOR)
        return None if found is None else self._reader.read(found.t)[0]

    def sparse_tensor(self, name: str) -> Array | None:
        """A dense array or None."""
        found = self._find(name, _A.SPARSE_TENSOR)
        return None if found is None else self._reader.read_sparse(found.sparse_tensor)[0]

    def graph(self, name: str) -> GraphProto:
        """A sub-graph, which must be there."""
        return self._required(name, _A.GRAPH).g

    def ignore(self, *names: str) -> None:
        """Notes attributes that have no effect on what is computed here."""
        self._read.update(names)

    def check_all_read(self) -> None:
        """Raises: ModelError if the node has an attribute that the converter doesn't know."""
        unknown = sorted(set(self._by_name) - self._read)
        if unknown:
            raise ModelError(
                f"unknown attribute {', '.join(map(repr, unknown))}",
                next_step="check that the model's opset is the one that its nodes were written for",
            )

    def given(self) -> dict[str, AttributeProto]:
        """All attributes by name."""
        return dict(self._by_name)
