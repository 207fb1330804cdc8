"""fold-constants: computes what depends on constants alone.

A folded tensor keeps a recipe where its op is one that engines can repeat, so that refitting weights still
works; any other becomes a weight of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr
from hagane.ir.graph import Array, Graph, Node, Value, constant
from hagane.ir.interpreter import concrete, narrow, widen
from hagane.ir.registry import as_tuple, op_def
from hagane.passes.base import control_graphs
from hagane.passes.recipes import recipe_for

SKIPPED_KINDS = ("control", "region", "host", "shape", "state", "collective")


@dataclass(frozen=True)
class FoldConstants:
    """max_growth_bytes: a fold whose results exceed its inputs by more than this is left to run time."""

    max_growth_bytes: int = 1 << 20
    name: str = "fold-constants"

    def run(self, graph: Graph) -> bool:
        changed = False
        for inner in control_graphs(graph):
            changed |= self._fold(inner, graph.weights)
        return changed

    def _fold(self, graph: Graph, weights: dict[str, Array]) -> bool:
        mapping: dict[Value, Value] = {}
        kept: list[Node] = []
        for node in graph.nodes:
            node.inputs = [None if v is None else mapping.get(v, v) for v in node.inputs]
            results = self._evaluate(node, weights)
            if results is None:
                kept.append(node)
            else:
                mapping.update(zip(node.outputs, results, strict=True))
        if not mapping:
            return False
        graph.nodes = kept
        graph.replace_uses(mapping)
        return True

    def _evaluate(self, node: Node, weights: dict[str, Array]) -> list[Value] | None:
        definition = op_def(node.op)
        if definition.kind in SKIPPED_KINDS and node.op != "shape_values":
            return None
        inputs = [v for v in node.inputs if v is not None]
        if not node.outputs or not all(v.is_const for v in inputs):
            return self._known_elements(node)
        shapes = [v.static_shape for v in node.outputs]
        if any(s is None for s in shapes) or _has_symbols(node):
            return None
        size = sum(
            int(np.prod(s or ())) * v.dtype.itemsize for s, v in zip(shapes, node.outputs, strict=True)
        )
        if size > self.max_growth_bytes + sum(v.data.nbytes for v in inputs if v.data is not None) * 4:
            return None
        arrays = [None if v is None or v.data is None else widen(v.data, v.dtype) for v in node.inputs]
        attrs = {k: concrete(a, {}) for k, a in node.attrs.items()}
        try:
            with np.errstate(all="ignore"):
                results = as_tuple(definition.reference(attrs, *arrays))
        except Exception:  # an index out of range, say: the error belongs to a run, if one gets there at all
            return None
        recipe = recipe_for(node)
        if recipe is not None:
            weights.update({v.name: v.data for v in inputs if v.recipe is None and v.data is not None})
        return [
            constant(v.name, np.ascontiguousarray(narrow(a, v.dtype)).reshape(a.shape), v.dtype, recipe)
            for v, a in zip(node.outputs, results, strict=True)
        ]

    def _known_elements(self, node: Node) -> list[Value] | None:
        """Integer tensors whose content was found by shape arithmetic."""
        if len(node.outputs) != 1 or node.output.elements is None:
            return None
        elements, shape, dtype = node.output.elements, node.output.static_shape, node.output.dtype
        if (
            shape is None
            or not all(e.is_const for e in elements)
            or not (dtype.is_int or dtype is DType.BOOL)
        ):
            return None
        wide = np.array([e.value for e in elements], object)
        data = wide.astype(np.int64).astype(dtype.np) if all(abs(e) < 1 << 63 for e in wide) else None
        if data is None or not np.all(data.astype(object) == wide):
            return None
        return [constant(node.output.name, data.reshape(shape), dtype)]


def _has_symbols(node: Node) -> bool:
    def symbolic(attribute: object) -> bool:
        if isinstance(attribute, Expr):
            return not attribute.is_const
        return isinstance(attribute, tuple) and any(symbolic(a) for a in attribute)

    return any(symbolic(a) for a in node.attrs.values())
