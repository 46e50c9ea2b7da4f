"""The array-API namespace of traced values, and SciPy functions that use it."""

import importlib
import os
import subprocess
import sys
import textwrap
import types

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.special

import autodiff as ad
from autodiff import namespace as xp
from autodiff.errors import TracerError
from autodiff.forward import is_inexact

RNG = np.random.default_rng(3)


def in_fresh_process(source, **environment):
    variables = {k: v for k, v in os.environ.items() if k != "SCIPY_ARRAY_API"}
    variables["PYTHONPATH"] = os.pathsep.join(["."] + [p for p in sys.path if p])
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        env={**variables, **environment},
        timeout=120,
        check=False,
    )


def test_scipy_functions_that_speak_the_array_api_trace():
    source = """
        import numpy as np, scipy.special, scipy.optimize, scipy.integrate, autodiff as ad
        x = np.array([0.5, 1.2, -0.3, 2.0])
        w = np.array([1.0, -2.0, 0.5, 3.0])
        def rows(f):
            return lambda x: (f(x.reshape(2, 2)) * w.reshape(2, 2)[:, :1]).sum()
        cases = {
            "rosen": scipy.optimize.rosen,
            "logsumexp": scipy.special.logsumexp,
            "logsumexp_axis": rows(lambda x: scipy.special.logsumexp(x, axis=1, keepdims=True)),
            "softmax": lambda x: (scipy.special.softmax(x) * w).sum(),
            "log_softmax": lambda x: (scipy.special.log_softmax(x) * w).sum(),
            "trapezoid": lambda x: scipy.integrate.trapezoid(x**2, dx=0.5),
            "erf": lambda x: (scipy.special.erf(x) * w).sum(),
            "xlogy": lambda x: (scipy.special.xlogy(x + 1, x + 2) * w).sum(),
        }
        for name, f in cases.items():
            value, gradient = ad.value_and_grad(f)(x)
            assert value == f(x), name
            h = 1e-5
            steps = h * np.eye(4)
            slopes = [
                (8 * (f(x + e) - f(x - e)) - f(x + 2 * e) + f(x - 2 * e)) / (12 * h) for e in steps
            ]
            assert np.allclose(gradient, slopes, rtol=1e-8, atol=1e-8), (name, gradient, slopes)
            hv = ad.hvp(f, (x,), (w,))
            g = ad.grad(f)
            slope = (g(x + h * w) - g(x - h * w)) / (2 * h)
            assert np.allclose(hv, slope, rtol=1e-6, atol=1e-6), name
            batch = ad.vmap(f)(np.stack([x, 2 * x]))
            assert np.allclose(batch, [f(x), f(2 * x)]), name
        print("traced", len(cases))
    """
    done = in_fresh_process(source, SCIPY_ARRAY_API="1")
    assert done.stdout.strip() == "traced 8", done.stderr


def test_scipy_function_of_numpy_arrays_only_says_so_under_the_switch():
    source = """
        import numpy as np, scipy.integrate, autodiff as ad
        ad.grad(lambda x: scipy.integrate.simpson(x))(np.ones(3))
    """
    done = in_fresh_process(source, SCIPY_ARRAY_API="1")
    assert done.returncode and "takes NumPy arrays only" in done.stderr


def test_traced_values_beside_arrays_in_scipy_name_the_way_out():
    """Without the switch they mix; with it SciPy asks for one namespace, and says no more."""
    x, y = np.array([0.3, 0.7]), np.array([1.0, 2.0])
    if not os.environ.get("SCIPY_ARRAY_API"):
        got = ad.grad(lambda x: np.sum(scipy.special.xlogy(y, x)))(x)
        np.testing.assert_allclose(got, y / x, rtol=1e-15)
    source = """
        import numpy as np, scipy.special, autodiff as ad

        def f(x):
            return np.sum(scipy.special.xlogy(np.ones(3), x))

        try:
            ad.grad(f)(np.ones(3))
        except TypeError as error:
            what, where, fix = str(error).splitlines()
            assert "together" in what and "in f" in where and "autodiff.ops.xlogy(a, x)" in fix
            print("said")
        print(ad.grad(lambda x: np.sum(ad.ops.xlogy(np.ones(3), x)))(np.ones(3)))
    """
    done = in_fresh_process(source, SCIPY_ARRAY_API="1")
    assert done.stdout.split("\n") == ["said", "[1. 1. 1.]", ""], done.stderr


def test_scipy_s_dispatchers_are_not_the_user_s_line():
    with pytest.raises(TracerError) as caught:
        ad.grad(lambda x: scipy.special.logsumexp(x))(np.ones(3))
    assert "test_namespace.py" in str(caught.value).splitlines()[1]


def test_scipy_function_without_the_switch_names_the_variable():
    if os.environ.get("SCIPY_ARRAY_API"):
        pytest.skip("SCIPY_ARRAY_API is set in this process")
    with pytest.raises(TracerError, match=r"np\.asarray[\s\S]*set SCIPY_ARRAY_API=1 before SciPy"):
        ad.grad(scipy.optimize.rosen)(np.ones(3))


def test_special_ufuncs_trace_without_the_switch():
    x = RNG.normal(size=5)
    gradient = ad.grad(lambda x: scipy.special.erf(x).sum())(x)
    np.testing.assert_allclose(gradient, 2 / np.sqrt(np.pi) * np.exp(-(x**2)), rtol=1e-15)


def test_asarray_error_elsewhere_offers_numpy_functions():
    with pytest.raises(TracerError, match=r"np\.asarray[\s\S]*test_namespace\.py[\s\S]*np\.stack"):
        ad.grad(lambda x: np.asarray(x).sum())(np.ones(3))


