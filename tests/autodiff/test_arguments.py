"""What transforms take: byte orders, subclasses, containers of axes, keywords, positions."""

import dataclasses
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff.errors import NotDifferentiableError, ShapeError, TracerError, TreeError

X = np.arange(12.0).reshape(4, 3) / 7
V = np.array([0.5, -1.0, 2.0])
N = np.array([1, 2, 3])


def cube(x):
    return np.sum(x * x * x)


# --- arrays --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">c16"])
def test_results_are_in_the_machine_s_byte_order(dtype):
    x = V.astype(dtype)
    native = x.dtype.newbyteorder("=")

    def f(x):
        return np.sum(np.abs(x) ** 3)

    for result in (ad.grad(f)(x), ad.jvp(f, (x,), (x,))[1], ad.vmap(lambda v: v)(x)):
        assert result.dtype.isnative
    np.testing.assert_array_equal(ad.grad(f)(x), ad.grad(f)(x.astype(native)))
    y, pull = ad.vjp(lambda v: v * x, x)
    assert y.dtype == native and pull(y)[0].dtype == native


Pair: Any = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any


masked = np.ma.masked_array(V, [True, False, False])


def matrix():
    with pytest.warns(PendingDeprecationWarning):
        return np.matrix(X)


@pytest.mark.parametrize("transform", [ad.grad, ad.compile, ad.vmap, ad.jacfwd])
def test_a_masked_array_is_refused_as_an_argument(transform):
    with pytest.raises(TracerError, match="is a MaskedArray, which follows other rules") as caught:
        transform(cube)(masked)
    assert len(str(caught.value).splitlines()) == 3


def test_a_masked_array_or_matrix_is_refused_as_an_operand():
    for operand in (masked, matrix()):
        with pytest.raises(TracerError, match=f"an operand is a {type(operand).__name__}"):
            ad.grad(lambda x, a=operand: np.sum(ad.ops.mul(x, a)))(V)


@pytest.mark.parametrize(
    "value", [np.zeros(2, [("a", float)]), np.zeros(2, "V8"), np.array(["2020"], "M8[Y]")]
)
def test_records_bytes_and_dates_are_no_arrays_of_numbers(value):
    with pytest.raises(TracerError, match="is not an array"):
        ad.grad(lambda x, t: cube(x))(V, value)


# --- containers of axes --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "axes", "multiply"),
    [
        (OrderedDict(z=X, a=V), OrderedDict(z=0, a=None), lambda t: t["z"] * t["a"]),
        (OrderedDict(z=X, a=V), {"a": None, "z": 0}, lambda t: t["z"] * t["a"]),
        ({2: X, 10: V}, {10: None, 2: 0}, lambda t: t[2] * t[10]),
        ({"b": X, 1: V}, {"b": 0, 1: None}, lambda t: t["b"] * t[1]),
        (Pair(X, V), Pair(0, None), lambda t: t.left * t.right),
        (Pair(X, V), (0, None), lambda t: t.left * t.right),
        (Layer(X, V), Layer(0, None), lambda t: t.weight * t.bias),
        ([(X, None), {"v": V}], [0, {"v": None}], lambda t: t[0][0] * t[1]["v"]),
    ],
    ids=[
        "ordered",
        "ordered_by_dict",
        "ints",
        "mixed_keys",
        "namedtuple",
        "tuple",
        "record",
        "deep",
    ],
)
def test_axes_are_matched_by_key_not_by_place(value, axes, multiply):
    got = ad.vmap(multiply, in_axes=(axes,))(value)
    np.testing.assert_array_equal(got, X * V)
    back = ad.vmap(lambda x: value, out_axes=None)(V)
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "axes", [{"z": 0}, {"z": 0, "b": None}, (0, None), Layer(0, None), "z", 1.0, [0, None]]
)
def test_axes_of_another_structure_are_refused(axes):
    with pytest.raises(TreeError, match="in_axes .* does not match its value") as caught:
        ad.vmap(lambda t: t["z"], in_axes=(axes,))({"z": X, "a": V})
    assert len(str(caught.value).splitlines()) == 3


