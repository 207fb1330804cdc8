"""expand-recurrent: recurrent layers that the target has no kernel for.

f16 and bf16 are computed in f32, so that states aren't rounded from step to step; what is still without a
kernel (weights that are computed, f64) becomes a loop over time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hagane.core.dtypes import DType
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, Node, Value
from hagane.ir.target_model import TargetModel
from hagane.ops.recurrent import NUM_GATES
from hagane.passes.base import control_graphs
from hagane.passes.dead_code import RemoveDeadCode
from hagane.passes.fold_constants import FoldConstants
from hagane.passes.fuse import lone_region
from hagane.passes.recurrent_loop import expand_layer

Rule = Callable[[Node, Builder], list[Value] | None]


@dataclass(frozen=True)
class ExpandRecurrent:
    """target: says which layers it has kernels for."""

    target: TargetModel
    name: str = "expand-recurrent"

    def run(self, graph: Graph) -> bool:
        changed = self._replace(graph, _in_f32)
        if changed:
            FoldConstants().run(graph)
        if self._replace(graph, expand_layer):
            FoldConstants().run(graph)
            changed = True
        if changed:
            RemoveDeadCode().run(graph)
        return changed

    def _replace(self, graph: Graph, rule: Rule) -> bool:
        """Applies the rule to the layers without a kernel, wherever they are."""
        names = graph.value_names()
        changed = False
        for inner in control_graphs(graph):
            mapping: dict[Value, Value] = {}
            kept: list[Node] = []
            for node in inner.nodes:
                node.inputs = [None if v is None else mapping.get(v, v) for v in node.inputs]
                scratch = Graph()
                builder = Builder(scratch, names=names)
                builder.loc = node.loc
                results = None
                if node.op in NUM_GATES and not self.target.computes(lone_region(node)):
                    results = rule(node, builder)
                kept += [node] if results is None else scratch.nodes
                mapping.update(zip(node.outputs, results or (), strict=results is not None))
            if mapping:
                inner.nodes = kept
                inner.replace_uses(mapping)
                changed = True
        return changed


def _in_f32(node: Node, builder: Builder) -> list[Value] | None:
    """A layer in 16-bit floats as one in f32; None for others."""
    dtype = node.input(0).dtype
    if dtype.bits != 16:
        return None
    wide = [
        v if v is None or v.dtype is not dtype else builder.op("cast", v, to=DType.F32) for v in node.inputs
    ]
    return [builder.op("cast", v, to=dtype) for v in builder.ops(node.op, *wide, **node.attrs)]
