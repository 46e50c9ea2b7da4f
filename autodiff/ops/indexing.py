"""NumPy index expressions: x[index], its functional assignment and its accumulation."""

from typing import Any

import numpy as np

from autodiff.errors import IndexingError, ShapeError
from autodiff.families import composite, is_array
from autodiff.ops.elementwise import cast, where
from autodiff.ops.index_expression import Layout, parse
from autodiff.ops.shape import broadcast_to, reshape, reverse, slice_, transpose
from autodiff.program import Spec
from autodiff.trace import bind, spec_of
from autodiff.tracer import Tracer

__all__ = ["index", "index_update", "scatter_add"]

# --- INDEX ---------------------------------------------------------------------------------


def _axes_left(layout: Layout) -> list[int]:
    """Axes of the array part of a layout, counted after integers are dropped."""
    left = [e for e in layout if not isinstance(e, int) and e != "gap"]
    return [i for i, e in enumerate(left) if e in ("array", "flag")]


def _is_split(layout: Layout) -> bool:
    """Whether something between the arrays sends their axes to the front.

    NumPy's rule, under which integers beside arrays count as arrays.
    """
    places = [i for i, e in enumerate(layout) if isinstance(e, int) or e in ("array", "flag")]
    return places[-1] - places[0] + 1 != len(places)


def _sliced(x: Any, layout: Layout) -> Any:
    """The basic part: slices taken, integers dropped, axes of extent 1 put in."""
    start: list[int] = []
    stop: list[int] = []
    stride: list[int] = []
    flipped: list[int] = []
    shape: list[int] = []
    extents = iter(np.shape(x))
    for entry in layout:
        if entry in ("new", "flag"):
            shape.append(1)
        if isinstance(entry, str) and entry != "array":
            continue
        n = next(extents)
        if isinstance(entry, int):
            first, count, step = entry, 1, 1
        elif isinstance(entry, tuple):
            first, count, step = entry
        else:
            first, count, step = 0, n, 1
        if step < 0:
            flipped.append(len(start))
            first, step = first + (count - 1) * step, -step
        first = first if count else 0
        start.append(first)
        stop.append(first + (count - 1) * step + 1 if count else first)
        stride.append(step if count > 1 else 1)
        if not isinstance(entry, int):
            shape.append(count)
    x = slice_(x, start, stop, stride)
    return reshape(reverse(x, tuple(flipped)) if flipped else x, tuple(shape))


def _index_body(x: Any, *arrays: Any, layout: Layout) -> Any:
    x = _sliced(x, layout)
    if not arrays:
        return x
    axes = _axes_left(layout)
    if _is_split(layout):
        x = transpose(x, (*axes, *(i for i in range(np.ndim(x)) if i not in axes)))
        axes = list(range(len(axes)))
    return bind("GATHER", x, *arrays, axis=axes[0])


def _index_spec(x: Spec, *arrays: Spec, layout: Layout) -> Spec:
    return x.with_shape(selected_shape(x.shape, tuple(a.shape for a in arrays), layout))


def selected_shape(
    shape: tuple[int, ...], arrays: tuple[tuple[int, ...], ...], layout: Layout
) -> tuple[int, ...]:
    """Shape of the indexed array."""
    extents = iter(shape)
    kept: list[int] = []
    for entry in layout:
        if entry == "gap":
            continue
        n = 1 if entry in ("new", "flag") else next(extents)
        if not isinstance(entry, int):
            kept.append(entry[1] if isinstance(entry, tuple) else n)
    if not arrays:
        return tuple(kept)
    try:
        inner = np.broadcast_shapes(*arrays)
    except ValueError:
        raise IndexingError(
            f"index arrays do not broadcast: {', '.join(map(str, arrays))}",
            f"indexing an array of shape {shape}",
            "reshape them, or use np.ix_ for an outer selection",
        ) from None
    axes = _axes_left(layout)
    at = 0 if _is_split(layout) else axes[0]
    rest = [n for i, n in enumerate(kept) if i not in axes]
    return (*rest[:at], *inner, *rest[at:])


composite("INDEX", _index_body, spec=_index_spec)


def index(x: Any, index: Any) -> Any:
    """`x[index]` for any NumPy basic or advanced index, with NumPy's placement of axes.

    Arguments: x of any dtype; index: integers, slices, `...`, None, integer arrays and masks, or a
    tuple of these. Integer arrays may be traced; a traced mask needs a concrete value, and the
    choice is then recorded as a GUARD.
    Returns the selected elements. Linear in x; elements selected twice collect both cotangents.
    Raises IndexingError where NumPy raises IndexError (for traced index arrays: when evaluated).
    """
    layout, arrays = parse(np.shape(x), index)
    return bind("INDEX", x, *arrays, layout=layout) if arrays else _sliced(x, layout)


# --- INDEX_UPDATE and scatter_add ----------------------------------------------------------


def _is_window(layout: Layout) -> bool:
    """Whether an index selects a window, whole or reversed along each axis."""
    return all(abs(e[2]) == 1 for e in layout if isinstance(e, tuple))


def _direct_axis(layout: Layout, shape: tuple[int, ...]) -> int | None:
    """The axis from which arrays index adjacent axes, all other axes being whole; else None."""
    axes = [i for i, e in enumerate(layout) if e == "array"]
    others = [(e, n) for e, n in zip(layout, shape, strict=False) if e != "array"]
    whole = len(layout) == len(shape) and all(e == (0, n, 1) for e, n in others)
    return axes[0] if axes and whole and not _is_split(layout) else None


