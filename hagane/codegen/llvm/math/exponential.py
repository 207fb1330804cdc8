"""exp and what is made of it in one piece: exp2, expm1, tanh, sigmoid."""

from __future__ import annotations

from hagane.codegen.llvm.math.format import (
    divide,
    format_of,
    from_bits,
    is_single,
    polynomial,
    power_of_two,
    scale,
    with_sign,
)
from hagane.codegen.llvm.value import Value

_LOG2E = 1.4426950408889634

# (e^r - 1 - r) / r^2 for |r| <= ln2 / 2; relative to e^r 2^-28.1, 2^-63.7
_EXP_32 = (
    0.4999999403953552,
    0.16666515171527863,
    0.04166823998093605,
    0.008369384333491325,
    0.0013824423076584935,
)
_EXP_64 = (
    0.5, 0.16666666666666682, 0.041666666666666394, 0.008333333333317318, 0.0013888888889041185,
    0.00019841269896464313, 2.4801587014616025e-05, 2.7557234231911907e-06, 2.7557530765366894e-07,
    2.511239886256968e-08, 2.0838565650619147e-09,
)  # fmt: skip
# the same, relative to e^r - 1: 2^-31.0, 2^-61.5
_EXPM1_32 = (
    0.5, 0.1666666567325592, 0.04166647791862488, 0.008333570323884487, 0.0013933894224464893,
    0.00019741409050766379,
)  # fmt: skip
_EXPM1_64 = (
    0.5, 0.16666666666666677, 0.041666666666666574, 0.008333333333321175, 0.0013888888888944073,
    0.00019841269887745815, 2.4801587197556314e-05, 2.7557242197326352e-06, 2.755738529477478e-07,
    2.5109851368948712e-08, 2.0880240374302263e-09,
)  # fmt: skip
# (2^r - 1) / r for |r| <= 1/2; relative to 2^r 2^-28.2, 2^-59.7
_EXP2_32 = (
    0.6931471824645996, 0.24022647738456726, 0.05550357699394226, 0.009618496522307396,
    0.0013392053078860044, 0.0001533203321741894,
)  # fmt: skip
_EXP2_64 = (
    0.6931471805599453, 0.2402265069591007, 0.055504108664823436, 0.009618129107629813,
    0.00133335581460092, 0.00015403530390552264, 1.5252734198074574e-05, 1.321548930074122e-06,
    1.0177917042641345e-07, 7.053922825072194e-09, 4.4758260722667683e-10, 2.7121295506715053e-11,
)  # fmt: skip
# the same, relative to 2^r - 1: 2^-26.2, 2^-54.7
_EXP2M1_32 = (
    0.6931471824645996, 0.24022649228572845, 0.05550365895032883, 0.00961832795292139,
    0.0013388183433562517, 0.00015375118528027087,
)  # fmt: skip
_EXP2M1_64 = (
    0.6931471805599453, 0.2402265069591007, 0.055504108664822985, 0.009618129107618991,
    0.0013333558146207199, 0.0001540353042670944, 1.5252733947527171e-05, 1.321544978712716e-06,
    1.017803866880174e-07, 7.07141007772907e-09, 4.455723064998572e-10,
)  # fmt: skip

# (tanh(x) / x - 1) / x^2 of x^2, for |x| <= 0.625; relative to tanh 2^-27.1
_TANH_NEAR = 0.625
_TANH_32 = (
    -0.3333328068256378, 0.13331399857997894, -0.053736649453639984, 0.020630165934562683,
    -0.005695920903235674,
)  # fmt: skip


def exp(x: Value) -> Value:
    """e to the x."""
    # beyond these it is inf and 0
    high, low = (89.0, -104.0) if is_single(x) else (710.0, -746.0)
    return exp_of_clamped(x.f.fmax(x.f.fmin(x, high), low))


def exp_of_clamped(x: Value, tail: Value | None = None, offset: int = 0) -> Value:
    """e^(x + tail) * 2^offset, for x within 1.2 times of where the result is inf or 0, and a small tail."""
    f = x.f
    n, n_bits, r = _reduce(x)
    if tail is not None:
        r = r + tail
    rest = polynomial(r, _EXP_32 if is_single(x) else _EXP_64)
    return scale(f.fma(r * r, rest, r) + 1.0, n, n_bits, offset)


