"""Second order, both modes, complex conventions, and arrays that change under a recorded map."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import TracerError
from tests.public_cases.cases import right
from tests.public_cases.roads import hold, second, slopes, values

# --- E01: kinks that cancel -----------------------------------------------------------------


@pytest.mark.parametrize(
    "softplus",
    [ops.softplus, lambda x: np.logaddexp(0.0, x), lambda x: np.log(1.0 + np.exp(x))],
    ids=["softplus", "logaddexp", "textbook"],
)
def test_e01_softplus_at_zero_at_both_orders(softplus: Any) -> None:
    hold(slopes(softplus, 0.0), "E01", "slope of softplus")
    hold(second(softplus, 0.0), "E01", "second derivative of softplus")


def test_e01_asinh_at_zero() -> None:
    hold(slopes(np.arcsinh, 0.0), "E01", "slope of asinh")


# --- E03: four pairs of modes ---------------------------------------------------------------


def products(t: Any) -> Any:
    first, other = np.stack([t, t + 1, 2 - t]), np.stack([t - 1, 2 * t + 1, t + 3])
    weights = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    return np.sum(weights * np.cumprod(np.stack([first, other]), axis=1))


def quadratic(t: Any) -> Any:
    one = np.ones_like(t)
    return np.linalg.det(np.stack([np.stack([t + 2, one]), np.stack([one, 2 * t + 3])]))


def sheared(s: Any) -> Any:
    shear = np.eye(3)
    shear[0, 1] = 1.0
    return np.linalg.det(np.eye(3) + s * shear)


def test_e03_cumprod_with_a_zero_factor_at_every_order() -> None:
    hold(values(products, 1.0), "E03", "value of c")
    hold(slopes(products, 1.0), "E03", "slope of c")
    hold(second(products, 1.0), "E03", "second derivative of c")


def test_e03_determinants_twice_differentiated() -> None:
    hold(second(quadratic, 0.7), "E03", "second derivative of d")
    hold(second(sheared, 0.0), "E03", "second derivative along a shear")


# --- E04: a kernel at distance zero ---------------------------------------------------------

PLACE = [0.3, -1.2, 0.5]


def kernel(a: Any, b: Any) -> Any:
    return np.exp(-np.sum((a - b) ** 2))


def kernel_by_norm(a: Any, b: Any) -> Any:
    return np.exp(-(np.linalg.norm(a - b) ** 2))


def test_e04_a_smooth_kernel_at_distance_zero() -> None:
    hold(slopes(kernel, PLACE, PLACE), "E04", "gradient")
    hold(second(kernel, PLACE, PLACE, then=1), "E04", "mixed second derivative")


def test_e04_through_the_norm_the_second_order_is_nan_and_never_a_wrong_number() -> None:
    """NORM has the slope 0 at the origin by convention; the convention ends at first order."""
    hold(slopes(kernel_by_norm, PLACE, PLACE), "E04", "gradient")
    for pair, mixed in second(kernel_by_norm, PLACE, PLACE, then=1).items():
        assert np.all(np.isnan(mixed)), pair
    apart = np.add(PLACE, [1e-8, 0.0, 0.0])
    hold(second(kernel_by_norm, PLACE, apart, then=1), "E04", "mixed second derivative")


# --- E06: complex gradients -----------------------------------------------------------------

ABSOLUTE: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "parts": lambda z: np.sqrt(z.real**2 + z.imag**2),
    "conjugate": lambda z: np.sqrt((z * np.conj(z)).real),
}
SQUARED: dict[str, Callable[..., Any]] = {
    "abs": lambda z: np.abs(z) ** 2,
    "parts": lambda z: z.real**2 + z.imag**2,
    "conjugate": lambda z: (z * np.conj(z)).real,
}


@pytest.mark.parametrize("spelling", ABSOLUTE)
def test_e06_every_spelling_has_one_gradient(spelling: str) -> None:
    near, far = np.complex128(1 + 0.5j), np.complex128(3 + 4j)
    for f, z, what in (
        (ABSOLUTE[spelling], near, "gradient of |z|"),
        (SQUARED[spelling], far, "gradient of |z| squared"),
    ):
        pulled = ad.vjp(f, z)[1](np.float64(0.75))[0] / 0.75
        mapped = ad.vmap(ad.grad(f))(np.stack([z, z]))[1]
        found = {"grad": ad.grad(f)(z), "pulled": pulled, "mapped": mapped}
        found["compiled"] = ad.compile(ad.grad(f))(z)
        hold(found, "E06", what)
        for road, gradient in found.items():  # du/dx - i du/dy, the first of the two conventions
            stated = right("E06", what).one_of
            assert stated is not None
            np.testing.assert_allclose(gradient.imag, stated[0]["im"], rtol=1e-14, err_msg=road)


@pytest.mark.parametrize("spelling", ABSOLUTE)
def test_e06_slopes_along_the_two_axes(spelling: str) -> None:
    f, z = ABSOLUTE[spelling], np.complex128(1 + 0.5j)
    along = [ad.jvp(f, (z,), (np.complex128(t),))[1] for t in (1, 1j)]
    right("E06", "slopes of |z| along 1 and i").holds(along)


# --- E08: arrays that change ----------------------------------------------------------------


def test_e08_the_argument_written_over_before_the_pullback() -> None:
    x = np.array([3.0])
    _, pullback = ad.vjp(lambda v: v * v, x)
    _, pushed = ad.linearize(lambda v: v * v, x)
    x[...] = 5.0
    stated = right("E08", "slope after x is written over")
    stated.holds(pullback(np.array([0.75]))[0][0] / 0.75, "vjp")
    stated.holds(pushed(np.array([0.75]))[0] / 0.75, "linearize")


def test_e08_the_value_written_over_before_the_pullback() -> None:
    y, pullback = ad.vjp(np.exp, np.array([0.0, 1.0]))
    z, pushed = ad.linearize(np.exp, np.array([0.0, 1.0]))
    y *= 0.0
    z *= 0.0
    ct = np.array([0.75, -2.0])
    np.testing.assert_array_equal(pullback(ct)[0], ct * np.exp([0.0, 1.0]))
    np.testing.assert_array_equal(pushed(ct), ct * np.exp([0.0, 1.0]))


def test_e08_an_index_or_a_captured_array_written_over_before_the_pullback() -> None:
    index, factor = np.array([0, 1]), np.array([3.0, 4.0])
    _, pullback = ad.vjp(lambda v, i: v[i] * factor, np.array([2.0, 3.0, 4.0]), index)
    index[...], factor[...] = 2, 9.0
    np.testing.assert_array_equal(pullback(np.array([1.0, 5.0]))[0], [3.0, 20.0, 0.0])


def test_e08_read_only_cotangents_and_results_of_ones_own() -> None:
    ct = np.array([1.0, 2.0])
    ct.flags.writeable = False
    _, pullback = ad.vjp(lambda v: (v + v, v), np.array([3.0, 4.0]))
    (first,) = pullback((ct, ct))
    first += 100.0
    np.testing.assert_array_equal(pullback((ct, ct))[0], 3 * ct)


def test_e08_an_update_in_place_is_an_error_that_names_the_way_out() -> None:
    def in_place(a: Any) -> Any:
        a += 1.0
        return a

    def written(a: Any) -> Any:
        a = a * 1.0
        a[0] = 2.0
        return a

    with pytest.raises(TracerError, match="(?s)written in place.*index_update"):
        ad.grad(lambda a: np.sum(written(a)))(np.ones(3))
    x = np.array([1.0, 2.0, 3.0])
    for road, j in slopes(in_place, x).items():
        hold({road: np.diagonal(j)}, "E08", "slope through an update in place")
    np.testing.assert_array_equal(x, [1.0, 2.0, 3.0])


def test_e08_a_copy_and_its_source_both_count() -> None:
    def f(x: Any) -> Any:
        return np.sum(np.copy(x)) + np.sum(2 * x)

    hold(slopes(f, [1.0, 2.0, 3.0, 4.0]), "E08", "slope of a copy and its source")