def _positions(shape: tuple[int, ...], arrays: Any, layout: Layout) -> Any:
    """Places of the selected elements in the flattened array."""
    places = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)
    return reshape(_index_body(places, *arrays, layout=layout), -1)


def _scattered(kind: str, x: Any, value: Any, arrays: Any, layout: Layout) -> Any:
    shape = np.shape(x)
    axis = _direct_axis(layout, shape)
    if axis is not None:
        return bind(kind, x, value, *arrays, axis=axis)
    places = _positions(shape, arrays, layout)
    return reshape(bind(kind, reshape(x, -1), reshape(value, -1), places, axis=0), shape)


def _update_body(x: Any, value: Any, *arrays: Any, layout: Layout) -> Any:
    if arrays or not _is_window(layout):
        return _scattered("SCATTER", x, value, arrays, layout)
    start, extents, flipped = [], [], []
    for axis, entry in enumerate(e for e in layout if not isinstance(e, str)):
        first, count, step = (entry, 1, 1) if isinstance(entry, int) else entry
        if step == -1:
            flipped.append(axis)
            first -= max(count - 1, 0)
        start.append(first if count else 0)
        extents.append(count)
    value = reshape(value, tuple(extents))
    value = reverse(value, tuple(flipped)) if flipped else value
    return bind("DYNAMIC_UPDATE_SLICE", x, value, *map(np.int64, start))


def _update_spec(x: Spec, value: Spec, *arrays: Spec, layout: Layout) -> Spec:
    shape = selected_shape(x.shape, tuple(a.shape for a in arrays), layout)
    if value.shape != shape or value.dtype != x.dtype:
        raise ShapeError(
            f"the value is {value}, the index selects {x.with_shape(shape)}",
            f"in an assignment to an array of shape {x.shape}",
            "broadcast the value with np.broadcast_to and convert it with astype",
        )
    return x


def _add_body(x: Any, value: Any, *arrays: Any, layout: Layout) -> Any:
    return _scattered("SCATTER_ADD", x, value, arrays, layout)


composite("INDEX_UPDATE", _update_body, spec=_update_spec)
composite(
    "INDEX_ADD", _add_body, spec=_update_spec, doc="x with updates added at an index expression."
)


def _assigned(kind: str, x: Any, index: Any, value: Any) -> Any:
    """Apply an assignment op after fitting the value to the selection as NumPy does."""
    x = x if is_array(x) else np.asarray(x)
    value = value if is_array(value) else np.asarray(value)
    _check_holds(kind, x, value)
    value = cast(value, x.dtype)
    if _selects_by_mask(x, index, value):
        return _masked(kind, x, index, value)
    layout, arrays = parse(np.shape(x), index)
    shape = selected_shape(np.shape(x), tuple(np.shape(a) for a in arrays), layout)
    while np.ndim(value) > len(shape) and np.shape(value)[0] == 1:
        value = reshape(value, np.shape(value)[1:])
    return bind(kind, x, broadcast_to(value, shape), *arrays, layout=layout)


def _check_holds(kind: str, x: Any, value: Any) -> None:
    """An array must be able to hold a value: a cast to integers would drop its derivative."""
    source, target = spec_of(value).dtype, spec_of(x).dtype
    if "biufVc".index(source.kind) > "biufVc".index(target.kind) and source.kind in "fVc":
        if not (source.kind == "V" and target.kind == "f"):
            raise ShapeError(
                f"a {source.name} value is put into an array of {target.name}",
                f"in op {kind}, array of shape {np.shape(x)}",
                f"convert the array first: x = x.astype(np.{source.name})",
            )


def _selects_by_mask(x: Any, index: Any, value: Any) -> bool:
    """Whether the index is one traced mask and the value the same for every place it selects."""
    if not isinstance(index, Tracer) or index.dtype != np.bool_:
        return False
    lead = np.ndim(index)
    return np.shape(x)[:lead] == np.shape(index) and np.ndim(value) <= np.ndim(x) - lead


def _masked(kind: str, x: Any, mask: Any, value: Any) -> Any:
    mask = reshape(mask, (*np.shape(mask), *(1,) * (np.ndim(x) - np.ndim(mask))))
    new = value if kind == "INDEX_UPDATE" else x + value
    return where(mask, new, x)


def index_update(x: Any, index: Any, value: Any) -> Any:
    """A copy of x with `x[index] = value` carried out.

    Where an index repeats, the last value in C order counts.

    Arguments: x, and an index as for `index`; value broadcasts to the selection and is converted
    to x's dtype (a value with more than x's dtype can hold - floating into integer, complex into
    real - is an error: it would drop a derivative). A traced mask needs no concrete value where the
    value does not depend on the place (it is a `where`).
    Returns an array of x's shape and dtype. Linear in x and value: overwritten elements of x and
    overwritten values have derivative 0.
    Raises IndexingError as `index`, ShapeError for values that do not fit.
    """
    return _assigned("INDEX_UPDATE", x, index, value)


def scatter_add(x: Any, index: Any, updates: Any) -> Any:
    """A copy of x with updates added at an index; repeated indices accumulate (`np.add.at`).

    Arguments and errors: as `index_update`. Linear in x and updates.
    """
    return _assigned("INDEX_ADD", x, index, updates)
