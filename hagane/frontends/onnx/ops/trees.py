"""ai.onnx.ml tree ensembles: all trees descend at once, one level per step, by lookups in tables of nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError
from hagane.core.symbolic import const
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.ops.ml import ML, POST_TRANSFORMS, as_f32, best_label, class_labels, post_transform
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Array, Value

MODES = {
    "BRANCH_LEQ": "le", "BRANCH_LT": "lt", "BRANCH_GTE": "ge", "BRANCH_GT": "gt", "BRANCH_EQ": "eq",
    "BRANCH_NEQ": "ne",
}  # fmt: skip
MAX_DEPTH = 256


@dataclass(frozen=True)
class Forest:
    """Tables over all nodes of all trees; a leaf is its own child. weights: f32[nodes, targets]."""

    feature: Array
    threshold: Array
    yes: Array
    no: Array
    missing_is_yes: Array
    mode: str
    roots: Array
    weights: Array


def read_forest(ctx: NodeContext, leaf_prefix: str, num_targets: int) -> Forest:
    """The attributes of a TreeEnsembleRegressor or -Classifier. Raises: ModelError."""
    tree = np.array(ctx.attrs.ints("nodes_treeids") or (), np.int64)
    ids = np.array(ctx.attrs.ints("nodes_nodeids") or (), np.int64)
    position = {key: k for k, key in enumerate(zip(tree.tolist(), ids.tolist(), strict=True))}
    count = len(position)
    if count != len(tree) or not count:
        raise ModelError(f"{ctx.op_type} has no nodes, or two of one number")
    modes = ctx.attrs.strings("nodes_modes") or ()
    feature = _ints(ctx, "nodes_featureids", count)
    values = ctx.attrs.floats("nodes_values")
    threshold = np.array(values, np.float32) if values is not None else np.zeros(count, np.float32)
    ctx.attrs.ignore("nodes_hitrates")
    tracks = ctx.attrs.ints("nodes_missing_value_tracks_true")
    missing = np.array(tracks or (0,) * count, bool)
    if len(modes) != count or threshold.size != count or missing.size != count:
        raise ModelError(f"{ctx.op_type} has tables of different lengths")
    kinds = {m for m in modes if m != "LEAF"}
    if len(kinds) > 1 or kinds - MODES.keys():
        raise ModelError(f"{ctx.op_type} mixes the branch modes {', '.join(sorted(kinds))}")
    children = []
    for name in ("nodes_truenodeids", "nodes_falsenodeids"):
        wanted = zip(tree.tolist(), _ints(ctx, name, count).tolist(), modes, range(count), strict=True)
        children.append([k if mode == "LEAF" else position.get((t, n), -1) for t, n, mode, k in wanted])
    yes, no = (np.array(c, np.int64) for c in children)
    if min(yes.min(), no.min()) < 0:
        raise ModelError(f"{ctx.op_type} has a child that is no node")
    weights = np.zeros((count, num_targets), np.float32)
    leaves = zip(
        ctx.attrs.ints(f"{leaf_prefix}_treeids") or (),
        ctx.attrs.ints(f"{leaf_prefix}_nodeids") or (),
        ctx.attrs.ints(f"{leaf_prefix}_ids") or (),
        ctx.attrs.floats(f"{leaf_prefix}_weights") or (),
        strict=True,
    )
    for t, n, target, weight in leaves:
        if (t, n) not in position or not 0 <= target < num_targets:
            raise ModelError(f"{ctx.op_type} has a weight for node {n} of tree {t} and output {target}")
        weights[position[t, n], target] += weight
    has_parent = set(yes[yes != np.arange(count)].tolist()) | set(no[no != np.arange(count)].tolist())
    roots = np.array([k for k in range(count) if k not in has_parent], np.int64)
    if sorted(tree[roots].tolist()) != sorted(set(tree.tolist())) or reached(roots, yes, no) != count:
        raise ModelError(f"{ctx.op_type} has a tree whose nodes form a circle, or fall apart")
    mode = next(iter(kinds), "BRANCH_LEQ")
    return Forest(feature, threshold, yes, no, missing, MODES[mode], roots, weights)


def reached(roots: Array, yes: Array, no: Array) -> int:
    """The number of nodes that can be reached from the roots."""
    found, frontier = set(roots.tolist()), set(roots.tolist())
    while frontier:
        frontier = {int(c) for k in frontier for c in (yes[k], no[k])} - found
        found |= frontier
    return len(found)


def _ints(ctx: NodeContext, name: str, count: int) -> Array:
    values = np.array(ctx.attrs.ints(name) or (), np.int64)
    if values.size != count:
        raise ModelError(f"{ctx.op_type} has {values.size} {name} for {count} nodes")
    return values


def depth_of(forest: Forest) -> int:
    """Steps from the roots until every tree stands at a leaf. Raises: ModelError for trees that never end."""
    frontier, depth = set(forest.roots.tolist()), 0
    while True:
        inner = {k for k in frontier if forest.yes[k] != k or forest.no[k] != k}
        if not inner:
            return depth
        depth += 1
        if depth > MAX_DEPTH:
            raise ModelError(f"a tree is deeper than {MAX_DEPTH} levels, or its nodes form a circle")
        frontier = {int(c) for k in inner for c in (forest.yes[k], forest.no[k])}


def descend(ctx: NodeContext, forest: Forest, x: Value) -> Value:
    """x[N, features] -> the leaves' weights f32[N, trees, targets]."""
    emit = ctx.emit
    if x.rank != 2:
        raise ModelError(f"{ctx.op_type} takes x[N, features], not {x.type}")
    features = x.shape[1]
    if features.is_const and forest.feature.max(initial=0) >= features.value:
        raise ModelError(f"{ctx.op_type} reads feature {forest.feature.max()} of {x.type}")
    names = ("feature", "threshold", "yes", "no", "missing_is_yes")
    tables = {name: emit.const(getattr(forest, name), name=name) for name in names}
    start = emit.const(forest.roots.reshape(1, -1), name="roots")
    node = emit.broadcast_to(start, (x.shape[0], const(forest.roots.size)))
    for _ in range(depth_of(forest)):
        value = emit.op("gather_elements", x, emit.op("gather", tables["feature"], node, axis=0), axis=1)
        holds = emit.op(forest.mode, value, emit.op("gather", tables["threshold"], node, axis=0))
        if forest.missing_is_yes.any():
            lost = emit.op("gather", tables["missing_is_yes"], node, axis=0)
            holds = emit.op("or", holds, emit.op("and", emit.op("isnan", value), lost))
        yes, no = (emit.op("gather", tables[name], node, axis=0) for name in ("yes", "no"))
        node = emit.op("where", holds, yes, no)
    return emit.op("gather", emit.const(forest.weights, name="weights"), node, axis=0)


