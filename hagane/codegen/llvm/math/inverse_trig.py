"""Inverse trigonometric functions."""

from __future__ import annotations

from hagane.codegen.llvm.math.format import is_single, polynomial, with_sign
from hagane.codegen.llvm.value import Value

# (asin(s) / s - 1) / s^2 of s^2, for s <= 1/2; relative to asin 2^-27.6, 2^-55.9
_ASIN_32 = (
    0.16666753590106964, 0.07495253533124924, 0.04547605291008949, 0.024150239303708076,
    0.04221861809492111,
)  # fmt: skip
_ASIN_64 = (
    0.16666666666665375, 0.07500000000345117, 0.04464285682144153, 0.03038195942998273,
    0.022371750813771994, 0.01735981689751998, 0.013884099981100498, 0.01217683982010174,
    0.006494273898729221, 0.01962235224393253, -0.01637469596374948, 0.03201724288295374,
)  # fmt: skip
# (atan(t) / t - 1) / t^2 of t^2, for t <= 1; relative to atan 2^-28.5, 2^-60.2
_ATAN_32 = (
    -0.33333298563957214, 0.1999853104352951, -0.14264053106307983, 0.10951194167137146,
    -0.08400564640760422, 0.0579085499048233, -0.031129373237490654, 0.010888787917792797,
    -0.0017878921935334802,
)  # fmt: skip
_ATAN_64 = (
    -0.33333333333333287, 0.1999999999999061, -0.14285714285044088, 0.1111111108663374,
    -0.0909090855016299, 0.07692299742517596, -0.06666583954912964, 0.05881717451085855,
    -0.05259439287446225, 0.047449441080333665, -0.042864368615047894, 0.03821098539481441,
    -0.03278688295478433, 0.026153468395841054, -0.01861593786374612, 0.011318939157583512,
    -0.005613103128411939, 0.0021518747400145776, -0.0005929708545145116, 0.0001038844604791511,
    -8.65510839572776e-06,
)  # fmt: skip
# pi / 2 as the sum of two numbers
_HALF_PI_32 = (1.5707963705062866, -4.371138828673793e-08)
_HALF_PI_64 = (1.5707963267948966, 6.123233995736766e-17)


def asin(x: Value) -> Value:
    """The arc sine; NaN beyond -1 and 1."""
    f = x.f
    p, far = _asin_core(x)
    high, low = _half_pi(x)
    return with_sign(f.select(far, high - (p * 2.0 - low), p), x)


def acos(x: Value) -> Value:
    """The arc cosine; NaN beyond -1 and 1."""
    f = x.f
    p, far = _asin_core(x)
    high, low = _half_pi(x)
    double = p * 2.0
    near_end = f.select(x.gt(0.0), double, 2 * high - (double - 2 * low))
    return f.select(far, near_end, high - (with_sign(p, x) - low))


def atan(x: Value) -> Value:
    """The arc tangent."""
    f = x.f
    a = f.abs(x)
    steep = a.gt(1.0)
    t = f.select(steep, 1.0 / a, a)
    z = t * t
    p = f.fma(t * z, polynomial(z, _ATAN_32 if is_single(x) else _ATAN_64), t)
    high, low = _half_pi(x)
    return with_sign(f.select(steep, high - (p - low), p), x)


def _asin_core(x: Value) -> tuple[Value, Value]:
    """asin |x|, or where |x| > 1/2 asin sqrt((1 - |x|) / 2); and the mask of the latter."""
    f = x.f
    a = f.abs(x)
    far = a.gt(0.5)
    z = f.select(far, f.fma(a, -0.5, 0.5), a * a)
    s = f.select(far, f.sqrt(z), a)
    return f.fma(s * z, polynomial(z, _ASIN_32 if is_single(x) else _ASIN_64), s), far


def _half_pi(x: Value) -> tuple[float, float]:
    return _HALF_PI_32 if is_single(x) else _HALF_PI_64