def exp2(x: Value) -> Value:
    """2 to the x."""
    f, fmt = x.f, format_of(x)
    high, low = (129.0, -151.0) if is_single(x) else (1025.0, -1077.0)
    x = f.fmax(f.fmin(x, high), low)
    shifted = x + fmt.magic
    n = shifted - fmt.magic
    r = x - n
    y = f.fma(r, polynomial(r, _EXP2_32 if is_single(x) else _EXP2_64), 1.0)
    return scale(y, n, f.float_bits(shifted))


def expm1(x: Value) -> Value:
    """e^x - 1, accurate near zero too."""
    f, fmt = x.f, format_of(x)
    high, low = (89.0, -18.0) if is_single(x) else (710.0, -38.0)
    _, n_bits, r = _reduce(f.fmax(f.fmin(x, high), low))
    p = f.fma(r * r, polynomial(r, _EXPM1_32 if is_single(x) else _EXPM1_64), r)
    # half of it first: 2^n itself overflows at the upper end
    half = power_of_two(n_bits, fmt, less=1)
    return with_sign(f.fma(p, half, half - 0.5) * 2.0, x)


def exp2m1_of_negative(a: Value, b: Value | float) -> Value:
    """2^(a b) - 1, accurate near zero too, for a b <= 0 and not below -(mantissa bits + 5)."""
    f, fmt = a.f, format_of(a)
    shifted = f.fma(a, b, fmt.magic)
    r = f.fma(a, b, fmt.magic - shifted)
    first, *rest = _EXP2M1_32 if is_single(a) else _EXP2M1_64
    # the first term last, with one rounding: it is most of the sum
    p = f.fma(r, first, r * r * polynomial(r, rest))
    power = power_of_two(f.float_bits(shifted), fmt)
    return f.fma(p, power, power - 1.0)


def tanh(x: Value) -> Value:
    """The hyperbolic tangent."""
    return _tanh_32(x) if is_single(x) else _tanh_64(x)


def _tanh_32(x: Value) -> Value:
    """A polynomial near zero; elsewhere 1 - 2 / (e^(2|x|) + 1), where the second part is at most 0.45."""
    f = x.f
    a = f.abs(x)
    square = a * a
    near = f.fma(a * square, polynomial(square, _TANH_32), a)
    z = exp_of_clamped(f.fmax(a * -2.0, -104.0))
    far = 1.0 - divide(z + z, z + 1.0)
    return with_sign(f.select(a.lt(_TANH_NEAR), near, far), x)


def _tanh_64(x: Value) -> Value:
    # with m = e^(-2|x|) - 1 it is -m / (m + 2); one part in 2^55 away from 1, it is 1
    f = x.f
    m = exp2m1_of_negative(f.fmin(f.abs(x), 19.1), -2 * _LOG2E)
    return with_sign(divide(m, m + 2.0), x)


def sigmoid(x: Value) -> Value:
    """1 / (1 + e^-x), to full relative accuracy on both sides."""
    f = x.f
    z = exp_of_clamped(f.fmax(-f.abs(x), -104.0 if is_single(x) else -746.0))
    return divide(f.select(x.ge(0.0), 1.0, z), z + 1.0)


def _reduce(x: Value) -> tuple[Value, Value, Value]:
    """n, the bits of n + magic, and r, with x = n ln2 + r and |r| <= ln2 / 2."""
    f, fmt = x.f, format_of(x)
    shifted = f.fma(x, _LOG2E, fmt.magic)
    n = shifted - fmt.magic
    r = f.fma(n, -fmt.ln2[1], f.fma(n, -fmt.ln2[0], x))
    return n, f.float_bits(shifted), r


def exp2_narrow(x: Value) -> Value:
    """2 to the x in f64, to 2^-34, for |x| <= 1000: what an f32 result needs."""
    f, fmt = x.f, format_of(x)
    shifted = x + fmt.magic
    r = x - (shifted - fmt.magic)
    # relative to 2^r 2^-34.3
    coefficients = (
        0.6931471807097193, 0.2402265107594487, 0.055504103524674726, 0.009618036620839064,
        0.0013333942230431455, 0.00015467275886625593, 1.5195442226662508e-05,
    )  # fmt: skip
    y = f.fma(r, polynomial(r, coefficients), 1.0)
    # an integer added to the exponent: the result is a normal number
    return from_bits(f.float_bits(y) + (f.float_bits(shifted) << fmt.mantissa_bits))