AGGREGATES = {"SUM": "sum", "AVERAGE": "mean", "MIN": "min", "MAX": "max"}


def with_base(ctx: NodeContext, scores: Value) -> Value:
    """Scores plus the ensemble's base values."""
    base = ctx.attrs.floats("base_values")
    return ctx.op("add", scores, ctx.emit.const(np.array(base, np.float32))) if base else scores


@converter("TreeEnsembleRegressor", domain=ML)
def tree_regressor(ctx: NodeContext) -> Value:
    """Each target's sum, mean, minimum or maximum over the trees."""
    targets = ctx.attrs.integer("n_targets", 1)
    if not 1 <= targets <= 1 << 16:
        raise ModelError(f"TreeEnsembleRegressor has {targets} targets")
    forest = read_forest(ctx, "target", targets)
    aggregate = AGGREGATES[ctx.attrs.choice("aggregate_function", "SUM", tuple(AGGREGATES))]
    leaves = descend(ctx, forest, as_f32(ctx, ctx.input(0)))
    scores = ctx.emit.reduce(aggregate, leaves, (1,), keepdims=False)
    kind = ctx.attrs.choice("post_transform", "NONE", POST_TRANSFORMS)
    return post_transform(ctx, with_base(ctx, scores), kind)


@converter("TreeEnsembleClassifier", domain=ML)
def tree_classifier(ctx: NodeContext) -> list[Value]:
    """The best class and the scores of all. With two classes the leaves may hold the score of one only."""
    labels = class_labels(ctx)
    kind = ctx.attrs.choice("post_transform", "NONE", POST_TRANSFORMS)
    used = set(ctx.attrs.ints("class_ids") or ())
    forest = read_forest(ctx, "class", len(labels))
    leaves = descend(ctx, forest, as_f32(ctx, ctx.input(0)))
    scores = ctx.emit.reduce("sum", leaves, (1,), keepdims=False)
    if len(labels) == 2 and len(used) == 1:
        return _binary(ctx, forest, scores, next(iter(used)), labels, kind)
    scores = with_base(ctx, scores)
    return [best_label(ctx, scores, labels), post_transform(ctx, scores, kind)]


