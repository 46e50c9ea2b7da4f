"""Ops whose extents come from another operand: its shape alone counts, never its values.

SUM_TO and BROADCAST_LIKE, PAD_LIKE and SLICE_LIKE (static corner), PAD_TO and SLICE_AT (corner
given by integer operands) are each other's adjoints, so that programs made of them stay made of
them at any order of differentiation.
"""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.op import Op, define
from autodiff.ops.shape import broadcast_to, pad, per_axis, slice_
from autodiff.program import Spec
from autodiff.trace import bind

__all__ = [
    "broadcast_like",
    "check_shape_like",
    "pad_like",
    "pad_to",
    "slice_at",
    "slice_like",
    "zeros_of",
]


def _model(value: Any) -> Any:
    """A template of a value's shape, of one element in memory."""
    return np.broadcast_to(np.zeros((), value.dtype), value.shape)


def _nothing(count: int) -> tuple[None, ...]:
    return (None,) * count


def _linear_in_first(kind: str) -> Any:
    def jvp(primals: Any, tangents: Any, y: Any, **params: Any) -> Any:
        del y
        return None if tangents[0] is None else bind(kind, tangents[0], *primals[1:], **params)

    return jvp


# --- BROADCAST_LIKE ------------------------------------------------------------------------


def _broadcast_like_spec(x: Spec, template: Spec) -> Spec:
    pairs = zip(x.shape[::-1], template.shape[::-1], strict=False)
    if x.ndim > template.ndim or any(m not in (1, n) for m, n in pairs):
        raise _misfit("BROADCAST_LIKE", x, template, "its shape must broadcast to the template's")
    return x.with_shape(template.shape)


def _misfit(kind: str, x: Spec, template: Spec, fix: str) -> ShapeError:
    return ShapeError(f"{x} does not fit a template {template}", f"in op {kind}", fix)


def _broadcast_like_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    return bind("SUM_TO", ct, shape=tuple(inputs[0].shape)), None


define(
    Op(
        "BROADCAST_LIKE",
        _broadcast_like_spec,
        body=lambda x, template: broadcast_to(x, np.shape(template)),
        jvp=_linear_in_first("BROADCAST_LIKE"),
        transpose=_broadcast_like_transpose,
    )
)


def broadcast_like(x: Any, template: Any) -> Any:
    """x broadcast to the shape of another array; the adjoint is `sum_to`.

    Raises ShapeError where x's shape does not broadcast to the template's.
    """
    return bind("BROADCAST_LIKE", x, template)


# --- SLICE_LIKE and PAD_LIKE ---------------------------------------------------------------


