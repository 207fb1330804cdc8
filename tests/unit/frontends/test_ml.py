"""ai.onnx.ml ops against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from hagane.core.errors import ModelError
from hagane.frontends.onnx import load_onnx
from tests.unit.frontends.onnx_models import check_op, compare_with_ort, model, node, typed_inputs

ML = "ai.onnx.ml"
RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 3)).astype(np.float32)
I64, F32 = TensorProto.INT64, TensorProto.FLOAT


def test_scaler() -> None:
    check_op("Scaler", {"x": X}, {"offset": [1.0, 2.0, 3.0], "scale": [0.5, 0.25, 2.0]}, domain=ML)
    check_op("Scaler", {"x": X}, {"offset": [1.0], "scale": [0.5]}, domain=ML)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    check_op("Normalizer", {"x": X}, {"norm": norm}, domain=ML)


def test_simple_ones() -> None:
    check_op("Binarizer", {"x": X}, {"threshold": 0.1}, domain=ML)
    holes = X.copy()
    holes[2, 1] = np.nan
    check_op(
        "Imputer",
        {"x": holes},
        {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float("nan")},
        domain=ML,
    )
    check_op("ArrayFeatureExtractor", {"x": X, "i": np.array([2, 0])}, domain=ML)


def test_label_encoder() -> None:
    attrs = {"keys_int64s": [3, 1, 7], "values_floats": [0.5, 1.5, 2.5], "default_float": -1.0}
    check_op("LabelEncoder", {"x": np.array([[7, 2], [1, 3]])}, attrs, domain=ML)


def test_linear_models() -> None:
    attrs = {"coefficients": [1.0, 2.0, 3.0, -1.0, 0.5, 0.0], "intercepts": [0.1, 0.2], "targets": 2}
    check_op("LinearRegressor", {"x": X}, attrs, domain=ML)


def classify(op: str, **attrs: Any) -> None:
    types = {"label": (I64, None), "scores": (F32, None)}
    made = node(op, ["x"], list(types), domain=ML, **attrs)
    compare_with_ort(model([made], typed_inputs({"x": X}), types), {"x": X})


def test_linear_classifiers() -> None:
    three = {
        "coefficients": list(RNG.standard_normal(9)),
        "intercepts": [0.1, 0.2, 0.3],
        "classlabels_ints": [2, 5, 9],
    }
    for kind in ("NONE", "SOFTMAX", "LOGISTIC"):
        classify("LinearClassifier", post_transform=kind, **three)


def stump_forest(
    prefix: str, targets: list[int], weights: list[float], mode: str = "BRANCH_LEQ"
) -> dict[str, Any]:
    """Two trees: x0 <= 0 ? (x1 <= 0.5 ? a : b) : c, and x2 <= -0.2 ? d : e."""
    leaves = [(0, 3), (0, 4), (0, 2), (1, 1), (1, 2)]
    return {
        "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 1, 0, 0, 0, 2, 0, 0],
        "nodes_values": [0.0, 0.5, 0.0, 0.0, 0.0, -0.2, 0.0, 0.0],
        "nodes_modes": [mode, mode, "LEAF", "LEAF", "LEAF", mode, "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
        "nodes_missing_value_tracks_true": [0] * 8,
        f"{prefix}_treeids": [t for t, _ in leaves],
        f"{prefix}_nodeids": [n for _, n in leaves],
        f"{prefix}_ids": targets,
        f"{prefix}_weights": weights,
    }


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"])
def test_tree_regressor(aggregate: str, mode: str) -> None:
    attrs = stump_forest("target", [0] * 5, [1.0, -2.0, 3.0, 0.5, 0.25], mode)
    check_op(
        "TreeEnsembleRegressor",
        {"x": X},
        {**attrs, "n_targets": 1, "aggregate_function": aggregate},
        domain=ML,
    )


@pytest.mark.parametrize("kind", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_tree_classifier(kind: str) -> None:
    attrs = stump_forest("class", [0, 1, 2, 1, 2], [1.0, 2.0, 3.0, 0.5, 0.25])
    classify("TreeEnsembleClassifier", **attrs, classlabels_int64s=[4, 5, 6], post_transform=kind)


@pytest.mark.parametrize("kind", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("used", [0, 1])
def test_binary_tree_classifier(kind: str, sign: float, used: int) -> None:
    if kind == "LOGISTIC" and sign > 0:
        pytest.skip("not what exporters write")
    attrs = stump_forest("class", [used] * 5, [0.15 * sign, 0.2, 0.3 * sign, 0.4, 0.25 * sign])
    classify("TreeEnsembleClassifier", **attrs, classlabels_int64s=[0, 1], post_transform=kind)


def test_broken_trees() -> None:
    attrs = stump_forest("target", [0] * 5, [1.0] * 5)
    broken = {
        "nodes_truenodeids": [1, 0, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [9, 4, 0, 0, 0, 2, 0, 0],
        "nodes_nodeids": [0] * 8,
        "nodes_values": [1.0],
        "nodes_featureids": [0, 3, 0, 0, 0, 2, 0, 0],
        "target_ids": [7] * 5,
    }
    for name, value in broken.items():
        made = node("TreeEnsembleRegressor", ["x"], ["y"], domain=ML, **{**attrs, name: value})
        with pytest.raises(ModelError):
            load_onnx(model([made], typed_inputs({"x": X}), ["y"]))


def test_strings() -> None:
    with pytest.raises(ModelError, match="labels that are strings"):
        attrs = {"coefficients": [1.0] * 6, "classlabels_strings": ["a", "b"], "intercepts": [0.0, 0.0]}
        classify("LinearClassifier", **attrs)
