"""Products: MATMUL, DOT_GENERAL and what is written in them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import add_tangents, align, fit, promote, unbroadcast
from autodiff.kernels import matmul as kernels
from autodiff.op import Op, define
from autodiff.ops.shape import reshape, transpose
from autodiff.program import Spec
from autodiff.reverse import Undefined
from autodiff.trace import bind

__all__ = ["dot_general", "matmul"]

ALGORITHMS = ("default", "f32")
Pairs = tuple[tuple[int, ...], tuple[int, ...]]


def _check_algorithm(kind: str, algorithm: str) -> None:
    if algorithm not in ALGORITHMS:
        raise ShapeError(
            f"{kind} has no algorithm {algorithm!r}",
            f"in op {kind}",
            "use 'default' (the device's own mode) or 'f32' (full float32 products)",
        )


# --- MATMUL --------------------------------------------------------------------------------


def _matmul_spec(x: Spec, y: Spec, *, algorithm: str) -> Spec:
    _check_algorithm("MATMUL", algorithm)
    fits = x.ndim >= 2 and y.ndim >= 2 and x.shape[-1] == y.shape[-2] and x.dtype == y.dtype
    try:
        stack = np.broadcast_shapes(x.shape[:-2], y.shape[:-2]) if fits else ()
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"cannot multiply {x} and {y}",
            "in op MATMUL",
            "operands are (..., m, k) and (..., k, n) of one dtype, leading axes broadcast",
        )
    return x.with_shape((*stack, x.shape[-2], y.shape[-1]))


def _matmul_jvp(primals: Any, tangents: Any, z: Any, *, algorithm: str) -> Any:
    (x, y), (tx, ty) = primals, tangents
    left = None if tx is None else bind("MATMUL", tx, y, algorithm=algorithm)
    right = None if ty is None else bind("MATMUL", x, ty, algorithm=algorithm)
    return fit(add_tangents(left, right), np.shape(z))


def _swapped(x: Any) -> Any:
    """The last two axes exchanged."""
    n = np.ndim(x)
    return transpose(x, (*range(n - 2), n - 1, n - 2))


def _matmul_transpose(ct: Any, inputs: Any, *, algorithm: str) -> tuple[Any, ...]:
    x, y = inputs
    if isinstance(x, Undefined):
        return _pull_left(ct, y, x.shape, algorithm), None
    # z = x y is z^T = y^T x^T
    left = _pull_left(
        _swapped(ct), _swapped(x), (*y.shape[:-2], y.shape[-1], y.shape[-2]), algorithm
    )
    return None, _swapped(left)


def _pull_left(ct: Any, y: Any, shape: tuple[int, ...], algorithm: str) -> Any:
    """Cotangent of x in x y: ct y^T, summed over the leading axes along which one x was shared."""
    stack, (m, n), k = np.shape(ct)[:-2], np.shape(ct)[-2:], shape[-1]
    own = (1,) * (len(stack) + 2 - len(shape)) + shape[:-2]
    if stack and own != stack and set(own) == {1}:
        # one matrix for all: the sum over the stack is part of a single product
        count = math.prod(stack)
        numbers = (((0, 2), (0, 2)), ((), ()))
        ct, y = reshape(ct, (count, m, n)), reshape(y, (count, k, n))
        out = bind("DOT_GENERAL", ct, y, dimension_numbers=numbers, algorithm=algorithm)
        return reshape(out, shape)
    return unbroadcast(bind("MATMUL", ct, _swapped(y), algorithm=algorithm), shape)


def _matmul_batch(size: int, args: Any, batched: Any, *, algorithm: str) -> Any:
    (x, y), (x_flag, _) = args, batched
    if not x_flag and np.ndim(x) == 2 and np.ndim(y) == 3 and y.shape[-1] == 1:
        # one matrix applied to many vectors: a single product, rows (size, k) times x^T
        rows = reshape(y, (size, y.shape[1]))
        out = bind("MATMUL", rows, _swapped(x), algorithm=algorithm)
        return reshape(out, (size, np.shape(x)[0], 1)), True
    return bind("MATMUL", *align(args, batched), algorithm=algorithm), True


define(
    Op(
        "MATMUL",
        _matmul_spec,
        impl=kernels.matmul,
        jvp=_matmul_jvp,
        transpose=_matmul_transpose,
        batch=_matmul_batch,
        product=True,
        jax="rules:matmul",
    )
)


def matmul(x: Any, y: Any, algorithm: str = "default") -> Any:
    """Matrix product with NumPy's rules: z[..., i, j] = sum_k x[..., i, k] y[..., k, j].

    Arguments: x of shape (..., m, k) or (k,), y of shape (..., k, n) or (k,); leading axes
    broadcast, dtypes are promoted. `algorithm`: "default" is what the device does (TF32, bf16
    passes), "f32" asks for full float32 products; both are the same on float64.
    Returns shape (..., m, n), without the axis of a 1-d operand.
    Raises ShapeError for shapes that do not fit, or 0-d operands.
    """
    x, y = promote(x, y)
    if np.ndim(x) == 0 or np.ndim(y) == 0:
        raise ShapeError(
            f"matmul operands have shapes {np.shape(x)} and {np.shape(y)}",
            "in op MATMUL",
            "a 0-d operand is multiplied with *",
        )
    row, column = np.ndim(x) == 1, np.ndim(y) == 1
    if row:
        x = reshape(x, (1, *np.shape(x)))
    if column:
        y = reshape(y, (*np.shape(y), 1))
    z = bind("MATMUL", x, y, algorithm=algorithm)
    shape = np.shape(z)
    kept = shape[:-2] + (() if row else shape[-2:-1]) + (() if column else shape[-1:])
    return reshape(z, kept)


# --- DOT_GENERAL ---------------------------------------------------------------------------


def _free_axes(ndim: int, *taken: Sequence[int]) -> tuple[int, ...]:
    named = {a for axes in taken for a in axes}
    return tuple(i for i in range(ndim) if i not in named)


def _dot_general_spec(
    x: Spec, y: Spec, *, dimension_numbers: tuple[Pairs, Pairs], algorithm: str
) -> Spec:
    _check_algorithm("DOT_GENERAL", algorithm)
    (x_sum, y_sum), (x_batch, y_batch) = dimension_numbers
    _check_axes(x, x_sum, x_batch)
    _check_axes(y, y_sum, y_batch)
    paired = [x.shape[i] for i in (*x_sum, *x_batch)] == [y.shape[i] for i in (*y_sum, *y_batch)]
    if not paired or len(x_sum) != len(y_sum) or x.dtype != y.dtype:
        raise ShapeError(
            f"cannot contract {x} and {y} over axes {x_sum} and {y_sum}, batch axes {x_batch} and "
            f"{y_batch}",
            "in op DOT_GENERAL",
            "paired axes need equal extents, the operands one dtype",
        )
    return x.with_shape(
        (
            *(x.shape[i] for i in x_batch),
            *(x.shape[i] for i in _free_axes(x.ndim, x_sum, x_batch)),
            *(y.shape[i] for i in _free_axes(y.ndim, y_sum, y_batch)),
        )
    )


def _check_axes(x: Spec, *groups: tuple[int, ...]) -> None:
    axes = [a for group in groups for a in group]
    if len(set(axes)) != len(axes) or any(not 0 <= a < x.ndim for a in axes):
        raise ShapeError(
            f"axes {axes} are out of range or repeated for an operand of shape {x.shape}",
            "in op DOT_GENERAL",
            f"name each axis once at most, between 0 and {x.ndim - 1}",
        )


def _dot_general_jvp(primals: Any, tangents: Any, z: Any, **params: Any) -> Any:
    del z
    (x, y), (tx, ty) = primals, tangents
    left = None if tx is None else bind("DOT_GENERAL", tx, y, **params)
    right = None if ty is None else bind("DOT_GENERAL", x, ty, **params)
    return add_tangents(left, right)


def _dot_general_transpose(
    ct: Any, inputs: Any, *, dimension_numbers: tuple[Pairs, Pairs], algorithm: str
) -> tuple[Any, ...]:
    x, y = inputs
    (x_sum, y_sum), (x_batch, y_batch) = dimension_numbers
    if isinstance(x, Undefined):
        args = (ct, y, len(x.shape), x_sum, y_sum, x_batch, y_batch, algorithm, False)
        return _pull_dot(*args), None
    args = (ct, x, len(y.shape), y_sum, x_sum, y_batch, x_batch, algorithm, True)
    return None, _pull_dot(*args)


def _pull_dot(
    ct: Any,
    other: Any,
    ndim: int,
    own_sum: tuple[int, ...],
    other_sum: tuple[int, ...],
    own_batch: tuple[int, ...],
    other_batch: tuple[int, ...],
    algorithm: str,
    own_second: bool,
) -> Any:
    """Cotangent of one operand: the cotangent contracted with the other over its free axes."""
    own_free = _free_axes(ndim, own_sum, own_batch)
    other_free = _free_axes(np.ndim(other), other_sum, other_batch)
    stack = len(own_batch)
    at = stack if own_second else stack + len(own_free)
    spent = tuple(range(at, at + len(other_free)))
    numbers = ((spent, other_free), (tuple(range(stack)), other_batch))
    out = bind("DOT_GENERAL", ct, other, dimension_numbers=numbers, algorithm=algorithm)
    # out has axes: batch, own free, other's contracted axes in their order there
    by_other = sorted(range(len(other_sum)), key=lambda i: other_sum[i])
    order = (*own_batch, *own_free, *(own_sum[i] for i in by_other))
    return transpose(out, tuple(int(i) for i in np.argsort(np.asarray(order, np.int64))))


def _dot_general_batch(
    size: int,
    args: Any,
    batched: Any,
    *,
    dimension_numbers: tuple[Pairs, Pairs],
    algorithm: str,
) -> Any:
    del size
    (x, y), (x_flag, y_flag) = args, batched
    (x_sum, y_sum), (x_batch, y_batch) = dimension_numbers
    moved = [
        tuple(a + int(flag) for a in axes)
        for axes, flag in ((x_sum, x_flag), (y_sum, y_flag), (x_batch, x_flag), (y_batch, y_flag))
    ]
    x_sum, y_sum, x_batch, y_batch = moved
    if x_flag and y_flag:
        x_batch, y_batch = (0, *x_batch), (0, *y_batch)
    numbers = ((x_sum, y_sum), (x_batch, y_batch))
    out = bind("DOT_GENERAL", x, y, dimension_numbers=numbers, algorithm=algorithm)
    if x_flag and y_flag:
        return out, True
    # a shared operand: the batch axis is the first free axis of the other one
    at = len(x_batch)
    if y_flag:
        at += len(_free_axes(np.ndim(x), x_sum, x_batch))
    return transpose(out, (at, *(i for i in range(np.ndim(out)) if i != at))), True


define(
    Op(
        "DOT_GENERAL",
        _dot_general_spec,
        impl=kernels.dot_general,
        jvp=_dot_general_jvp,
        transpose=_dot_general_transpose,
        batch=_dot_general_batch,
        product=True,
        jax="rules:dot_general",
    )
)


def dot_general(x: Any, y: Any, dimension_numbers: Any, algorithm: str = "default") -> Any:
    """Product summed over paired axes: `jax.lax.dot_general`.

    Arguments: x, y; dimension_numbers = ((x_sum, y_sum), (x_batch, y_batch)), sequences of axes
    (negative ones count from the end); paired axes have equal extents. `algorithm` as in `matmul`.
    Returns the batch axes, then the free axes of x, then those of y.
    Raises ShapeError for axes that do not pair.
    """
    x, y = promote(x, y)
    ranks = (np.ndim(x), np.ndim(y))
    numbers = tuple(
        tuple(
            tuple(int(a) + n if a < 0 else int(a) for a in axes)
            for axes, n in zip(pair, ranks, strict=True)
        )
        for pair in dimension_numbers
    )
    return bind("DOT_GENERAL", x, y, dimension_numbers=numbers, algorithm=algorithm)
