"""Types of a model's inputs: dims from the file and from `shapes=`, and the symbols that they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from onnx import ValueInfoProto

from hagane.core.dims import Dim
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import Expr, const, sym
from hagane.frontends.onnx.names import SymbolNames
from hagane.frontends.onnx.tensors import dtype_of
from hagane.ir.graph import Type

DimLike = int | str | Dim
Shapes = Mapping[str, tuple[DimLike, ...]]


class InputDims:
    """Makes the types of graph inputs and keeps all symbols of the model by name.

    A symbol's range starts at 1: an input of zero size is refused at run time, unless a Dim has min=0.
    """

    def __init__(self, shapes: Shapes | None, file: str) -> None:
        self.shapes = dict(shapes or {})
        self.file = file
        self.names = SymbolNames()
        self.symbols: dict[str, Expr] = {}
        self._by_param: dict[str, Expr] = {}
        self._asked: dict[str, Dim] = {}

    def fresh_symbol(self, hint: str, limit: Expr | None = None, signed: bool = False) -> Expr:
        """A new symbol whose value is found at run time; limit is the largest value that it can have."""
        name = self.names.fresh(hint)
        symbol = sym(name, -(2**61) if signed else 0, None, bound=None if limit is None else limit + 1)
        self.symbols[name] = symbol
        return symbol

    def snapshot(self) -> dict[str, Expr]:
        """The symbols so far, for `restore`."""
        return dict(self.symbols)

    def restore(self, symbols: dict[str, Expr]) -> None:
        """Forgets symbols that were made since a snapshot."""
        self.symbols = dict(symbols)

    def types(self, inputs: Iterable[ValueInfoProto]) -> dict[str, Type]:
        """The type of each input, in order. Raises: ModelError, ShapeError."""
        protos = list(inputs)
        self._check_names([p.name for p in protos])
        for proto in protos:
            self._note_overrides(proto)
        return {proto.name: self._type(proto) for proto in protos}

    def _check_names(self, known: list[str]) -> None:
        for name in self.shapes:
            if name not in known:
                close = get_close_matches(name, known, 1)
                raise ModelError(
                    f"shapes= names the input {name!r}, which {self.file} doesn't have",
                    where={"inputs": ", ".join(known) or "none"},
                    next_step=f"did you mean {close[0]!r}?" if close else "name inputs of the model",
                )

    def _note_overrides(self, proto: ValueInfoProto) -> None:
        """Where a named dim is overridden, the new dim holds wherever the name appears."""
        asked = self.shapes.get(proto.name)
        if asked is None:
            return
        if not isinstance(asked, (tuple, list)):
            raise ShapeError(
                f"shapes= gives input {proto.name!r} {asked!r}, which is no tuple of dims",
                next_step="name a size, a string or a Dim for each dim: " + _shown(proto),
            )
        shape = proto.type.tensor_type.shape
        if proto.type.tensor_type.HasField("shape") and len(shape.dim) != len(asked):
            raise ShapeError(
                f"shapes= gives input {proto.name!r} {len(asked)} dims, the model says {len(shape.dim)}",
                next_step="name a size, a string or a Dim for each dim: " + _shown(proto),
            )
        for position, wanted in enumerate(asked):
            found = self._asked_dim(wanted, proto.name)
            param = shape.dim[position].dim_param if position < len(shape.dim) else ""
            if not param:
                continue
            if self._by_param.setdefault(param, found) != found:
                raise ShapeError(
                    f"shapes= makes the dim {param!r} both {self._by_param[param]} and {found}",
                    where={"input": proto.name},
                    next_step="give the same dim the same size in all inputs",
                )

    def _asked_dim(self, wanted: DimLike, input_name: str) -> Expr:
        if isinstance(wanted, Dim):
            known = self._asked.setdefault(wanted.name, wanted)
            if known != wanted:
                raise ShapeError(
                    f"shapes= has two different dims named {wanted.name!r}: {known} and {wanted}",
                    next_step="use one Dim for both, or two names",
                )
            return self._symbol(wanted.name, wanted)
        if isinstance(wanted, str) and wanted:
            return self._symbol(wanted, None)
        if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted >= 0:
            return const(wanted)
        raise ShapeError(
            f"shapes= has the dim {wanted!r} for input {input_name!r}",
            next_step="use a size, a string, or hagane.Dim(name, min=, max=)",
        )

    def _symbol(self, text: str, facts: Dim | None) -> Expr:
        name = self.names.of(text)
        if facts is not None:
            self.symbols[name] = sym(name, facts.min, facts.max, facts.multiple)
        return self.symbols.setdefault(name, sym(name, 1))

    def _type(self, proto: ValueInfoProto) -> Type:
        if not proto.type.HasField("tensor_type"):
            kind = proto.type.WhichOneof("value") or "nothing"
            raise ModelError(
                f"input {proto.name!r} is of the kind {kind.removesuffix('_type')}; inputs must be tensors",
                next_step="export the model with tensors as inputs",
            )
        tensor = proto.type.tensor_type
        dtype = dtype_of(tensor.elem_type, f"input {proto.name!r}")
        asked = self.shapes.get(proto.name)
        if asked is not None:
            return Type(dtype, tuple(self._asked_dim(d, proto.name) for d in asked))
        if not tensor.HasField("shape"):
            raise ShapeError(
                f"input {proto.name!r} has no shape in {self.file}, not even a rank",
                next_step=f"give it one: shapes={{{proto.name!r}: (...)}}",
            )
        return Type(dtype, tuple(self._dim(proto, k) for k in range(len(tensor.shape.dim))))

    def _dim(self, proto: ValueInfoProto, position: int) -> Expr:
        dim = proto.type.tensor_type.shape.dim[position]
        if dim.dim_param and dim.dim_param != "?":
            known = self._by_param.get(dim.dim_param)
            return known if known is not None else self._symbol(dim.dim_param, None)
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            return const(dim.dim_value)
        name = self.names.fresh(f"{proto.name}_d{position}")
        self.symbols[name] = sym(name, 1)
        return self.symbols[name]


def _shown(proto: ValueInfoProto) -> str:
    dims = proto.type.tensor_type.shape.dim
    return "[" + ", ".join(d.dim_param or (str(d.dim_value) if d.dim_value else "?") for d in dims) + "]"