def _binary(
    ctx: NodeContext, forest: Forest, scores: Value, used: int, labels: tuple[int, ...], kind: str
) -> list[Value]:
    """Scores of one class: probabilities if no weight is negative, else margins.

    Source: ONNX Runtime, which fills in the other class only where the leaves name the first one.
    """
    positive = ctx.emit.slice(scores, 1, used, 1)
    base = ctx.attrs.floats("base_values")
    if base:
        positive = ctx.op("add", positive, ctx.emit.scalar(base[-1], DType.F32))
    limit = 0.5 if (forest.weights >= 0).all() else 0.0
    if used == 1:
        pair = [ctx.op("mul", positive, ctx.scalar_like(positive, 0)), positive]
        pair = [post_transform(ctx, ctx.emit.concat(pair, 1), kind)]
    elif limit:
        pair = [ctx.op("sub", ctx.scalar_like(positive, 1), positive), positive]
    elif kind == "LOGISTIC":
        pair = [ctx.op("sigmoid", ctx.op("neg", positive)), ctx.op("sigmoid", positive)]
    else:
        pair = [ctx.op("neg", positive), positive]
    chosen = ctx.op("gt", ctx.emit.squeeze(positive, (1,)), ctx.emit.scalar(limit, DType.F32))
    yes, no = (ctx.emit.scalar(labels[k], DType.I64) for k in (1, 0))
    return [ctx.op("where", chosen, yes, no), ctx.emit.concat(pair, 1)]


# modes of TreeEnsemble's nodes, by number; 6 (membership in a set) is not supported
_NUMBERED_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


@converter("TreeEnsemble", since=5, domain=ML)
def tree_ensemble(ctx: NodeContext) -> Value:
    """The newer form: branches and leaves in tables of their own, which are put one after the other here."""
    attrs = ctx.attrs
    targets = attrs.integer("n_targets", 1)
    modes, splits, weights = (attrs.tensor(n) for n in ("nodes_modes", "nodes_splits", "leaf_weights"))
    if modes is None or splits is None or weights is None or not 1 <= targets <= 1 << 16:
        raise ModelError("TreeEnsemble lacks one of its tables")
    used = set(modes.reshape(-1).tolist())
    if len(used) > 1 or max(used, default=0) >= len(_NUMBERED_MODES):
        raise ModelError("TreeEnsemble with several branch modes, or membership in sets, is not supported")
    attrs.ignore("nodes_hitrates", "membership_values")
    count, num_leaves = splits.size, weights.size
    children = []
    for name in ("true", "false"):
        child = _ints(ctx, f"nodes_{name}nodeids", count)
        is_leaf = _ints(ctx, f"nodes_{name}leafs", count).astype(bool)
        if (child < 0).any() or (child >= np.where(is_leaf, num_leaves, count)).any():
            raise ModelError("TreeEnsemble has a child that is no node")
        children.append(np.concatenate([child + np.where(is_leaf, count, 0), count + np.arange(num_leaves)]))
    table = np.zeros((count + num_leaves, targets), np.float32)
    owners = _ints(ctx, "leaf_targetids", num_leaves)
    roots = np.array(attrs.ints("tree_roots") or (), np.int64)
    if not roots.size or min(roots.min(), owners.min(initial=0)) < 0 or roots.max() >= count:
        raise ModelError("TreeEnsemble has a root that is no node")
    if owners.max(initial=0) >= targets:
        raise ModelError("TreeEnsemble has a leaf for an output that it doesn't have")
    table[count + np.arange(num_leaves), owners] = weights.reshape(-1)
    feature = np.concatenate([_ints(ctx, "nodes_featureids", count), np.zeros(num_leaves, np.int64)])
    tracks = np.array(attrs.ints("nodes_missing_value_tracks_true") or (0,) * count, bool)
    forest = Forest(
        feature,
        np.concatenate([splits.reshape(-1), np.zeros(num_leaves)]).astype(np.float32),
        children[0],
        children[1],
        np.concatenate([tracks, np.zeros(num_leaves, bool)]),
        MODES[_NUMBERED_MODES[used.pop() if used else 0]],
        roots,
        table,
    )
    leaves = descend(ctx, forest, as_f32(ctx, ctx.input(0)))
    aggregate = ("mean", "sum", "min", "max")[attrs.integer("aggregate_function", 1) % 4]
    scores = ctx.emit.reduce(aggregate, leaves, (1,), keepdims=False)
    kinds = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    scores = post_transform(ctx, scores, kinds[attrs.integer("post_transform", 0) % 5])
    return ctx.emit.cast(scores, ctx.input(0).dtype)
