"""Elementary functions on f32 and f64, for any number of lanes, over the whole range of the type.

Special values are those of C: NaN comes through, exp overflows to inf, log(0) is -inf, log(-1) is NaN, the
sign of zero is kept. Polynomials are fitted for the smallest largest relative error (weighted least squares
with Lawson's weights, coefficients rounded one by one); the comments beside them give interval and error.
Tests hold the accuracy of each function.
"""

from hagane.codegen.llvm.math.exponential import exp, exp2, expm1, sigmoid, tanh
from hagane.codegen.llvm.math.hyperbolic import acosh, asinh, atanh, cosh, sinh
from hagane.codegen.llvm.math.inverse_trig import acos, asin, atan
from hagane.codegen.llvm.math.logarithm import log, log1p, softplus
from hagane.codegen.llvm.math.modulo import fmod, mod
from hagane.codegen.llvm.math.power import int_pow, pow
from hagane.codegen.llvm.math.simple import is_inf, is_nan, reciprocal, round_half_even, sign, sqrt
from hagane.codegen.llvm.math.special import erf
from hagane.codegen.llvm.math.trig import cos, sin, tan

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "fmod",
    "int_pow",
    "is_inf",
    "is_nan",
    "log",
    "log1p",
    "mod",
    "pow",
    "reciprocal",
    "round_half_even",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "softplus",
    "sqrt",
    "tan",
    "tanh",
]
