"""The error function."""

from __future__ import annotations

from hagane.codegen.llvm.math.exponential import exp2m1_of_negative
from hagane.codegen.llvm.math.format import is_single, polynomial, with_sign
from hagane.codegen.llvm.value import Value

# -log2(erfc(t)) / t for 0 <= t <= 3.95 and 5.95; as errors of erf, relative: 2^-27.5, 2^-55.2
_ERF_32 = (
    1.6279070377349854, 0.9184475541114807, 0.14827752113342285, -0.02763325348496437,
    -0.00022974828607402742, 0.0024038180708885193, -0.0009125387878157198, 0.00016964123642537743,
    -1.3349730579648167e-05,
)  # fmt: skip
_ERF_64 = (
    1.627907028611115, 0.9184481885265586, 0.14826952512355818, -0.027596515652513937,
    -0.00030180392769191576, 0.002447106906079426, -0.00085136311958377, 3.730660432391011e-05,
    9.31151387026422e-05, -4.30254307929821e-05, 5.131276322709549e-06, 3.834251998472016e-06,
    -2.2710910381161164e-06, 3.030011768019721e-07, 3.085567174653336e-07, -2.5860432203277685e-07,
    1.160883748669763e-07, -3.692447009988733e-08, 8.874901740627434e-09, -1.6341594680432583e-09,
    2.281875480492298e-10, -2.3446719144915568e-11, 1.6737503800979044e-12, -7.415536225655378e-14,
    1.5352015290837932e-15,
)  # fmt: skip


def erf(x: Value) -> Value:
    """The error function."""
    # 1 - erf falls like 2^-(t h(t)) with h a smooth function, so that one polynomial serves from 0 to where
    # it is 1.
    # A rational function is shorter by a third, but off by 5 ulp when evaluated in f32.
    f = x.f
    t = f.fmin(f.abs(x), 3.95 if is_single(x) else 5.95)
    h = polynomial(t, _ERF_32 if is_single(x) else _ERF_64)
    return with_sign(exp2m1_of_negative(-t, h), x)
