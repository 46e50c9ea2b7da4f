"""scipy.special's ufuncs on traced values: SciPy's values, and slopes by differences."""

from typing import Any

import numpy as np
import pytest
import scipy.special as sp

import autodiff as ad
from autodiff.errors import TracerError

# name -> points; each argument that is a float is differentiated
CALLS: dict[str, tuple[tuple[float | int, ...], ...]] = {
    "beta": ((0.7, 2.5), (30.0, 12.0), (-0.5, 0.8), (150.0, 3.0), (-20.5, 17.25)),
    "binom": ((5.5, 2.25), (40.0, 7.5), (0.5, -1.5)),
    "poch": ((0.75, 2.5), (20.0, 3.5), (-0.5, 2.25), (150.0, 2.0)),
    "rgamma": ((2.5,), (-0.5,), (-3.75,), (30.0,), (0.5,)),
    "pseudo_huber": ((1.5, 0.3), (0.1, -20.0), (2.0, 0.0)),
    "inv_boxcox": ((0.7, 0.4), (-0.5, -0.8), (0.7, 0.0)),
    "inv_boxcox1p": ((0.7, 0.4), (-0.5, -0.8), (0.7, 0.0)),
    "powm1": ((1.0001, 2.5), (0.3, -1.5)),
    "gdtr": ((1.5, 2.5, 0.8),),
    "gdtrc": ((1.5, 2.5, 0.8),),
    "chdtr": ((3.5, 2.0),),
    "chdtrc": ((3.5, 2.0),),
    "pdtr": ((3, 2.5),),
    "pdtrc": ((3, 2.5),),
    "fdtr": ((3.5, 5.0, 1.25),),
    "fdtrc": ((3.5, 5.0, 1.25),),
    "stdtr": ((3.5, 0.7), (3.5, -2.0), (4.0, 0.0)),
    "ellipk": ((0.3,), (-4.0,), (0.75,)),
    "ellipkm1": ((0.3,), (0.25,)),
    "ellipe": ((0.3,), (-4.0,), (0.75,)),
    "eval_legendre": ((5, 0.3), (0, 0.3), (1, 0.3)),
    "eval_chebyt": ((4, 0.3), (6, -1.2)),
    "eval_chebyu": ((4, 0.3),),
    "eval_hermite": ((4, 0.3),),
    "eval_hermitenorm": ((4, 0.3),),
    "eval_laguerre": ((4, 0.3),),
}
POINTS = [(name, point) for name, points in CALLS.items() for point in points]


def slope(f: Any, x: float) -> float:
    """A central difference with one Richardson step."""
    h = 1e-3 * max(1.0, abs(x))
    h = min(h, abs(x) / 8) if x else h
    wide, fine = ((f(x + d) - f(x - d)) / (2 * d) for d in (h, h / 2))
    return float((4 * fine - wide) / 3)


@pytest.mark.parametrize(("name", "point"), POINTS)
def test_values_and_slopes(name: str, point: tuple[Any, ...]):
    ufunc = getattr(sp, name)
    for i, x in enumerate(point):
        if not isinstance(x, float):
            continue

        def f(v: Any, at: int = i) -> Any:
            return ufunc(*point[:at], v, *point[at + 1 :])

        value, g = ad.value_and_grad(f)(x)
        np.testing.assert_allclose(value, f(x), rtol=2e-13, atol=1e-15)
        np.testing.assert_allclose(g, slope(f, x), rtol=2e-6, atol=1e-9, err_msg=f"argument {i}")
        narrow = ad.compile(f)(np.float32(x))
        assert narrow.dtype == np.float32
        np.testing.assert_allclose(narrow, f(float(np.float32(x))), rtol=2e-4)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_slope_of_rgamma_at_its_zeros(n: int):
    # (-1)^n n!, DLMF 5.7.1 and 5.5.3
    value, g = ad.value_and_grad(sp.rgamma)(-float(n))
    assert value == 0
    np.testing.assert_allclose(g, (-1.0) ** n * sp.factorial(n), rtol=1e-14)


@pytest.mark.parametrize("degree", [-1, 2.5, np.arange(3)], ids=str)
def test_a_degree_that_is_no_whole_number_is_refused(degree: Any):
    with pytest.raises(TracerError, match="eval_legendre") as caught:
        ad.grad(lambda x: np.sum(sp.eval_legendre(degree, x)))(0.3)
    assert len(str(caught.value).splitlines()) == 3


def test_edges():
    assert ad.compile(sp.ellipe)(1.0) == 1 and ad.compile(sp.ellipk)(1.0) == np.inf
    assert ad.compile(sp.pseudo_huber)(0.0, 2.0) == 0
    assert ad.compile(sp.pseudo_huber)(-1.0, 2.0) == np.inf
