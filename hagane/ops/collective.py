"""collective: an operation over all ranks along a named axis of the device mesh.

Each rank runs the same graph. collective(x) {kind, axis, size, dim}: `axis` names the mesh axis, `size` is
its number of ranks, `dim` the tensor axis that all_gather joins and reduce_scatter_sum splits. It has no
kernel yet.
"""

from __future__ import annotations

from hagane.core.errors import RunError, ShapeError
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, register
from hagane.ops.shapes import normal_axis

KINDS = ("all_reduce_sum", "all_reduce_max", "all_gather", "reduce_scatter_sum")


def _infer(node: Node) -> list[Type]:
    x, kind, axis, size = node.input(0), *(node.attrs[name] for name in ("kind", "axis", "size"))
    if kind not in KINDS:
        raise ShapeError(f"collective has no kind {kind!r}; it has {', '.join(KINDS)}")
    if not isinstance(axis, str) or not axis.isidentifier() or size < 1:
        raise ShapeError(f"collective wants the name of a mesh axis and its size, not {axis!r} and {size}")
    if kind.startswith("all_reduce"):
        return [x.type]
    dim = normal_axis(node.attrs["dim"], x.rank)
    extent = x.shape[dim]
    if kind == "reduce_scatter_sum" and extent.is_const and extent.value % size:
        raise ShapeError(f"axis {dim} of {x} can't be split among {size} ranks")
    changed = extent * size if kind == "all_gather" else extent // size
    return [Type(x.dtype, (*x.shape[:dim], changed, *x.shape[dim + 1 :]))]


def _reference(attrs: Attrs, x: Array) -> Array:
    if attrs["size"] != 1:
        raise RunError(
            f"collective {attrs['kind']} over {attrs['size']} ranks of mesh axis {attrs['axis']!r} "
            "can't be computed by one process"
        )
    return x


register(OpDef("collective", "collective", _infer, _reference))
