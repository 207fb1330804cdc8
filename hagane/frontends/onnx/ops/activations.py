"""Activation functions, and softmax with its relatives."""

from __future__ import annotations

from hagane.core.dtypes import DType
from hagane.core.errors import ModelError, ShapeError
from hagane.core.symbolic import product
from hagane.frontends.onnx.context import NodeContext
from hagane.frontends.onnx.registry import converter
from hagane.ir.graph import Value

PLAIN = {
    "Relu": "relu", "Sigmoid": "sigmoid", "Softplus": "softplus", "Softsign": "softsign", "Mish": "mish",
    "HardSwish": "hard_swish",
}  # fmt: skip
# op: (IR op, {ONNX attribute: default}); the IR names are the same
PARAMETRIC: dict[str, tuple[str, dict[str, float]]] = {
    "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "Elu": ("elu", {"alpha": 1.0}),
    "Celu": ("celu", {"alpha": 1.0}),
    "Selu": ("selu", {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": 1.0}),
}


@converter(*PLAIN)
def plain(ctx: NodeContext) -> Value:
    """Activations without parameters."""
    ctx.expect_inputs(1, 1)
    return ctx.op(PLAIN[ctx.op_type], ctx.input(0))


@converter(*PARAMETRIC)
def parametric(ctx: NodeContext) -> Value:
    """Activations whose parameters are numbers."""
    ctx.expect_inputs(1, 1)
    op, defaults = PARAMETRIC[ctx.op_type]
    return ctx.op(op, ctx.input(0), **{name: ctx.attrs.number(name, d) for name, d in defaults.items()})


@converter("Gelu", since=20)
def gelu(ctx: NodeContext) -> Value:
    """approximate is none or tanh."""
    return ctx.op("gelu", ctx.input(0), approx=ctx.attrs.choice("approximate", "none", ("none", "tanh")))


@converter("Swish", since=24)
def swish(ctx: NodeContext) -> Value:
    """x * sigmoid(alpha * x)."""
    x, alpha = ctx.input(0), ctx.attrs.number("alpha", 1.0)
    scaled = x if alpha == 1.0 else ctx.op("mul", x, ctx.scalar_like(x, alpha))
    return ctx.op("mul", x, ctx.op("sigmoid", scaled))


@converter("PRelu", since=7)
def prelu(ctx: NodeContext) -> Value:
    """The slope is a tensor that broadcasts in one direction."""
    ctx.expect_inputs(2, 2)
    x, slope = ctx.input(0), ctx.input(1)
    if slope.rank > x.rank:
        raise ShapeError(f"the slope {slope.type} of PRelu has more dims than its input {x.type}")
    negative = ctx.op("lt", x, ctx.scalar_like(x, 0))
    return ctx.op("where", negative, ctx.op("mul", x, slope), x)


@converter("Shrink")
def shrink(ctx: NodeContext) -> Value:
    """x + bias below -lambd, x - bias above lambd, else 0."""
    x, bias, limit = ctx.input(0), ctx.attrs.number("bias", 0.0), ctx.attrs.number("lambd", 0.5)
    low = ctx.op("lt", x, ctx.scalar_like(x, -limit))
    high = ctx.op("gt", x, ctx.scalar_like(x, limit))
    raised, lowered = (ctx.op(op, x, ctx.scalar_like(x, bias)) for op in ("add", "sub"))
    zero = ctx.scalar_like(x, 0)
    return ctx.op("where", low, raised, ctx.op("where", high, lowered, zero))


SOFTMAX = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Hardmax": "hardmax"}


@converter(*SOFTMAX)
def softmax_flattened(ctx: NodeContext) -> Value:
    """Before opset 13 all axes from `axis` on are taken as one."""
    x = ctx.input(0)
    number = ctx.attrs.integer("axis", 1)
    axis = x.rank if number == x.rank else ctx.axis(number, x.rank)
    if axis == x.rank - 1:
        return _softmax(ctx, x, axis)
    flat = ctx.emit.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))
    return ctx.emit.reshape(_softmax(ctx, flat, 1), x.shape)


@converter(*SOFTMAX, since=13)
def softmax(ctx: NodeContext) -> Value:
    """Along one axis, the last one by default."""
    x = ctx.input(0)
    number = ctx.attrs.integer("axis", -1)
    if x.rank == 0:
        raise ModelError(f"{ctx.op_type} takes no scalars")
    return _softmax(ctx, x, ctx.axis(number, x.rank))


def _softmax(ctx: NodeContext, x: Value, axis: int) -> Value:
    if ctx.op_type != "Hardmax":
        return ctx.op(SOFTMAX[ctx.op_type], x, axis=axis)
    best = ctx.op("argmax", x, axis=axis, keepdims=True, select_last=False)
    extent = tuple(d if k == axis else 1 for k, d in enumerate(x.shape))
    position = ctx.op("iota", dtype=DType.I64, shape=tuple(extent), axis=axis)
    return ctx.emit.cast(ctx.op("eq", position, best), x.dtype)