def test_writing_is_refused_outside_array_api_extra():
    def f(x):
        x[0] = 1.0
        return x.sum()

    with pytest.raises(TracerError, match=r"written in place[\s\S]*index_update"):
        ad.grad(f)(np.ones(3))


def test_writing_by_array_api_extra_leaves_the_original_alone():
    source = """
        import numpy as np, autodiff as ad
        from scipy._lib.array_api_extra import at
        def f(x):
            xp = x.__array_namespace__()
            y = at(x, x > 1).set(0.0, copy=True)
            z = at(xp.astype(x, xp.float64), 0).add(5.0, copy=False)
            return xp.sum(x * x) + 10 * xp.sum(y * y) + 100 * xp.sum(z * z)
        x = np.array([0.5, 2.0])
        value, bar = ad.value_and_grad(f)(x)
        assert value == 4.25 + 2.5 + 100 * (5.5**2 + 4), value
        assert list(bar) == [1 + 10 + 1100, 4 + 400], bar
        g = ad.grad(lambda x: ad.grad(f)(x).sum())(x)
        assert list(g) == [2 + 20 + 200, 2 + 200], g
        print("apart")
    """
    done = in_fresh_process(source, SCIPY_ARRAY_API="1")
    assert done.stdout.strip() == "apart", done.stderr


def test_namespace_is_a_module_with_extension_modules():
    def f(x):
        assert x.__array_namespace__() is xp
        assert x.__array_namespace__(api_version="2024.12") is xp
        return x.sum()

    ad.grad(f)(np.ones(2))
    assert xp.__name__ == "autodiff.namespace" and xp.__array_api_version__ == "2024.12"
    for name in ("linalg", "fft", "special"):
        module = getattr(xp, name)
        assert isinstance(module, types.ModuleType)
        assert module is importlib.import_module(f"autodiff.namespace.{name}")


def test_unknown_names_are_attribute_errors():
    for module in (xp, xp.linalg, xp.fft, xp.special):
        with pytest.raises(AttributeError, match=rf"{module.__name__}' has no attribute 'nothing'"):
            module.nothing  # noqa: B018


# names of the 2024.12 standard, by page of its specification
STANDARD = """
e inf nan newaxis pi arange asarray empty empty_like eye from_dlpack full full_like linspace
meshgrid ones ones_like tril triu zeros zeros_like astype can_cast finfo iinfo isdtype result_type
bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128
abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert
bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1
floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less less_equal log log1p
log2 log10 logaddexp logical_and logical_not logical_or logical_xor maximum minimum multiply
negative nextafter not_equal positive pow real reciprocal remainder round sign signbit sin sinh
square sqrt subtract tan tanh trunc take take_along_axis matmul matrix_transpose tensordot vecdot
broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll
squeeze stack tile unstack argmax argmin count_nonzero nonzero searchsorted where unique_all
unique_counts unique_inverse unique_values argsort sort cumulative_prod cumulative_sum max mean
min prod std sum var all any diff __array_namespace_info__
""".split()
LINALG = """
cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank
matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm
""".split()
FFT = """
fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift
""".split()


@pytest.mark.parametrize(
    ("module", "names"),
    [(xp, STANDARD), (xp.linalg, LINALG), (xp.fft, FFT)],
    ids=["xp", "linalg", "fft"],
)
def test_every_standard_name_is_there(module, names):
    missing = [n for n in names if not hasattr(module, n)]
    assert not missing
    assert set(names) <= set(dir(module))


def test_info_lists_dtypes_and_devices():
    info = xp.__array_namespace_info__()
    assert info.default_device() in info.devices()
    assert info.default_dtypes()["real floating"] == xp.float64
    assert set(info.dtypes(kind="complex floating")) == {"complex64", "complex128"}
    assert set(info.dtypes(kind=("bool", "integral"))) == {
        "bool",
        *(f"{s}int{n}" for s in ("", "u") for n in (8, 16, 32, 64)),
    }
    assert info.capabilities()["data-dependent shapes"] is True


def test_creation_mixes_numbers_and_traced_values():
    def f(x):
        built = xp.asarray([[x[0], 1.0], [xp.full((), x[1]), 2]])
        scaled = xp.astype(built, xp.float32) * xp.ones((2, 2), dtype=xp.float32, device="cpu")
        return xp.sum(xp.asarray(scaled, dtype=xp.float64)) + xp.sum(xp.full((3,), x[2]))

    x = np.array([1.5, 2.5, 0.25])
    value, gradient = ad.value_and_grad(f)(x)
    assert value == 1.5 + 1 + 2.5 + 2 + 0.75
    np.testing.assert_array_equal(gradient, [1, 1, 3])


def test_constants_stay_arrays():
    assert xp.asarray([1, 2]).dtype == np.int64 and isinstance(xp.zeros(3), np.ndarray)
    shared = np.arange(3.0)
    assert xp.asarray(shared) is shared and xp.asarray(shared, copy=True) is not shared
    assert is_inexact(xp.eye(2).dtype) and xp.isdtype(xp.int8, "integral")


def test_sinc_is_where_scipy_looks_for_it():
    # with SCIPY_ARRAY_API=1 scipy.special.sinc asks the namespace, and NumPy's is no ufunc
    from autodiff.namespace import special

    x = 0.3
    want = (np.cos(np.pi * x) - np.sinc(x)) / x
    np.testing.assert_allclose(ad.grad(special.sinc)(x), want, rtol=1e-13)
