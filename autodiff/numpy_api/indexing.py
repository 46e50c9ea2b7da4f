"""NumPy's indexing, sorting and selecting functions.

Where a result's shape depends on values (nonzero, unique, compress), the values must be known:
the choice is taken from them and recorded as a GUARD.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from autodiff import ops
from autodiff.errors import TracerError
from autodiff.numpy_api import FUNCTIONS, implements
from autodiff.ops.gather import bounded
from autodiff.trace import quoted, user_line
from autodiff.tracer import Tracer

SHAPE_FIX = "use np.where(mask, x, 0), which keeps the shape, or choose on untraced values"


def decided(value: Any, what: str, fix: str = SHAPE_FIX) -> Any:
    """The concrete value of a possibly traced one, recorded as a GUARD."""
    if not isinstance(value, Tracer):
        return np.asarray(value)
    return value.decide(f"{what} of a traced value needs its values", fix)


# --- taking and putting --------------------------------------------------------------------


@implements(np.take)
def _take(a: Any, indices: Any, axis: Any = None, mode: str = "raise") -> Any:
    if axis is None:
        a, axis = np.ravel(a), 0
    return ops.gather(a, indices, axis, mode)


@implements(np.take_along_axis)
def _take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    return ops.take_along_axis(arr, indices, axis)


@implements(np.choose)
def _choose(a: Any, choices: Any, mode: str = "raise") -> Any:
    options = np.broadcast_arrays(*choices) if isinstance(choices, Sequence) else tuple(choices)
    shape = np.broadcast_shapes(np.shape(a), np.shape(options[0]))
    stacked = ops.stack([ops.broadcast_to(c, shape) for c in options])
    index = ops.broadcast_to(ops.gather(np.arange(len(options)), a, 0, mode), shape)
    return ops.reshape(ops.take_along_axis(stacked, ops.reshape(index, (1, *shape)), 0), shape)


@implements(np.select)
def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    out = default
    for mask, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        out = ops.where(mask, choice, out)
    return out


@implements(np.piecewise)
def _piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """The pieces are evaluated everywhere and selected, so that shapes do not depend on values."""
    masks = list(condlist) if isinstance(condlist, list | tuple) else [condlist]
    pieces = [f(x, *args, **kw) if callable(f) else f for f in funclist]
    out = np.zeros((), x.dtype) if len(pieces) == len(masks) else pieces.pop()
    for mask, piece in zip(masks, pieces, strict=True):
        out = ops.where(mask, piece, out)
    return ops.broadcast_to(ops.cast(out, x.dtype), x.shape)


@implements(np.compress)
def _compress(condition: Any, a: Any, axis: Any = None) -> Any:
    if axis is None:
        a, axis = np.ravel(a), 0
    (place,) = np.nonzero(decided(condition, "np.compress"))
    return ops.gather(a, place, axis)


@implements(np.extract)
def _extract(condition: Any, arr: Any) -> Any:
    return _compress(np.ravel(condition), np.ravel(arr))


def _refused(name: str, fix: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        raise TracerError(f"np.{name} is not supported on traced values", quoted(user_line()), fix)

    return function


_UPDATE = "nothing is written in place: x = autodiff.ops.index_update(x, index, value), or np.where"
for _name in ("copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal"):
    FUNCTIONS[getattr(np, _name)] = _refused(_name, _UPDATE)


# --- sorting and searching -----------------------------------------------------------------


@implements(np.sort)
def _sort(
    a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> Any:
    del kind, order, stable
    return ops.sort(a, axis)


@implements(np.argsort)
def _argsort(
    a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> Any:
    del kind, order, stable
    return ops.argsort(a, axis)


@implements(np.sort_complex)
def _sort_complex(a: Any) -> Any:
    return ops.sort(a if a.dtype.kind == "c" else ops.cast(a, np.complex128))


@implements(np.partition)
def _partition(a: Any, kth: Any, axis: Any = -1, kind: Any = None, order: Any = None) -> Any:
    """A full sort: one of the arrangements that `np.partition` may return."""
    del kth, kind, order
    return ops.sort(a, axis)


@implements(np.argpartition)
def _argpartition(a: Any, kth: Any, axis: Any = -1, kind: Any = None, order: Any = None) -> Any:
    del kth, kind, order
    return ops.argsort(a, axis)


@implements(np.lexsort)
def _lexsort(keys: Any, axis: int = -1) -> Any:
    order = ops.argsort(keys[0], axis)
    for key in list(keys)[1:]:
        moved = ops.argsort(ops.take_along_axis(key, order, axis), axis)
        order = ops.take_along_axis(order, moved, axis)
    return order


@implements(np.searchsorted)
def _searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    return ops.searchsorted(a if sorter is None else ops.gather(a, sorter), v, side)


@implements(np.digitize)
def _digitize(x: Any, bins: Any, right: bool = False) -> Any:
    steps = np.diff(decided(bins, "np.digitize"))
    if not (np.all(steps >= 0) or np.all(steps <= 0)):
        raise ValueError("bins must be monotonically increasing or decreasing")
    if np.all(steps >= 0):
        return ops.searchsorted(bins, x, "left" if right else "right")
    turned = ops.searchsorted(ops.reverse(bins), x, "right" if right else "left")
    return np.size(bins) - turned


# --- shapes that depend on values ----------------------------------------------------------


@implements(np.nonzero)
def _nonzero(a: Any) -> Any:
    return np.nonzero(decided(a != 0, "np.nonzero"))


@implements(np.flatnonzero)
def _flatnonzero(a: Any) -> Any:
    return _nonzero(np.ravel(a))[0]


@implements(np.argwhere)
def _argwhere(a: Any) -> Any:
    return np.argwhere(decided(a != 0, "np.argwhere"))


@implements(np.trim_zeros)
def _trim_zeros(filt: Any, trim: str = "fb") -> Any:
    (places,) = _nonzero(filt)
    if not places.size:
        return ops.slice_(filt, 0, 0)
    first = places[0] if "f" in trim.lower() else 0
    last = places[-1] + 1 if "b" in trim.lower() else filt.shape[0]
    return ops.slice_(filt, int(first), int(last))


# --- index helpers -------------------------------------------------------------------------


@implements(np.ix_)
def _ix(*args: Any) -> Any:
    rank = len(args)
    return tuple(
        ops.reshape(
            np.flatnonzero(x) if x.dtype == np.bool_ else x,
            (1,) * i + (x.size,) + (1,) * (rank - 1 - i),
        )
        for i, x in enumerate(np.asarray(a) if not isinstance(a, Tracer) else a for a in args)
    )


@implements(np.meshgrid)
def _meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    del copy
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    rank = len(xi)
    grids = []
    for i, x in enumerate(xi):
        place = 1 - i if indexing == "xy" and i < 2 and rank > 1 else i
        grids.append(ops.reshape(x, (1,) * place + (-1,) + (1,) * (rank - 1 - place)))
    return tuple(grids) if sparse else tuple(np.broadcast_arrays(*grids))


@implements(np.unravel_index)
def _unravel_index(indices: Any, shape: Any, order: str = "C") -> Any:
    extents = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    places = []
    for n in extents[::-1] if order == "C" else extents:
        places.append(indices % n)
        indices = indices // n
    return tuple(places[::-1] if order == "C" else places)


@implements(np.ravel_multi_index)
def _ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    modes = mode if isinstance(mode, tuple) else (mode,) * len(dims)
    out: Any = 0
    rows = list(zip(multi_index, dims, modes, strict=True))
    for axis, (i, n, m) in enumerate(rows if order == "C" else rows[::-1]):
        out = out * n + bounded(i, n, axis, m)
    return out


def _of_shape(function: Any) -> Any:
    """A function of an array that reads its shape alone."""

    def read(arr: Any, *args: Any, **kwargs: Any) -> Any:
        return function(np.broadcast_to(np.zeros(()), np.shape(arr)), *args, **kwargs)

    return read


for _name in ("diag_indices_from", "tril_indices_from", "triu_indices_from"):
    FUNCTIONS[getattr(np, _name)] = _of_shape(getattr(np, _name))
