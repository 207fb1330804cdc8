"""Which node tests are skipped, and why. Everything that is not listed here must pass."""

from __future__ import annotations

from onnx import TensorProto

from tests.conformance.cases import Case

STRINGS = "strings are not supported yet: they need host steps"
TRAINING = "training is out of scope"
RANDOM = "random numbers are not reproducible between runtimes"

OPS: dict[str, str] = {
    "ImageDecoder": "decodes files; that is preprocessing, not inference",
    "RegexFullMatch": STRINGS,
    "StringConcat": STRINGS,
    "StringNormalizer": STRINGS,
    "StringSplit": STRINGS,
    "TfIdfVectorizer": STRINGS,
    "Bernoulli": RANDOM,
    "BitCast": "the IR has no op that reinterprets bits yet",
    "Det": "determinants need a factorisation that the IR has no op for",
    "RandomUniformLike": RANDOM,
    "ai.onnx.preview.training.Adagrad": TRAINING,
    "ai.onnx.preview.training.Adam": TRAINING,
    "ai.onnx.preview.training.Momentum": TRAINING,
}

_P = TensorProto
TYPES: dict[int, str] = {
    _P.UINT2: "2-bit integers have no counterpart in the IR yet",
    _P.INT2: "2-bit integers have no counterpart in the IR yet",
    _P.FLOAT8E8M0: "float8e8m0 has no counterpart in the IR yet",
    _P.STRING: STRINGS,
}

UNIQUE = "unique slices along an axis need a lexicographic sort"
NAMES: dict[str, str] = {
    "test_ai_onnx_ml_tree_ensemble_set_membership": "membership in sets is not supported",
    "test_scan_sum": "Scan of opset 8 has a batch axis; it was redefined in opset 9",
    "test_unique_sorted_with_axis": UNIQUE,
    "test_unique_sorted_with_axis_3d": UNIQUE,
    "test_unique_sorted_with_negative_axis": UNIQUE,
    **{
        f"test_training_dropout{suffix}": TRAINING
        for suffix in ("", "_default", "_default_mask", "_mask", "_zero_ratio", "_zero_ratio_mask")
    },
}

# Cases that wait for a fix elsewhere; they pass as soon as it is there.
SYMBOL = "the verifier doesn't take a symbol that the node itself binds"
CAST = "the interpreter keeps the result of a cast to bf16 in that type"
PENDING: dict[str, str] = {}

# What the interpreter does and engines don't yet, by the start of the case's name.
SCANNED = "loops that collect rows whose number or size isn't known before can't be lowered yet"
PENDING_COMPILED: dict[str, str] = {
    "test_loop11": SCANNED,
}


def why_pending_compiled(case: Case) -> str | None:
    """The reason why a case may fail in an engine for now, or None."""
    return next((reason for name, reason in PENDING_COMPILED.items() if case.name.startswith(name)), None)


def why_pending(case: Case) -> str | None:
    """The reason why a case may fail for now, or None."""
    return next((reason for name, reason in PENDING.items() if case.name.startswith(name)), None)


def why_unsupported(case: Case) -> str | None:
    """The reason to skip a case, or None if it must pass."""
    if case.opset and case.opset < 7:
        return f"opset {case.opset} is older than 7"
    if case.kinds() - {"tensor_type"}:
        return "sequences and optionals as inputs or outputs of a model are not supported yet"
    reasons = [OPS[op] for op in sorted(case.ops & OPS.keys())]
    reasons += [TYPES[code] for code in sorted(case.type_codes() & TYPES.keys())]
    return NAMES.get(case.name) or (reasons[0] if reasons else None)