def test_axes_may_be_numpy_integers():
    np.testing.assert_array_equal(
        ad.vmap(lambda x: 2 * x, in_axes=np.int64(1), out_axes=np.int64(-1))(X), 2 * X
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ad.vmap(cube)(1.0), "a scalar has none: use None"),
        (lambda: ad.vmap(cube, in_axes=2)(X), "use an axis from -2 to 1"),
        (lambda: ad.vmap(lambda x: x, out_axes=5)(X), "use an axis from -2 to 1"),
        (lambda: ad.vmap(lambda: V, axis_size=-1)(), "a batch has 0 rows or more"),
        (lambda: ad.vmap(lambda: V, axis_size=2.5)(), "pass an int"),
    ],
    ids=["scalar", "in", "out", "negative_size", "fractional_size"],
)
def test_axes_that_do_not_exist(call, words):
    with pytest.raises(ShapeError) as caught:
        call()
    assert str(caught.value).splitlines()[2:] == [words]


# --- keywords and positions ----------------------------------------------------------------


def power(x, *, k):
    return np.sum(x**k)


def test_keywords_reach_the_function_and_are_not_differentiated():
    for transform in (ad.jacfwd, ad.jacrev, ad.grad):
        np.testing.assert_allclose(transform(power)(V, k=3.0), 3 * V**2)
    np.testing.assert_allclose(ad.hessian(power)(V, k=3.0), np.diag(6 * V))


def test_vmap_maps_keywords_along_their_first_axis():
    k = np.array([1.0, 2.0, 3.0, 4.0])
    want = [np.sum(x**n) for x, n in zip(X, k, strict=True)]
    np.testing.assert_allclose(ad.vmap(power)(X, k=k), want, rtol=1e-15)
    np.testing.assert_allclose(ad.vmap(power, in_axes=1)(X.T, k=k), want, rtol=1e-15)


def test_positions_may_be_numpy_integers():
    def f(x, y):
        return np.sum(x * y * y)

    for transform in (ad.grad, ad.jacfwd, ad.jacrev):
        np.testing.assert_array_equal(transform(f, argnums=np.int64(0))(V, V), V**2)
    np.testing.assert_array_equal(ad.grad(f, argnums=np.array([1, 0]))(V, V)[1], V**2)


@pytest.mark.parametrize("argnums", ["x", 0.5, ("x",), None])
def test_other_positions_are_refused(argnums):
    with pytest.raises(TreeError, match="is no position") as caught:
        ad.grad(cube, argnums=argnums)(V)
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda: ad.vjp(lambda n: n * 1.0, N),
        lambda: ad.jvp(lambda n: n * 1.0, (N,), (N,)),
        lambda: ad.linearize(lambda t: t["n"] * 1.0, {"n": N, "mask": N > 1}),
        lambda: ad.vjp(lambda: V),
        lambda: ad.hvp(lambda n: np.sum(n) * 1.0, (N,), (N,)),
        lambda: ad.jacrev(lambda n: n * 1.0)(N),
    ],
    ids=["vjp", "jvp", "linearize", "no_arguments", "hvp", "jacrev"],
)
def test_nothing_to_differentiate_is_an_error(call):
    with pytest.raises(NotDifferentiableError) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 3


def test_an_integer_argument_beside_a_float_is_held_fixed():
    y, pull = ad.vjp(lambda x, n: x * n, V, N)
    np.testing.assert_array_equal(pull(y)[0], V * N * N)
    assert pull(y)[1] is None


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: ad.grad(cube, has_aux=True)(V), TreeError),
        (lambda: ad.grad(lambda x: (cube(x), 1, 2), has_aux=True)(V), TreeError),
        (lambda: ad.jvp(cube, (V,), (V * 1j,)), ShapeError),
        (lambda: ad.jvp(cube, (V,), (X,)), ShapeError),
        (lambda: ad.vjp(cube, V)[1](V), ShapeError),
        (lambda: ad.grad(lambda x: x)(V), ShapeError),
        (lambda: ad.grad(cube)(N), NotDifferentiableError),
    ],
    ids=["no_pair", "triple", "complex_tangent", "tangent", "cotangent", "not_scalar", "integers"],
)
def test_errors_say_what_where_and_the_way_out(call, error):
    with pytest.raises(error) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 3
