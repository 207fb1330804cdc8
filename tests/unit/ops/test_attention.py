import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.dtypes import DType
from hagane.core.errors import ShapeError
from hagane.core.symbolic import sym
from hagane.ir.builder import Builder
from hagane.ir.graph import Graph, tensor
from hagane.ir.registry import op_def
from tests.unit.ops.onnx_oracle import run_onnx

rng = np.random.default_rng(0)
Q, K, V = (rng.standard_normal(s) for s in ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6)))
MASKS = [None, rng.uniform(0, 1, (5, 7)) < 0.5, rng.standard_normal((2, 1, 5, 7))]


def _run(causal=False, mask=None, q=Q, k=K, v=V, scale=0.25, **attrs):
    return op_def("attention").reference({"scale": scale, "causal": causal, **attrs}, q, k, v, mask)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [False, True])
def test_reference_agrees_with_onnx(causal, mask):
    [expected] = run_onnx("Attention", [Q, K, V, mask], opset=24, scale=0.25, is_causal=int(causal))
    np.testing.assert_allclose(_run(causal, mask), expected, atol=1e-12)


def test_soft_cap_comes_before_the_mask():
    mask = MASKS[2]
    [expected] = run_onnx("Attention", [Q, K, V, mask], opset=24, scale=0.25, softcap=1.5)
    np.testing.assert_allclose(_run(mask=mask, softcap=1.5), expected, atol=1e-12)


def test_offset_counts_the_keys_before_the_queries():
    q = rng.standard_normal((2, 4, 7, 8))
    whole, last = _run(causal=True, q=q), _run(causal=True, q=q[:, :, 4:], offset=4)
    np.testing.assert_allclose(last, whole[:, :, 4:], atol=1e-12)


def test_a_query_that_sees_nothing_gives_zeros():
    mask = np.ones((5, 7), bool)
    mask[3] = False
    y = _run(mask=mask)
    assert not y[:, :, 3].any() and np.isfinite(y).all()


def _types(q=(2, 4, 5, 8), k=(2, 2, 7, 8), v=(2, 2, 7, 6), mask=None):
    builder = Builder(Graph())
    values = [builder.input(n, tensor(DType.F16, *s)) for n, s in (("q", q), ("k", k), ("v", v))]
    values.append(None if mask is None else builder.input("m", tensor(DType.F16, *mask)))
    return builder.op("attention", *values, scale=1.0, causal=False)


def test_types():
    assert str(_types(q=(sym("B"), 4, sym("S"), 8)).type) == "f16[B, 4, S, 6]"


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"k": (2, 3, 7, 8), "v": (2, 3, 7, 6)}, "can't share 3 key heads among 4 query heads"),
        ({"k": (2, 2, 7, 9)}, "the head sizes of q and k differ: 8 and 9"),
        ({"v": (2, 2, 8, 6)}, "the lengths of k and v differ: 7 and 8"),
        ({"mask": (1, 2, 4, 5, 7)}, "doesn't broadcast to"),
    ],
)
def test_mistakes(shapes, message):
    with pytest.raises(ShapeError, match=message):
        _types(**shapes)
