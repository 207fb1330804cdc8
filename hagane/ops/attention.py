"""attention: softmax(scale * q k^T, soft-capped and masked) v, with several query heads to a key/value head.

q[B, H, S, D], k[B, G, T, D], v[B, G, T, Dv], mask or none -> [B, H, S, Dv]. Query head h reads key head
h // (H/G). mask broadcasts to [B, H, S, T]: bool keeps where true, floats are added. causal: query s, which
stands at position s + offset, sees the keys up to its own position. A query that sees no key gives zeros, or
with blind="nan" what softmax makes of it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.symbolic import Expr, const, to_expr
from hagane.ir.graph import Array, Node, Type
from hagane.ir.registry import Attrs, OpDef, Sample, register
from hagane.ir.scalar import Guard, Index, Read, Scalar, at_least, below, cast, fn, lit
from hagane.ops.loops import accumulator, loops
from hagane.ops.shapes import broadcast_index, broadcast_shapes, require_same

_MINUS_INFINITY = float("-inf")


def _infer(node: Node) -> list[Type]:
    q, k, v, mask = node.input(0), node.input(1), node.input(2), node.optional(3)
    require_same(q, k)
    require_same(q, v)
    if not q.rank == k.rank == v.rank == 4:
        raise ShapeError(f"attention takes q[B, H, S, D], k[B, G, T, D], v[B, G, T, Dv], not {q}, {k}, {v}")
    pairs = [
        (q.shape[0], k.shape[0], "batches of q and k"),
        (q.shape[0], v.shape[0], "batches of q and v"),
        (q.shape[3], k.shape[3], "head sizes of q and k"),
        (k.shape[1], v.shape[1], "heads of k and v"),
        (k.shape[2], v.shape[2], "lengths of k and v"),
    ]
    for a, b, name in pairs:
        if a.is_const and b.is_const and a != b:
            raise ShapeError(f"attention: the {name} differ: {a} and {b}")
    heads, groups = q.shape[1], k.shape[1]
    if heads.is_const and groups.is_const and (groups == 0 or heads.value % groups.value):
        raise ShapeError(f"attention can't share {groups} key heads among {heads} query heads")
    if mask is not None:
        if mask.dtype is not DType.BOOL and not mask.dtype.is_float:
            raise ShapeError(f"attention's mask is bool or float, not {mask}")
        scores = (*q.shape[:3], k.shape[2])
        if len(broadcast_shapes(scores, mask.shape)) != 4:
            raise ShapeError(f"attention's mask {mask} doesn't broadcast to [{', '.join(map(str, scores))}]")
    return [Type(q.dtype, (*q.shape[:3], v.shape[3]))]


def _score(node: Node, read: Read, query: Index, key_head: Expr, key: Expr, wide: DType) -> Scalar:
    """The score of a key position for a query (b, h, s)."""
    q, k, mask, attrs = node.input(0), node.input(1), node.optional(3), node.attrs
    nest = loops((*query, key), [q.shape[3]], "d")
    product = fn(
        "mul",
        cast(read(0, (*query, *nest.positions)), wide),
        cast(read(1, (query[0], key_head, key, *nest.positions)), wide),
    )
    score: Scalar = fn("mul", nest.reduce("sum", product), lit(wide, attrs["scale"]))
    cap = attrs.get("softcap")
    if cap:
        score = fn("mul", fn("tanh", fn("div", score, lit(wide, cap))), lit(wide, cap))
    hidden = lit(wide, _MINUS_INFINITY)
    if mask is not None:
        at = broadcast_index(mask.shape, (*q.shape[:3], k.shape[2]), (*query, key))
        entry = read(3, at)
        if mask.dtype is DType.BOOL:
            score = Guard(wide, entry, score, hidden)
        else:
            score = fn("add", score, cast(entry, wide))
    if attrs["causal"]:
        score = Guard(wide, at_least(query[2] + to_expr(attrs.get("offset", 0)), key), score, hidden)
    return score


def _define(node: Node, read: Read, index: Index, output: int) -> Scalar:
    q, k = node.input(0), node.input(1)
    wide = accumulator(q.dtype)
    query = index[:3]
    key_head = index[1] if q.shape[1] == k.shape[1] else index[1] // (q.shape[1] // k.shape[1])
    over_max, over_sum, over_keys = (loops(index, [k.shape[2]], letter) for letter in "mkt")
    largest = over_max.reduce("max", _score(node, read, query, key_head, over_max.positions[0], wide))
    nothing: Scalar = fn("eq", largest, lit(wide, _MINUS_INFINITY), dtype=DType.BOOL)
    shift = Guard(wide, nothing, lit(wide, 0), largest)

    def weight(key: Expr) -> Scalar:
        return fn("exp", fn("sub", _score(node, read, query, key_head, key, wide), shift))

    total = over_sum.reduce("sum", weight(over_sum.positions[0]))
    (key,) = over_keys.positions
    value = cast(read(2, (index[0], key_head, key, index[3])), wide)
    summed = over_keys.reduce("sum", fn("mul", weight(key), value))
    if blind_is_nan(node.attrs):
        nothing = below(k.shape[2], const(1))
    return cast(fn("div", summed, Guard(wide, nothing, lit(wide, 1), total)), q.dtype)


def blind_is_nan(attrs: Attrs) -> bool:
    """True if a query whose keys are all masked gives NaN, as the softmax that it was written as does."""
    return bool(attrs.get("blind", "zero") == "nan")


def _attention(attrs: Attrs, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    batch, heads, queries, _ = q.shape
    keys, per_group = k.shape[2], heads // k.shape[1]
    y = np.empty((*q.shape[:3], v.shape[3]))
    bias = np.zeros((1, 1, 1, 1)) if mask is None else mask
    if bias.dtype.kind == "b":
        bias = np.where(bias, 0.0, -np.inf)
    bias = np.broadcast_to(bias, (batch, heads, queries, keys))
    positions = np.arange(queries)[:, None] + attrs.get("offset", 0)
    unseen = np.arange(keys) > positions if attrs["causal"] else np.zeros((queries, keys), bool)
    cap = attrs.get("softcap")
    for b, h in np.ndindex(batch, heads):
        scores = q[b, h] @ k[b, h // per_group].T * attrs["scale"]
        if cap:
            scores = np.tanh(scores / cap) * cap
        scores = np.where(unseen, -np.inf, scores + bias[b, h])
        largest = scores.max(axis=1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
        total = weights.sum(axis=1, keepdims=True)
        nothing = np.isneginf(largest) & (not blind_is_nan(attrs))
        y[b, h] = weights / np.where(nothing, 1, total) @ v[b, h // per_group]
    return y


def _samples() -> Iterable[Sample]:
    rng = np.random.default_rng(0)

    def x(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    def qkv(heads: int, groups: int, queries: int, keys: int) -> tuple[Array, Array, Array]:
        return x(2, heads, queries, 8), x(2, groups, keys, 8), x(2, groups, keys, 5)

    attrs: Attrs = {"scale": 0.35, "causal": False, "softcap": None}
    free = ((0, 0), (0, 2))
    yield Sample((*qkv(3, 3, 7, 7), None), attrs, dynamic=free)
    yield Sample((*qkv(4, 2, 5, 9), None), attrs | {"softcap": 2.0}, dynamic=free)
    yield Sample((*qkv(3, 3, 7, 7), None), attrs | {"causal": True}, dynamic=free)
    yield Sample((*qkv(4, 1, 3, 8), None), attrs | {"causal": True, "offset": 5})
    keep = rng.uniform(0, 1, (5, 9)) < 0.6
    keep[2] = False
    yield Sample((*qkv(2, 2, 5, 9), keep), attrs)
    yield Sample((*qkv(2, 2, 5, 9), keep), attrs | {"blind": "nan"})
    yield Sample((*qkv(2, 2, 5, 9), x(2, 1, 1, 9)), attrs | {"causal": True})
    yield Sample((*qkv(2, 2, 5, 9), x(2, 5, 9)), attrs | {"softcap": 1.5})
    half = [a.astype(np.float16) for a in qkv(2, 1, 4, 6)]
    yield Sample((*half, None), attrs)


register(OpDef("attention", "attention", _infer, _attention, define=_define, samples=_samples))
