"""A Builder that folds what shapes depend on, and the small building blocks that many converters share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, IntLike, const, to_expr
from hagane.frontends.onnx.knowledge import Knowledge, elements_of, is_followed
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Node, Value, constant


class SymbolMaker(Protocol):
    """Makes a symbol whose value is found at run time: at most `limit`, and not negative unless `signed`."""

    def __call__(self, hint: str, limit: Expr | None = None, signed: bool = False) -> Expr: ...


class Emitter(Builder):
    """Writes nodes into one graph of the model that is being imported."""

    def __init__(self, graph: Graph, fresh_symbol: SymbolMaker, parent: Emitter | None = None):
        super().__init__(graph, parent)
        self.fresh_symbol = fresh_symbol
        self._bound: dict[Value, tuple[Expr, ...]] = dict(parent._bound) if parent else {}
        self.knowledge: Knowledge = parent.knowledge if parent else Knowledge()
        self._numbers: dict[str, int] = parent._numbers if parent else {}

    def reserve(self, names: Iterable[str]) -> None:
        """Keeps names for inputs and outputs: no other value gets one of them."""
        self._names.update(names)

    def fresh(self, hint: str = "") -> str:
        """A value name that is not taken, without trying all numbers that are."""
        name = super().fresh(f"{hint}.{self._numbers[hint]}" if hint in self._numbers else hint)
        self._numbers[hint] = self._numbers.get(hint, 0) + 1
        return name

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
        node = self.graph.nodes[-1]
        folded = self.knowledge.fold(node)
        if folded is None:
            self._follow(node)
            return outputs
        self.graph.nodes.pop()
        return [constant(v.name, a, v.dtype) for v, a in zip(outputs, folded, strict=True)]

    def _follow(self, node: Node) -> None:
        if is_followed(node):
            contents = [
                None if v is None else self.knowledge.content(v, self.elements(v)) for v in node.inputs
            ]
            if all(c is not None or v is None for c, v in zip(contents, node.inputs, strict=True)):
                self.knowledge.follow(node, contents)

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
        if any(v.is_const and abs(v.value) >= 1 << 63 for v in wanted):
            raise ShapeError(f"the size {max(v.value for v in wanted if v.is_const)} doesn't fit in 64 bits")
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
        found = elements_of(x)
        return found if found is not None else self._bound.get(x)

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

    def count_true(self, x: Value, hint: str, limit: Expr) -> Expr:
        """How many elements aren't zero, `limit` at most; bound before what has that extent."""
        ones = self.cast(self.cast(x, DType.BOOL), DType.I64)
        total = self.op("reduce_sum", ones, axes=tuple(range(x.rank)), keepdims=False)
        bound = self.bound_elements(total, hint, limit)
        assert bound is not None, "a scalar can always be bound"
        return bound[0]

    def require_equal(self, pairs: Sequence[tuple[IntLike, IntLike]], message: str) -> None:
        """Makes the graph raise at run time unless each pair is equal. Raises: ShapeError if one can't be."""
        open_pairs = [(to_expr(a), to_expr(b)) for a, b in pairs if to_expr(a) != to_expr(b)]
        if open_pairs:
            left, right = zip(*open_pairs, strict=True)
            self.ops("require_dims", left=tuple(left), right=tuple(right), message=message)

    def op_without_result(self, op: str, *inputs: Value, **attrs: Any) -> None:
        """Appends a node that has no outputs."""
        self.ops(op, *inputs, **attrs)
