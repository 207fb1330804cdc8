import numpy as np
import pytest

import hagane.ops  # noqa: F401
from hagane.core.errors import ShapeError
from hagane.core.symbolic import sym
from hagane.ir.builder import Builder
from hagane.ir.graph import DType, Graph, tensor
from hagane.ir.registry import op_def
from hagane.ops.recurrent import NUM_GATES, Activation, activations
from tests.unit.ops.onnx_oracle import run_onnx

S, B, FEATURES, H = 5, 3, 4, 6


def _inputs(op, directions, seed=0):
    rng = np.random.default_rng(seed)
    rows = NUM_GATES[op] * H
    shapes = [
        (S, B, FEATURES),
        (directions, rows, FEATURES),
        (directions, rows, H),
        (directions, 2 * rows),
        (directions, B, H),
    ]
    x, w, r, bias, h = (rng.uniform(-1, 1, s) for s in shapes)
    inputs = [x, w, r, bias, None, h]
    return inputs + [rng.uniform(-1, 1, (directions, B, H)), rng.uniform(-1, 1, (directions, 3 * H))] * (
        op == "lstm"
    )


@pytest.mark.parametrize("op", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_reference_agrees_with_onnx(op, direction):
    inputs = _inputs(op, 2 if direction == "bidirectional" else 1)
    extra = {"activations": ["Tanh"] * (2 if direction == "bidirectional" else 1)} if op == "rnn" else {}
    expected = run_onnx(
        op.upper(), inputs, 3 if op == "lstm" else 2, hidden_size=H, direction=direction, **extra
    )
    found = op_def(op).reference({"direction": direction, "hidden": H}, *inputs)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_linear_before_reset_agrees_with_onnx():
    inputs = _inputs("gru", 1)
    expected = run_onnx("GRU", inputs, 2, hidden_size=H, linear_before_reset=1)
    found = op_def("gru").reference(
        {"direction": "forward", "hidden": H, "linear_before_reset": True}, *inputs
    )
    np.testing.assert_allclose(found[0], expected[0], atol=1e-12)


@pytest.mark.parametrize("op", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_a_short_sequence_is_as_if_alone(op, direction):
    inputs, attrs = _inputs(op, 1), {"direction": direction, "hidden": H}
    inputs[4] = np.array([S, 2, 0])
    padded = op_def(op).reference(attrs, *inputs)
    alone = [inputs[0][:2, 1:2], *inputs[1:4], None, *(a[:, 1:2] for a in inputs[5:7]), *inputs[7:]]
    short = op_def(op).reference(attrs, *alone)
    np.testing.assert_allclose(padded[0][:2, :, 1:2], short[0], atol=1e-12)
    assert not padded[0][2:, :, 1].any() and not padded[0][:, :, 2].any()
    for whole, part in zip(padded[1:], short[1:], strict=True):
        np.testing.assert_allclose(whole[:, 1:2], part, atol=1e-12)
    np.testing.assert_array_equal(padded[1][:, 2], inputs[5][:, 2])


def test_activations_consume_their_parameters_in_order():
    attrs = {
        "direction": "forward",
        "activations": ("HardSigmoid", "Tanh", "Affine"),
        "alphas": (0.3, 2.0),
        "betas": (0.4,),
    }
    [found] = activations("lstm", attrs)
    assert found == (Activation("hardsigmoid", 0.3, 0.4), Activation("tanh"), Activation("affine", 2.0, 0.0))


@pytest.mark.parametrize(
    ("name", "onnx_name"),
    [
        ("leakyrelu", "LeakyRelu"),
        ("elu", "Elu"),
        ("softsign", "Softsign"),
        ("softplus", "Softplus"),
        ("relu", "Relu"),
    ],
)
def test_activations_agree_with_onnx(name, onnx_name):
    x = np.linspace(-3, 3, 13)
    alpha = {"alpha": 0.5} if name in ("leakyrelu", "elu") else {}
    [expected] = run_onnx(onnx_name, [x], **alpha)
    np.testing.assert_allclose(Activation(name, 0.5)(x), expected, atol=1e-12)


def test_clip_bounds_what_goes_into_activations():
    inputs = _inputs("rnn", 1)
    y, _ = op_def("rnn").reference({"direction": "forward", "hidden": H, "clip": 0.1}, *inputs)
    assert np.abs(y).max() <= np.tanh(0.1)


def _layer(w_rows=4 * H, **attrs):
    builder = Builder(Graph())
    x = builder.input("x", tensor(DType.F32, sym("S"), sym("B"), FEATURES))
    w, r = (builder.input(n, tensor(DType.F32, 1, w_rows, k)) for n, k in (("w", FEATURES), ("r", H)))
    return builder.ops("lstm", x, w, r, **({"direction": "forward", "hidden": H} | attrs))


def test_types():
    assert [str(v.type) for v in _layer()] == ["f32[S, 1, B, 6]", "f32[1, B, 6]", "f32[1, B, 6]"]


def test_mistakes():
    with pytest.raises(ShapeError, match=r"lstm wants w of shape \[1, 24, 4\]"):
        _layer(w_rows=18)
    with pytest.raises(ShapeError, match="knows no activation 'swish'"):
        _layer(activations=("swish",) * 3)
    with pytest.raises(ShapeError, match="wants 3 activations"):
        _layer(activations=("tanh",))
