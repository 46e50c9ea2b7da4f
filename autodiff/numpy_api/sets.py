"""NumPy's functions of arrays as sets, and its counts.

Which values are equal is decided from the concrete values and recorded as a GUARD; the values
themselves stay traced.
"""

from typing import Any, NamedTuple

import numpy as np

from autodiff import ops
from autodiff.errors import TracerError
from autodiff.numpy_api import implements
from autodiff.numpy_api.indexing import decided
from autodiff.trace import quoted, user_line
from autodiff.tracer import Tracer

# --- unique values -------------------------------------------------------------------------


@implements(np.unique)
def _unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Any = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    del sorted
    if axis is not None and np.ndim(ar) > 1:
        raise TracerError(
            "np.unique with axis= is not supported on traced values",
            quoted(user_line()),
            "ravel the array, or choose on untraced values",
        )
    flat = np.ravel(ar)
    order = decided(ops.argsort(flat), "np.unique")
    values = ops.gather(flat, order)
    changed = values[1:] != values[:-1]
    if equal_nan and flat.dtype.kind in "fc":
        changed = changed & ~(np.isnan(values[1:]) & np.isnan(values[:-1]))
    new = (
        np.concatenate([[True], decided(changed, "np.unique")]) if flat.size else np.zeros(0, bool)
    )
    first = np.nonzero(new)[0]
    results = [ops.gather(values, first)]
    if return_index:
        results.append(order[first])
    if return_inverse:
        inverse = np.empty(flat.size, np.intp)
        inverse[order] = np.cumsum(new) - 1
        results.append(inverse.reshape(np.shape(ar)))
    if return_counts:
        results.append(np.diff([*first, flat.size]))
    return results[0] if len(results) == 1 else tuple(results)


class UniqueAll(NamedTuple):
    """Fields of `np.unique_all`."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """Fields of `np.unique_counts`."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """Fields of `np.unique_inverse`."""

    values: Any
    inverse_indices: Any


@implements(np.unique_all)
def _unique_all(x: Any) -> Any:
    return UniqueAll(*_unique(x, True, True, True, equal_nan=False))


@implements(np.unique_counts)
def _unique_counts(x: Any) -> Any:
    return UniqueCounts(*_unique(x, return_counts=True, equal_nan=False))


@implements(np.unique_inverse)
def _unique_inverse(x: Any) -> Any:
    return UniqueInverse(*_unique(x, return_inverse=True, equal_nan=False))


@implements(np.unique_values)
def _unique_values(x: Any) -> Any:
    return _unique(x, equal_nan=False)


# --- set operations ------------------------------------------------------------------------


@implements(np.isin)
def _isin(
    element: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    kind: Any = None,
) -> Any:
    del assume_unique, kind
    element = element if isinstance(element, Tracer) else np.asarray(element)
    found = np.any(element[..., None] == np.ravel(test_elements), axis=-1)
    return ~found if invert else found


@implements(np.union1d)
def _union1d(ar1: Any, ar2: Any) -> Any:
    return _unique(ops.concatenate([np.ravel(ar1), np.ravel(ar2)]))


@implements(np.setdiff1d)
def _setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    own = np.ravel(ar1) if assume_unique else _unique(ar1)
    return own[decided(_isin(own, ar2, invert=True), "np.setdiff1d")]


@implements(np.setxor1d)
def _setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    del assume_unique
    return ops.sort(ops.concatenate([_setdiff1d(ar1, ar2), _setdiff1d(ar2, ar1)]))


@implements(np.intersect1d)
def _intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False
) -> Any:
    del assume_unique
    values, places = _unique(ar1, return_index=True)
    shared = decided(_isin(values, ar2), "np.intersect1d")
    if not return_indices:
        return values[shared]
    others, at = _unique(ar2, return_index=True)
    return values[shared], places[shared], at[decided(_isin(others, ar1), "np.intersect1d")]


# --- counts --------------------------------------------------------------------------------


@implements(np.bincount)
def _bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    """Weights stay traced; the values that say how many bins there are must be known."""
    largest = decided(np.max(x), "np.bincount") if np.size(x) else -1
    count = max(int(largest) + 1, minlength)
    if weights is None:
        return ops.segment_sum(np.ones(np.shape(x), np.int64), x, count)
    weights = weights if isinstance(weights, Tracer) else np.asarray(weights)
    return ops.segment_sum(ops.cast(weights, np.float64), x, count)


@implements(np.histogram)
def _histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> Any:
    """Counts are constant between the edges.

    Weights are differentiable, and so are edges that follow the values.
    """
    edges = _edges(a, bins, range)
    places, ends = decided(np.ravel(a), "np.histogram"), decided(edges, "np.histogram")
    inside = (places >= ends[0]) & (places <= ends[-1])
    at = np.clip(np.searchsorted(ends, places, "right") - 1, 0, ends.size - 2)[inside]
    if weights is None:
        counts = np.bincount(at, minlength=ends.size - 1)
    else:
        counts = ops.segment_sum(np.ravel(weights)[inside], at, ends.size - 1)
    if density:
        return counts / np.diff(edges) / np.sum(counts), edges
    return counts, edges


@implements(np.histogram_bin_edges)
def _edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    del weights
    if isinstance(bins, str):
        if isinstance(a, Tracer):
            raise TracerError(
                f"np.histogram with bins={bins!r} is not supported on traced values",
                quoted(user_line()),
                "pass the number of bins, or the edges",
            )
        return np.histogram_bin_edges(a, bins, range)
    if np.ndim(bins):
        return bins if isinstance(bins, Tracer) else np.asarray(bins)
    low, high = (np.min(a), np.max(a)) if range is None else map(np.float64, range)
    if bool(low == high):
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, int(bins) + 1)
