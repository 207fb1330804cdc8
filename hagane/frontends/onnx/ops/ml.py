"""ai.onnx.ml: scalers, encoders and linear models, on tensors of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hagane.core.dtypes import DType, from_numpy
from hagane.core.errors import ModelError, ShapeError
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Array, Value

ML = "ai.onnx.ml"
POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def as_f32(ctx: NodeContext, x: Value) -> Value:
    """Classical models compute in f32 whatever they are given."""
    return ctx.emit.cast(x, DType.F32)


def row(ctx: NodeContext, numbers: Sequence[float]) -> Value:
    """f32 numbers as a tensor of one dim, or of none if there is only one."""
    array = np.array(numbers, np.float32)
    return ctx.emit.const(array.reshape(()) if array.size == 1 else array)


@converter("Scaler", domain=ML)
def scaler(ctx: NodeContext) -> Value:
    """(x - offset) * scale, per feature or for all."""
    x = as_f32(ctx, ctx.input(0))
    offset, scale = ctx.attrs.floats("offset"), ctx.attrs.floats("scale")
    if offset:
        x = ctx.op("sub", x, row(ctx, offset))
    return ctx.op("mul", x, row(ctx, scale)) if scale else x


@converter("Normalizer", domain=ML)
def normalizer(ctx: NodeContext) -> Value:
    """Each row over its largest element, its sum of magnitudes, or its length."""
    x, norm = as_f32(ctx, ctx.input(0)), ctx.attrs.choice("norm", "MAX", ("MAX", "L1", "L2"))
    axes = (x.rank - 1,)
    if norm == "MAX":
        size = ctx.emit.reduce("max", x, axes, keepdims=True)
    elif norm == "L1":
        size = ctx.emit.reduce("sum", ctx.op("abs", x), axes, keepdims=True)
    else:
        size = ctx.op("sqrt", ctx.emit.reduce("sum", ctx.op("mul", x, x), axes, keepdims=True))
    empty = ctx.op("eq", size, ctx.scalar_like(size, 0))
    return ctx.op("div", x, ctx.op("where", empty, ctx.scalar_like(size, 1), size))


@converter("Binarizer", domain=ML)
def binarizer(ctx: NodeContext) -> Value:
    """1 above the threshold, else 0."""
    x = ctx.input(0)
    above = ctx.op("gt", x, ctx.scalar_like(x, ctx.attrs.number("threshold", 0.0)))
    return ctx.emit.cast(above, x.dtype)


@converter("Imputer", domain=ML)
def imputer(ctx: NodeContext) -> Value:
    """Replaces one value (NaN for floats, as a rule) by others, per feature or for all."""
    x = ctx.input(0)
    kind = "float" if x.dtype.is_float else "int64"
    values = ctx.attrs.floats("imputed_value_floats") or ctx.attrs.ints("imputed_value_int64s") or ()
    lost = ctx.attrs.number("replaced_value_float", 0.0)
    lost_int = ctx.attrs.integer("replaced_value_int64", 0)
    if not values:
        raise ModelError("Imputer needs the values to put in")
    fill = np.array(values, x.dtype.np)
    fill = fill.reshape(()) if fill.size == 1 else fill
    if kind == "float" and np.isnan(lost):
        missing = ctx.op("isnan", x)
    else:
        missing = ctx.op("eq", x, ctx.scalar_like(x, lost if kind == "float" else lost_int))
    return ctx.op("where", missing, ctx.emit.const(fill), x)


@converter("ArrayFeatureExtractor", domain=ML)
def feature_extractor(ctx: NodeContext) -> Value:
    """Elements of the last axis."""
    x = ctx.input(0)
    if x.rank == 1:
        x = ctx.emit.unsqueeze(x, (0,))
    indices = ctx.emit.reshape(ctx.input(1), (ctx.count(ctx.input(1)),))
    return ctx.op("gather", x, indices, axis=x.rank - 1)


@converter("FeatureVectorizer", domain=ML)
def feature_vectorizer(ctx: NodeContext) -> Value:
    """All inputs side by side, as f32[N, features]."""
    ctx.attrs.ignore("inputdimensions")
    parts = [as_f32(ctx, v) for v in ctx.inputs]
    return ctx.emit.concat([v if v.rank == 2 else ctx.emit.unsqueeze(v, (1,)) for v in parts], 1)


@converter("ZipMap", domain=ML)
def zip_map(ctx: NodeContext) -> list[Value]:
    """Passes the scores on as a tensor [N, classes]: there are no maps here."""
    ctx.attrs.ignore("classlabels_int64s", "classlabels_strings")
    return [ctx.input(0)]


def _table(ctx: NodeContext, what: str) -> Array | None:
    """The keys or values of a LabelEncoder. Raises: ModelError for strings."""
    if ctx.attrs.strings(f"{what}_strings"):
        raise ModelError("LabelEncoder of strings is not supported: strings stay on the host")
    floats, ints = ctx.attrs.floats(f"{what}_floats"), ctx.attrs.ints(f"{what}_int64s")
    if floats is not None:
        return np.array(floats, np.float32)
    if ints is not None:
        return np.array(ints, np.int64)
    array = ctx.attrs.tensor(f"{what}_tensor")
    if array is not None and array.dtype == object:
        raise ModelError("LabelEncoder of strings is not supported: strings stay on the host")
    return array


@converter("LabelEncoder", since=2, domain=ML)
def label_encoder(ctx: NodeContext) -> Value:
    """Looks each element up in a table of keys."""
    x, keys, values = ctx.input(0), _table(ctx, "keys"), _table(ctx, "values")
    if keys is None or values is None or keys.size != values.size or not keys.size:
        raise ModelError("LabelEncoder needs as many values as keys")
    default = ctx.attrs.tensor("default_tensor")
    number = ctx.attrs.number("default_float", -0.0)
    integer = ctx.attrs.integer("default_int64", -1)
    ctx.attrs.ignore("default_string")
    fallback = np.asarray(number if values.dtype.kind == "f" else integer) if default is None else default
    hits = ctx.op("eq", ctx.emit.unsqueeze(x, (x.rank,)), ctx.emit.const(keys.astype(x.dtype.np)))
    found = ctx.op("reduce_any", hits, axes=(x.rank,), keepdims=False)
    ranks = ctx.emit.cast(hits, DType.I64)
    position = ctx.op("argmax", ranks, axis=x.rank, keepdims=False, select_last=False)
    mapped = ctx.op("gather", ctx.emit.const(values), position, axis=0)
    return ctx.op(
        "where", found, mapped, ctx.emit.scalar(fallback.reshape(()).item(), from_numpy(values.dtype))
    )


def post_transform(ctx: NodeContext, scores: Value, kind: str) -> Value:
    """scores[N, classes] as probabilities."""
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return ctx.op("sigmoid", scores)
    if kind == "SOFTMAX":
        return ctx.op("softmax", scores, axis=scores.rank - 1)
    raise ModelError(f"the post_transform {kind} is not supported")


def _linear(ctx: NodeContext, outputs: int) -> Value:
    x = as_f32(ctx, ctx.input(0))
    if x.rank == 1:
        x = ctx.emit.unsqueeze(x, (0,))
    weights = np.array(ctx.attrs.floats("coefficients") or (), np.float32)
    features = x.shape[-1]
    if outputs < 1 or weights.size % outputs or (features.is_const and features != weights.size // outputs):
        raise ShapeError(f"{weights.size} coefficients don't fit {outputs} outputs of {x.type}")
    scores = ctx.op("matmul", x, ctx.emit.const(np.ascontiguousarray(weights.reshape(outputs, -1).T)))
    intercepts = ctx.attrs.floats("intercepts")
    return ctx.op("add", scores, row(ctx, intercepts)) if intercepts else scores


@converter("LinearRegressor", domain=ML)
def linear_regressor(ctx: NodeContext) -> Value:
    """x W + b."""
    kind = ctx.attrs.choice("post_transform", "NONE", POST_TRANSFORMS)
    return post_transform(ctx, _linear(ctx, ctx.attrs.integer("targets", 1)), kind)


@converter("LinearClassifier", domain=ML)
def linear_classifier(ctx: NodeContext) -> list[Value]:
    """The best class and the scores of all; one row of weights for two classes decides by its sign."""
    kind = ctx.attrs.choice("post_transform", "NONE", POST_TRANSFORMS)
    ctx.attrs.ignore("multi_class")
    labels = class_labels(ctx)
    rows = len(ctx.attrs.floats("intercepts") or ()) or len(labels)
    scores = _linear(ctx, rows)
    if rows == 1 and len(labels) == 2:
        if kind == "LOGISTIC":
            positive = ctx.op("sigmoid", scores)
            scores = ctx.emit.concat([ctx.op("sub", ctx.scalar_like(positive, 1), positive), positive], 1)
        else:
            scores = ctx.emit.concat([ctx.op("neg", scores), scores], 1)
        return [best_label(ctx, scores, labels), scores]
    return [best_label(ctx, scores, labels), post_transform(ctx, scores, kind)]


def class_labels(ctx: NodeContext) -> tuple[int, ...]:
    """Integer labels. Raises: ModelError for strings."""
    if ctx.attrs.strings("classlabels_strings"):
        raise ModelError(
            f"{ctx.op_type} with labels that are strings is not supported",
            next_step="export the model with integer labels",
        )
    name = "classlabels_int64s" if "classlabels_int64s" in ctx.attrs else "classlabels_ints"
    labels = ctx.attrs.ints(name)
    if not labels:
        raise ModelError(f"{ctx.op_type} needs its class labels")
    return labels


def best_label(ctx: NodeContext, scores: Value, labels: tuple[int, ...]) -> Value:
    """The label of the largest score of each row."""
    best = ctx.op("argmax", scores, axis=1, keepdims=False, select_last=False)
    if labels == tuple(range(len(labels))):
        return best
    return ctx.op("gather", ctx.emit.const(np.array(labels, np.int64)), best, axis=0)
