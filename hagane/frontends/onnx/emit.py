"""A Builder that folds what shapes depend on, and the small building blocks that many converters share.

Small tensors become constants as soon as their content is known; everything else is left to the passes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import HaganeError
from hagane.core.symbolic import Expr, IntLike, const, product, to_expr
from hagane.ir.builder import Builder
from hagane.ir.graph import Array, Graph, Node, Value, constant
from hagane.ir.registry import as_tuple, op_def

FOLD_LIMIT = 1024  # elements of a tensor that import folds; shapes have far fewer
SYMBOLIC_LIMIT = 64  # elements of a tensor of expressions
_UNFOLDABLE_KINDS = ("control", "host", "custom", "region", "shape")


class SymbolMaker(Protocol):
    """Makes a symbol whose value is found at run time: at most `limit`, and not negative unless `signed`."""

    def __call__(self, hint: str, limit: Expr | None = None, signed: bool = False) -> Expr: ...


class Emitter(Builder):
    """Writes nodes into one graph of the model that is being imported."""

    def __init__(self, graph: Graph, fresh_symbol: SymbolMaker, parent: Emitter | None = None):
        super().__init__(graph, parent)
        self.fresh_symbol = fresh_symbol
        self._bound: dict[Value, tuple[Expr, ...]] = dict(parent._bound) if parent else {}
        self._contents: dict[Value, Array] = parent._contents if parent else {}

    def reserve(self, names: Iterable[str]) -> None:
        """Keeps names for inputs and outputs: no other value gets one of them."""
        self._names.update(names)

    def nested(self, graph: Graph) -> Emitter:
        """An emitter for a sub-graph; value names stay unique over all graphs."""
        return Emitter(graph, self.fresh_symbol, self)

    def ops(
        self,
        op: str,
        *inputs: Value | None,
        name: str = "",
        graphs: dict[str, Graph] | None = None,
        **attrs: Any,
    ) -> list[Value]:
        """Appends a node, or gives constants where the result is small and known."""
        outputs = super().ops(op, *inputs, name=name, graphs=graphs, **attrs)
        if graphs or not outputs:
            return outputs
        folded = fold(self.graph.nodes[-1])
        if folded is None:
            self._note_content(self.graph.nodes[-1])
            return outputs
        self.graph.nodes.pop()
        return [constant(v.name, a, v.dtype) for v, a in zip(outputs, folded, strict=True)]

    def reshape(self, x: Value, shape: Iterable[IntLike], name: str = "") -> Value:
        """x in another shape of as many elements; x itself if it has it already."""
        wanted = tuple(to_expr(d) for d in shape)
        return x if wanted == x.shape else self.op("reshape", x, shape=wanted, name=name)

    def transpose(self, x: Value, perm: Sequence[int], name: str = "") -> Value:
        """x with axes reordered; x itself for the identity."""
        if tuple(perm) == tuple(range(x.rank)):
            return x
        return self.op("transpose", x, perm=tuple(perm), name=name)

    def cast(self, x: Value, to: DType, name: str = "") -> Value:
        """x in another element type."""
        return x if x.dtype is to else self.op("cast", x, to=to, name=name)

    def broadcast_to(self, x: Value, shape: Iterable[IntLike], name: str = "") -> Value:
        """x repeated along new axes and axes of extent 1."""
        wanted = tuple(to_expr(d) for d in shape)
        return x if wanted == x.shape else self.op("broadcast_to", x, shape=wanted, name=name)

    def unsqueeze(self, x: Value, axes: Iterable[int], name: str = "") -> Value:
        """x with axes of extent 1 put in at positions of the result."""
        at = set(axes)
        kept = iter(x.shape)
        shape = [const(1) if k in at else next(kept) for k in range(x.rank + len(at))]
        return self.reshape(x, shape, name)

    def squeeze(self, x: Value, axes: Iterable[int], name: str = "") -> Value:
        """x without the given axes, whose extents are 1."""
        gone = set(axes)
        return self.reshape(x, [d for k, d in enumerate(x.shape) if k not in gone], name)

    def slice(
        self, x: Value, axis: int, start: IntLike, size: IntLike, step: int = 1, name: str = ""
    ) -> Value:
        """`size` elements along one axis."""
        sizes = tuple(to_expr(size) if k == axis else d for k, d in enumerate(x.shape))
        if sizes == x.shape and step == 1:
            return x
        starts = tuple(to_expr(start) if k == axis else const(0) for k in range(x.rank))
        steps = tuple(step if k == axis else 1 for k in range(x.rank))
        return self.op("slice", x, starts=starts, steps=steps, sizes=sizes, name=name)

    def concat(self, parts: Sequence[Value], axis: int, name: str = "") -> Value:
        """The parts one after another along an axis."""
        return parts[0] if len(parts) == 1 else self.op("concat", *parts, axis=axis, name=name)

    def reduce(self, op: str, x: Value, axes: Iterable[int], keepdims: bool, name: str = "") -> Value:
        """reduce_<op> over axes; x itself if there are none."""
        wanted = tuple(sorted(axes))
        return self.op(f"reduce_{op}", x, axes=wanted, keepdims=keepdims, name=name) if wanted else x

    def dims(self, values: Iterable[IntLike], name: str = "") -> Value:
        """A tensor i64[n] that holds expressions of dims."""
        wanted = tuple(to_expr(v) for v in values)
        if all(v.is_const for v in wanted):
            return self.const(np.array([v.value for v in wanted], np.int64), name=name or "dims")
        return self.op("shape_values", values=wanted, name=name)

    def scalar(self, number: float | int | bool, dtype: DType) -> Value:
        """A rank-0 constant."""
        return self.const(np.asarray(number).astype(dtype.np), name="k")

    def filled(self, value: Value, shape: Iterable[IntLike]) -> Value:
        """A tensor that holds one number everywhere."""
        return self.broadcast_to(self.reshape(value, ()), shape)

    def elements(self, x: Value) -> tuple[Expr, ...] | None:
        """What is known of a small integer tensor's content."""
        small_ints = x.data is not None and x.rank <= 1 and x.data.size <= FOLD_LIMIT and _is_integer(x)
        if x.elements is None and x.data is not None and small_ints:
            return tuple(const(int(v)) for v in x.data.reshape(-1))
        return x.elements if x.elements is not None else self._bound.get(x)

    def _content(self, x: Value) -> Array | None:
        """The content of a small integer tensor of any rank: integers, or an array of expressions."""
        if x.data is not None:
            return x.data if x.data.size <= FOLD_LIMIT and _is_integer(x) else None
        known = self.elements(x)
        if known is not None and x.static_shape is not None:
            return _object_array(known, x.static_shape)
        return self._contents.get(x)

    def _note_content(self, node: Node) -> None:
        """Follows expressions through moves of a tensor, such as the transpose of a table of pads."""
        definition, output = op_def(node.op), node.outputs[0]
        shape = output.static_shape
        if definition.kind != "movement" or output.elements is not None or not _is_integer(output):
            return
        if shape is None or math.prod(shape) > SYMBOLIC_LIMIT:
            return
        attrs = {name: _ints(a) for name, a in node.attrs.items()}
        arrays = [None if v is None else self._content(v) for v in node.inputs]
        known = all(a is not None or v is None for a, v in zip(arrays, node.inputs, strict=True))
        if not known or any(a is _SYMBOLIC for a in attrs.values()):
            return
        try:
            result = np.asarray(as_tuple(definition.reference(attrs, *arrays))[0], dtype=object)
        except Exception:  # a reference that doesn't take arrays of objects: nothing is known then
            return
        exprs = tuple(to_expr(e) for e in result.reshape(-1).tolist())
        self._contents[output] = _object_array(exprs, shape)
        if output.rank <= 1:
            output.elements = exprs

    def bound_elements(
        self, x: Value, hint: str, limit: Expr | None = None, signed: bool = False
    ) -> tuple[Expr, ...] | None:
        """The content of a small integer tensor: known, or as new symbols that get their values at run time.

        None if the tensor's length isn't known. limit: what the values can't exceed.
        """
        known = self.elements(x)
        if known is not None:
            return known
        if x.rank > 1 or (x.rank == 1 and not x.shape[0].is_const):
            return None
        count = x.shape[0].value if x.rank else 1
        symbols = tuple(self.fresh_symbol(hint, limit, signed) for _ in range(count))
        names = tuple(s.as_sym.name for s in symbols if s.as_sym is not None)
        self.op_without_result("bind_symbols", self.cast(x, DType.I64), names=names)
        self._bound[x] = symbols
        return symbols

    def require_equal(self, pairs: Sequence[tuple[IntLike, IntLike]], message: str) -> None:
        """Makes the graph raise at run time unless each pair is equal. Raises: ShapeError if one can't be."""
        open_pairs = [(to_expr(a), to_expr(b)) for a, b in pairs if to_expr(a) != to_expr(b)]
        if open_pairs:
            left, right = zip(*open_pairs, strict=True)
            self.ops("require_dims", left=tuple(left), right=tuple(right), message=message)

    def op_without_result(self, op: str, *inputs: Value, **attrs: Any) -> None:
        """Appends a node that has no outputs."""
        self.ops(op, *inputs, **attrs)