def _check_inside(kind: str, small: Spec, large: Spec, start: tuple[int, ...]) -> None:
    fits = small.ndim == large.ndim == len(start) and all(
        0 <= a and a + m <= n for a, m, n in zip(start, small.shape, large.shape, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"a window of {small.shape} at {start} does not fit into {large.shape}",
            f"in op {kind}",
            "arrays have one rank; start + extent is at most the extent outside",
        )


def _slice_like_spec(x: Spec, template: Spec, *, start: tuple[int, ...]) -> Spec:
    _check_inside("SLICE_LIKE", template, x, start)
    return x.with_shape(template.shape)


def _slice_like_body(x: Any, template: Any, *, start: tuple[int, ...]) -> Any:
    stop = tuple(a + n for a, n in zip(start, np.shape(template), strict=True))
    return slice_(x, start, stop)


def _slice_like_transpose(ct: Any, inputs: Any, *, start: tuple[int, ...]) -> tuple[Any, ...]:
    return bind("PAD_LIKE", ct, _model(inputs[0]), start=start), None


def _pad_like_spec(x: Spec, template: Spec, *, start: tuple[int, ...]) -> Spec:
    _check_inside("PAD_LIKE", x, template, start)
    return x.with_shape(template.shape)


def _pad_like_body(x: Any, template: Any, *, start: tuple[int, ...]) -> Any:
    sizes = zip(np.shape(template), start, np.shape(x), strict=True)
    return pad(x, start, tuple(n - a - m for n, a, m in sizes))


def _pad_like_transpose(ct: Any, inputs: Any, *, start: tuple[int, ...]) -> tuple[Any, ...]:
    return bind("SLICE_LIKE", ct, _model(inputs[0]), start=start), None


define(
    Op(
        "SLICE_LIKE",
        _slice_like_spec,
        body=_slice_like_body,
        jvp=_linear_in_first("SLICE_LIKE"),
        transpose=_slice_like_transpose,
    )
)
define(
    Op(
        "PAD_LIKE",
        _pad_like_spec,
        body=_pad_like_body,
        jvp=_linear_in_first("PAD_LIKE"),
        transpose=_pad_like_transpose,
    )
)


def slice_like(x: Any, template: Any, start: Any = 0) -> Any:
    """The window of x that has the template's shape and begins at `start` (an int per axis).

    The adjoint is `pad_like`. Raises ShapeError where the window does not fit.
    """
    return bind("SLICE_LIKE", x, template, start=per_axis(start, x, "start"))


def pad_like(x: Any, template: Any, start: Any = 0) -> Any:
    """Zeros of the template's shape with x put at `start` (an int per axis).

    The adjoint is `slice_like`. Raises ShapeError where x does not fit.
    """
    return bind("PAD_LIKE", x, template, start=per_axis(start, x, "start"))


# --- SLICE_AT and PAD_TO -------------------------------------------------------------------


def _check_starts(kind: str, small: Spec, large: Spec, starts: tuple[Spec, ...]) -> None:
    _check_inside(kind, small, large, (0,) * small.ndim)
    if len(starts) != large.ndim or any(s.shape or s.dtype.kind not in "iu" for s in starts):
        raise ShapeError(
            f"starts are {', '.join(map(str, starts)) or 'missing'} for {large.ndim} axes",
            f"in op {kind}",
            "give one integer scalar per axis",
        )


def _slice_at_spec(x: Spec, template: Spec, *starts: Spec) -> Spec:
    _check_starts("SLICE_AT", template, x, starts)
    return x.with_shape(template.shape)


def _slice_at_body(x: Any, template: Any, *starts: Any) -> Any:
    return bind("DYNAMIC_SLICE", x, *starts, sizes=np.shape(template))


def _slice_at_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    x, _, *starts = inputs
    return (bind("PAD_TO", ct, _model(x), *starts), *_nothing(1 + len(starts)))


def _pad_to_spec(x: Spec, template: Spec, *starts: Spec) -> Spec:
    _check_starts("PAD_TO", x, template, starts)
    return x.with_shape(template.shape)


def _pad_to_body(x: Any, template: Any, *starts: Any) -> Any:
    zeros = np.zeros(np.shape(template), x.dtype)
    return bind("DYNAMIC_UPDATE_SLICE", zeros, x, *starts)


def _pad_to_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    x, _, *starts = inputs
    return (bind("SLICE_AT", ct, _model(x), *starts), *_nothing(1 + len(starts)))


define(
    Op(
        "SLICE_AT",
        _slice_at_spec,
        body=_slice_at_body,
        jvp=_linear_in_first("SLICE_AT"),
        transpose=_slice_at_transpose,
    )
)
define(
    Op(
        "PAD_TO",
        _pad_to_spec,
        body=_pad_to_body,
        jvp=_linear_in_first("PAD_TO"),
        transpose=_pad_to_transpose,
    )
)


def slice_at(x: Any, template: Any, starts: Any) -> Any:
    """The window of x that has the template's shape, at integer scalars `starts`, traced or not.

    A window that would run past an end is moved inside, as in `dynamic_slice`. The adjoint is
    `pad_to`.
    """
    return bind("SLICE_AT", x, template, *_scalars(starts))


def pad_to(x: Any, template: Any, starts: Any) -> Any:
    """Zeros of the template's shape with x put at integer scalars `starts`, traced or not.

    Positions are moved inside as in `dynamic_update_slice`. The adjoint is `slice_at`.
    """
    return bind("PAD_TO", x, template, *_scalars(starts))


def _scalars(starts: Any) -> list[Any]:
    return [s if hasattr(s, "dtype") else np.asarray(s, np.int64) for s in starts]


# --- ZEROS_LIKE and CHECK_SHAPE_LIKE -------------------------------------------------------

define(
    Op(
        "ZEROS_LIKE",
        lambda template: template,
        body=lambda template: np.zeros(np.shape(template), template.dtype),
        derivative="zero",
    )
)


def zeros_of(template: Any) -> Any:
    """Zeros of an array's shape and dtype, as an operation of the program; its derivative is 0."""
    return bind("ZEROS_LIKE", template)


def _check_shape_spec(x: Spec, template: Spec) -> Spec:
    if x.shape != template.shape:
        raise _misfit("CHECK_SHAPE_LIKE", x, template, "both must have one shape")
    return x


define(
    Op(
        "CHECK_SHAPE_LIKE",
        _check_shape_spec,
        body=lambda x, template: x,
        jvp=_linear_in_first("CHECK_SHAPE_LIKE"),
        transpose=lambda ct, inputs: (
            bind("CHECK_SHAPE_LIKE", ct, _model(inputs[0])),
            None,
        ),
    )
)


def check_shape_like(x: Any, template: Any) -> Any:
    """x itself, once its shape is known to be the template's; else ShapeError naming both."""
    return bind("CHECK_SHAPE_LIKE", x, template)
