"""Derivatives of softmaxes whose rows sum to 0 after rounding too.

The entries of a row share the error of their sum, and where cotangents lie on one grid and classes
are equal, that of their last rounding: with 1,000 classes the sum of entries that are each right to
half an ulp is 6e-6 of the largest in float32. What is left over is summed without error and put
on few entries, in proportion to their probabilities: on all of them it would be rounded away.
"""

import math
from typing import Any

import numpy as np

from autodiff.ops.reduction import extent, total, wide_total
from autodiff.ops.shape import slice_
from autodiff.trace import bind

__all__: list[str] = []

FEW = 32  # classes among which what is left over is spread evenly


def balanced(g: Any, p: Any, axis: tuple[int, ...]) -> Any:
    """g with the sum of each row along the axes taken off one entry in every sqrt(n).

    g is a rounded derivative whose exact rows sum to 0, p are the probabilities (0 where an entry
    must stay as it is). g must not be a product: a device may round it once with the difference,
    and what is taken off would be the error of another number. See `share`.
    """
    return g - p * share(g, p, axis) if extent(np.shape(g), axis) > 1 else g


def share(g: Any, p: Any, axis: tuple[int, ...]) -> Any:
    """c, 0 but for one entry j in every sqrt(n), such that the rows of g - p c sum to 0.

    c_j = r / max(sum_j p_j, 1 / (4 sqrt(n))), where r is the row's sum: p_j c_j are a few ulps of
    p_j sum_i |g_i|. Rows of few large probabilities, which may lie elsewhere, have small sums as
    they are; rows with an infinite entry or NaN stay as they are. c counts as a constant.
    """
    shape = np.shape(g)
    n = extent(shape, axis)
    rest, weights = wide_total(bind("STOP_GRADIENT", g), axis), bind("STOP_GRADIENT", p)
    rest = bind("WHERE", bind("ISFINITE", rest), rest, np.zeros((), g.dtype))
    if n <= FEW:
        return rest
    step, last = math.isqrt(n), axis[-1]
    strides = [step if i == last else 1 for i in range(len(shape))]
    chosen = total(slice_(weights, 0, shape, strides), axis)
    places = np.arange(shape[last]).reshape(-1, *(1,) * (len(shape) - 1 - last)) % step == 0
    c = rest / np.maximum(chosen, np.asarray(0.25 / step, g.dtype))
    return c * places.astype(g.dtype)
