"""Composites of 16-bit floats are computed in float32 and rounded once."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.widen import is_narrow


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    "f",
    [ops.softmax, ops.log_softmax, ops.layer_norm, ops.rms_norm, ops.var, ops.std, ops.logsumexp],
    ids=lambda f: f.__name__,
)
def test_narrow_composites_round_once(f: Any, dtype: Any):
    x = np.random.default_rng(0).normal(size=(4, 33)).astype(dtype)
    y = f(x)
    wide = f(x.astype(np.float32))
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, wide.astype(dtype))
    ct = np.random.default_rng(1).normal(size=np.shape(y)).astype(dtype)
    (g,) = ad.vjp(f, x)[1](ct)
    (reference,) = ad.vjp(f, x.astype(np.float32))[1](ct.astype(np.float32))
    assert g.dtype == dtype
    scale = float(np.max(np.abs(reference)))
    error = np.max(np.abs(g.astype(np.float64) - reference))
    assert error <= float(ml_dtypes.finfo(dtype).eps) * scale


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    "f", [ops.leaky_relu, ops.elu, ops.expm1_remainder, ops.log_ndtr], ids=lambda f: f.__name__
)
def test_narrow_scalars_stay_narrow(f: Any, dtype: Any):
    # NumPy's operators widen a bfloat16 scalar times a Python number
    for x in (np.array(-0.7, dtype), np.array([-0.7, 0.5, 3.0], dtype)):
        y, g = ad.value_and_grad(lambda v: np.sum(f(v)))(x)
        second = ad.grad(lambda v: np.sum(ad.grad(lambda u: np.sum(f(u)))(v)))(x)
        assert y.dtype == g.dtype == second.dtype == dtype
        np.testing.assert_array_equal(f(x), np.asarray(f(x.astype(np.float32))).astype(dtype))


def test_what_is_narrow():
    assert is_narrow(np.dtype(np.float16)) and is_narrow(np.dtype(ml_dtypes.float8_e4m3fn))
    assert not is_narrow(np.dtype(np.float32)) and not is_narrow(np.dtype(np.int8))