def _is_integer(value: Value) -> bool:
    return value.dtype.is_int or value.dtype is DType.BOOL


def _object_array(exprs: tuple[Expr, ...], shape: tuple[int, ...]) -> Array:
    array = np.empty(len(exprs), dtype=object)
    array[:] = exprs
    return array.reshape(shape)


def fold(node: Node) -> list[Array] | None:
    """The outputs of a node as arrays, if they are small and follow from constants or known elements."""
    definition = op_def(node.op)
    if len(node.outputs) == 1:
        output = node.outputs[0]
        if output.elements is not None and all(e.is_const for e in output.elements):
            return [_array([e.value for e in output.elements], output)]
    if definition.kind in _UNFOLDABLE_KINDS:
        return None
    arrays = [None if v is None else _small_content(v) for v in node.inputs]
    if any(a is None and v is not None for a, v in zip(arrays, node.inputs, strict=True)):
        return None
    sizes = [product(v.shape) for v in node.outputs]
    attrs = {name: _ints(a) for name, a in node.attrs.items()}
    if not all(s.is_const and s.value <= FOLD_LIMIT for s in sizes) or any(
        a is _SYMBOLIC for a in attrs.values()
    ):
        return None
    try:
        with np.errstate(all="ignore"):
            results = as_tuple(definition.reference(attrs, *arrays))
    except HaganeError:
        raise
    except (
        Exception
    ):  # whatever the reference trips over, the node itself stays and is reported where it runs
        return None
    return [
        np.asarray(r).astype(v.dtype.np).reshape([d.value for d in v.shape])
        for r, v in zip(results, node.outputs, strict=True)
    ]


def _array(values: list[int], like: Value) -> Array:
    return np.array(values, np.int64).astype(like.dtype.np).reshape(() if like.rank == 0 else (len(values),))


def _small_content(value: Value) -> Array | None:
    """A constant as the references take it: floats as float64."""
    if value.data is None:
        return None
    if value.data.size > FOLD_LIMIT or value.dtype is DType.STRING:
        return None
    return value.data.astype(np.float64) if value.dtype.is_float else value.data


_SYMBOLIC = object()


def _ints(attribute: Any) -> Any:
    if isinstance(attribute, Expr):
        return attribute.value if attribute.is_const else _SYMBOLIC
    if isinstance(attribute, tuple):
        items = tuple(_ints(a) for a in attribute)
        return _SYMBOLIC if any(a is _SYMBOLIC for a in items) else items
    return attribute
