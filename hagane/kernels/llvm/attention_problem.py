"""An attention region taken apart: strides of q, k and v, and the score of a key as an expression over its
product."""

from __future__ import annotations

from dataclasses import dataclass

from hagane.core.dtypes import DType
from hagane.core.symbolic import Expr, to_expr
from hagane.ir.graph import Node
from hagane.ir.region import Region, index_symbol, output_axes
from hagane.ir.scalar import Acc, Axis, Guard, Index, Scalar, at_least, cast, fn, lit
from hagane.kernels.llvm.gemm_epilogue import Epilogue
from hagane.kernels.llvm.gemm_index import Access, access, sym_of
from hagane.ops.attention import blind_is_nan
from hagane.ops.shapes import broadcast_index

KEY, GROUP = "$key", "$group"
MINUS_INFINITY = float("-inf")


@dataclass(frozen=True)
class AttentionProblem:
    """q[batch, heads, rows, head_size], k and v of `groups` heads; k and v are accessed by the symbol GROUP.

    q: rows are queries, steps the head's elements; k: rows are keys; v: rows are its columns, steps are keys.
    score: what goes into the softmax, over Acc, the product of a query and the key KEY. seen: one past the
    last key that a causal query sees, over the row's symbol; None if it sees all. blind_is_nan: see the op.
    """

    region: Region
    batch: Axis
    heads: Axis
    rows: Axis
    num_keys: Expr
    num_groups: Expr
    head_size: int
    value_size: int
    q: Access
    k: Access
    v: Access
    score: Scalar
    seen: Expr | None
    epilogue: Epilogue
    blind_is_nan: bool


def attention_problem(region: Region) -> AttentionProblem | None:
    """None if an operand isn't strided, a head's size isn't constant or the epilogue isn't pointwise."""
    anchor = region.anchor
    assert anchor is not None
    q, k, v = (anchor.input(i) for i in range(3))
    if not (q.shape[3].is_const and v.shape[3].is_const and q.shape[3].value and v.shape[3].value):
        return None
    axes = output_axes(anchor.output.shape)
    batch, heads, rows, column = axes
    index = tuple(sym_of(axis) for axis in axes)
    key, group, depth = (
        index_symbol(KEY, k.shape[2]),
        index_symbol(GROUP, k.shape[1]),
        index_symbol("$d", q.shape[3]),
    )
    key_axis, depth_axis = _axis(key, k.shape[2]), _axis(depth, q.shape[3])
    q_access = access(region, region.anchor_read(0, (*index[:3], depth)), (rows,), depth_axis)
    k_access = access(region, region.anchor_read(1, (index[0], group, key, depth)), (key_axis,), depth_axis)
    v_access = access(region, region.anchor_read(2, (index[0], group, key, index[3])), (column,), key_axis)
    if q_access is None or k_access is None or v_access is None:
        return None
    epilogue = Epilogue(region, (rows,), index, column.sym.name)
    if not epilogue.fits:
        return None
    seen = index[2] + to_expr(anchor.attrs.get("offset", 0)) + 1 if anchor.attrs["causal"] else None
    return AttentionProblem(
        region, batch, heads, rows, k.shape[2], k.shape[1], q.shape[3].value, v.shape[3].value,
        q_access, k_access, v_access, _score(region, anchor, index, key), seen, epilogue,
        blind_is_nan(anchor.attrs),
    )  # fmt: skip


def _axis(symbol: Expr, extent: Expr) -> Axis:
    ((monomial, _),) = symbol.terms
    (atom,) = monomial
    return Axis(atom, extent)  # type: ignore[arg-type]


def _score(region: Region, anchor: Node, index: Index, key: Expr) -> Scalar:
    """As the op defines it, given the product."""
    q, k, mask, attrs = anchor.input(0), anchor.input(1), anchor.optional(3), anchor.attrs
    score: Scalar = fn("mul", Acc(DType.F32), lit(DType.F32, attrs["scale"]))
    cap = attrs.get("softcap")
    if cap:
        score = fn("mul", fn("tanh", fn("div", score, lit(DType.F32, cap))), lit(DType.F32, cap))
    hidden = lit(DType.F32, MINUS_INFINITY)
    if mask is not None:
        at = broadcast_index(mask.shape, (*q.shape[:3], k.shape[2]), (*index[:3], key))
        entry = region.anchor_read(3, at)
        if mask.dtype is DType.BOOL:
            score = Guard(DType.F32, entry, score, hidden)
        else:
            score = fn("add", score, cast(entry, DType.F32))
    if attrs["causal"]:
        score = Guard(DType.F32, at_least(index[2] + to_expr(attrs.get("offset", 0)), key), score, hidden)
    return score
