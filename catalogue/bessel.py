"""Entries of Bessel functions and the Hurwitz zeta function."""

from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import NONZERO, REAL, Domain
from catalogue.entry import Special, elementwise

INF, NAN = np.inf, np.nan


def _of_order(function: Any) -> Any:
    return lambda x, n: function(n, x)


for _kind, _function, _value, _slope in (
    ("BESSEL_I0", ops.bessel_i0, 1.0, 0.0),
    ("BESSEL_I1", ops.bessel_i1, 0.0, 0.5),
    ("BESSEL_J0", ops.bessel_j0, 1.0, 0.0),
    ("BESSEL_J1", ops.bessel_j1, 0.0, 0.5),
):
    elementwise(
        _kind,
        _function,
        REAL,
        points={
            "near_zero": ([0.0, -0.0, 1e-8],),
            "far": ([19.0, -21.5, 70.25],),
            "infinite": ([NAN],),
        },
        tags={"far": ["large"], "infinite": ["nonfinite"]},
        specials=(Special("zero", (0.0,), _value, cotangent=2.0, gradients=(2 * _slope,)),),
    )
for _kind, _function, _value, _slope in (
    ("BESSEL_I0E", ops.bessel_i0e, 1.0, 0.0),
    ("BESSEL_I1E", ops.bessel_i1e, 0.0, 0.5),
):
    elementwise(
        _kind,
        _function,
        NONZERO,
        points={
            "zero": ([0.0, -0.0],),
            "far": ([19.0, -21.5, 70.25],),
            "infinite": ([INF, NAN],),
        },
        tags={"zero": ["kink"], "far": ["large"], "infinite": ["nonfinite"]},
        specials=(Special("zero", (0.0,), _value, cotangent=2.0, gradients=(2 * _slope,)),),
    )
for _kind, _function, _domain in (
    ("BESSEL_IV", ops.bessel_iv, REAL),
    ("BESSEL_IVE", ops.bessel_ive, NONZERO),
    ("BESSEL_JV", ops.bessel_jv, REAL),
):
    elementwise(
        _kind,
        _of_order(_function),
        _domain,
        points={"far": ([19.0, -21.5, 70.25],)},
        tags={"far": ["large"]},
        params={"n": 2},
        variants={"order_3": {"n": 3}},
        specials=(Special("zero", (0.0,), 0.0, {"n": 2}, 2.0, (0.0,)),),
    )
for _kind, _function, _params in (("ZETA", ops.zeta, {}), ("ZETA_S", ops.zeta_s, {"order": 1})):
    elementwise(
        _kind,
        _function,
        Domain(low=1.5, high=5.0),
        Domain(low=0.3, high=4.0),
        points={
            "riemann": ([2.0, 3.0, 4.0], [1.0, 1.0, 1.0]),
            "near_pole": (1.01, 1.0),
            "large": ([20.0, 2.0], [2.0, 1e3]),
            "outside": ([0.5, NAN], [1.0, 1.0]),
        },
        tags={"near_pole": ["edge", "large"], "large": ["large", "tiny"], "outside": ["nonfinite"]},
        params=_params,
        variants={"order_2": {"order": 2}} if _params else None,
    )
