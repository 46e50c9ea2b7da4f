"""What is written in products: DOT, EINSUM, OUTER, KRON and CROSS."""

import itertools
import math
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import broadcast_shapes, composite, promote
from autodiff.ops.arrange import roll
from autodiff.ops.matmul import dot_general
from autodiff.ops.shape import broadcast_to, normal_axes, reshape, slice_, transpose
from autodiff.program import Spec
from autodiff.trace import bind

__all__ = ["cross", "dot", "einsum", "kron", "outer"]

# --- DOT -----------------------------------------------------------------------------------


def _dot_numbers(x_ndim: int, y_ndim: int) -> Any:
    return (((x_ndim - 1,), (max(y_ndim - 2, 0),)), ((), ()))


def _dot_spec(x: Spec, y: Spec, *, algorithm: str) -> Spec:
    del algorithm
    if not x.ndim or not y.ndim or x.shape[-1] != y.shape[max(y.ndim - 2, 0)]:
        raise ShapeError(
            f"cannot take the dot product of {x} and {y}",
            "in op DOT",
            "the last axis of x must match the last but one of y (the only one of a vector)",
        )
    rest = y.shape[:-2] + y.shape[-1:] if y.ndim > 1 else ()
    return x.with_shape(x.shape[:-1] + rest)


def _dot_body(x: Any, y: Any, *, algorithm: str) -> Any:
    return dot_general(x, y, _dot_numbers(np.ndim(x), np.ndim(y)), algorithm)


composite("DOT", _dot_body, spec=_dot_spec)


def dot(x: Any, y: Any, algorithm: str = "default") -> Any:
    """`np.dot`: sum over the last axis of x and the last but one of y (the only one of a vector).

    Arguments: x of shape (..., k), y of shape (k,) or (..., k, n), or a 0-d operand, which
    multiplies; dtypes are promoted; `algorithm` as in `matmul`.
    Returns shape x.shape[:-1] + y.shape[:-2] + (n,). Raises ShapeError for shapes that do not fit.
    """
    x, y = promote(x, y)
    if np.ndim(x) == 0 or np.ndim(y) == 0:
        return x * y
    return bind("DOT", x, y, algorithm=algorithm)


# --- EINSUM --------------------------------------------------------------------------------


def _parse(subscripts: str, shapes: Sequence[tuple[int, ...]]) -> tuple[list[str], str]:
    """Labels of each operand and of the result, ellipses written out in labels of their own."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise _subscript_error(subscripts, f"names {len(terms)} operands, {len(shapes)} are given")
    unused = [c for c in reversed(string.ascii_letters) if c not in text]
    ranks = [len(s) - len(t.replace("...", "")) for t, s in zip(terms, shapes, strict=True)]
    if any(r < 0 or (r and "..." not in t) for r, t in zip(ranks, terms, strict=True)):
        raise _subscript_error(subscripts, f"does not fit operands of shapes {list(shapes)}")
    width = max(r for r, t in zip(ranks, terms, strict=True))
    dots = "".join(unused[:width])
    labels = [t.replace("...", dots[width - r :]) for t, r in zip(terms, ranks, strict=True)]
    named = "".join(labels)
    if not arrow:
        once = sorted(c for c in set(named) if named.count(c) == 1 and c not in dots)
        right = "..." + "".join(once)
    out = right.replace("...", dots)
    letters = all(c in string.ascii_letters for c in named + out)
    if not letters or len(set(out)) != len(out) or not set(out) <= set(named):
        raise _subscript_error(subscripts, "repeats or invents a label in its result")
    return labels, out


def _subscript_error(subscripts: str, why: str) -> ShapeError:
    return ShapeError(
        f"einsum subscripts {subscripts!r}: {why}",
        "in op EINSUM",
        "write one letter per axis, e.g. 'bij,bjk->bik', and ... for leading axes",
    )


def _extents(labels: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """Extent of every label; an axis of extent 1 broadcasts."""
    sizes: dict[str, int] = {}
    for term, shape in zip(labels, shapes, strict=True):
        for i, (c, n) in enumerate(zip(term, shape, strict=True)):
            if n != sizes.get(c, n) and 1 not in (n, sizes[c]):
                raise ShapeError(
                    f"einsum label {c!r} has extents {sizes[c]} and {n}",
                    f"in op EINSUM, operands {', '.join(map(str, shapes))}",
                    "axes of one label need one extent",
                )
            if c in term[:i] and shape[term.index(c)] != n:
                raise ShapeError(
                    f"einsum takes a diagonal of unequal extents {shape[term.index(c)]} and {n}",
                    f"in op EINSUM, label {c!r} of shape {shape}",
                    "repeat a label only on axes of one extent",
                )
            sizes[c] = n if sizes.get(c, 1) == 1 else sizes[c]
    return sizes


def _split_subscripts(subscripts: str) -> tuple[list[str], str]:
    left, _, out = subscripts.partition("->")
    return left.split(","), out


def _einsum_spec(*xs: Spec, subscripts: str, path: Any, algorithm: str) -> Spec:
    del path, algorithm
    labels, out = _split_subscripts(subscripts)
    sizes = _extents(labels, [x.shape for x in xs])
    return xs[0].with_shape(tuple(sizes[c] for c in out))


def _einsum_body(*xs: Any, subscripts: str, path: Any, algorithm: str) -> Any:
    labels, out = _split_subscripts(subscripts)
    sizes = _extents(labels, [np.shape(x) for x in xs])
    terms = [_plain(x, term, sizes) for x, term in zip(xs, labels, strict=True)]
    for step in path:
        chosen = [terms[i] for i in step]
        terms = [t for i, t in enumerate(terms) if i not in step]
        x, term = chosen[0]
        for i, (y, other) in enumerate(chosen[1:], 2):
            later = [t for _, t in (*terms, *chosen[i:])]
            x, term = _pair(x, term, y, other, {*out, *"".join(later)}, algorithm)
        terms.append((x, term))
    ((x, term),) = terms
    x, term = _summed(x, term, set(out))
    return transpose(x, tuple(term.index(c) for c in out))


def _plain(x: Any, term: str, sizes: dict[str, int]) -> tuple[Any, str]:
    """An operand with diagonals taken for repeated labels and broadcast axes dropped."""
    for c in sorted(set(term)):
        while term.count(c) > 1:
            i = term.index(c)
            j = term.index(c, i + 1)
            x = diagonal_last(x, i, j)
            term = "".join(t for k, t in enumerate(term) if k not in (i, j)) + c
    kept = [k for k, c in enumerate(term) if np.shape(x)[k] == sizes[c]]
    x = reshape(x, tuple(np.shape(x)[k] for k in kept))
    return x, "".join(term[k] for k in kept)


def diagonal_last(x: Any, i: int, j: int) -> Any:
    """The diagonal of two axes of one extent n, as the last axis: every (n + 1)-th element."""
    shape = np.shape(x)
    n = shape[i]
    rest = [k for k in range(len(shape)) if k not in (i, j)]
    lead = tuple(shape[k] for k in rest)
    flat = reshape(transpose(x, (*rest, i, j)), (*lead, n * n))
    zero, one = (0,) * len(lead), (1,) * len(lead)
    return slice_(flat, (*zero, 0), (*lead, n * n), (*one, n + 1))


def _summed(x: Any, term: str, keep: set[str]) -> tuple[Any, str]:
    """Labels that nothing else needs summed away."""
    axes = tuple(k for k, c in enumerate(term) if c not in keep)
    if axes:
        x = bind("SUM", x, axis=axes, keepdims=False)
    return x, "".join(c for c in term if c in keep)


def _pair(
    x: Any, x_term: str, y: Any, y_term: str, keep: set[str], algorithm: str
) -> tuple[Any, str]:
    """Contract two operands over the labels they share and nothing else needs."""
    x, x_term = _summed(x, x_term, keep | set(y_term))
    y, y_term = _summed(y, y_term, keep | set(x_term))
    both = [c for c in x_term if c in y_term]
    spent, stack = [c for c in both if c not in keep], [c for c in both if c in keep]
    x_free = [c for c in x_term if c not in both]
    y_free = [c for c in y_term if c not in both]
    result = "".join((*stack, *x_free, *y_free))
    if spent:
        sums = tuple(tuple(t.index(c) for c in spent) for t in (x_term, y_term))
        batch = tuple(tuple(t.index(c) for c in stack) for t in (x_term, y_term))
        return dot_general(x, y, (sums, batch), algorithm), result
    x = transpose(x, tuple(x_term.index(c) for c in (*stack, *x_free)))
    y = transpose(y, tuple(y_term.index(c) for c in (*stack, *y_free)))
    x = reshape(x, np.shape(x) + (1,) * len(y_free))
    n = len(stack)
    y = reshape(y, np.shape(y)[:n] + (1,) * len(x_free) + np.shape(y)[n:])
    return x * y, result


composite("EINSUM", _einsum_body, spec=_einsum_spec)


def einsum(subscripts: str, *operands: Any, algorithm: str = "default") -> Any:
    """Sum of products over labelled axes, as `np.einsum`.

    Labels that the result does not name are summed; a label repeated within an operand takes the
    diagonal; `...` stands for leading axes that broadcast; without "->" the result has the labels
    that occur once, in alphabetical order. Several operands are contracted in the order of
    `np.einsum_path`; sums over a shared label are DOT_GENERAL.

    Arguments: subscripts, e.g. "bij,bjk->bik"; operands, whose dtypes are promoted; `algorithm` as
    in `matmul`. Raises ShapeError for subscripts that do not fit.
    """
    if not operands:
        raise _subscript_error(subscripts, "needs operands")
    xs = promote(*operands)
    shapes = [np.shape(x) for x in xs]
    labels, out = _parse(subscripts, shapes)
    _extents(labels, shapes)
    full = f"{','.join(labels)}->{out}"
    return bind("EINSUM", *xs, subscripts=full, path=_path(full, shapes), algorithm=algorithm)


def _path(subscripts: str, shapes: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    if len(shapes) < 3:
        return (tuple(range(len(shapes))),)
    models = [np.broadcast_to(np.zeros(()), s) for s in shapes]
    steps = np.einsum_path(subscripts, *models, optimize="greedy")[0][1:]
    return tuple(tuple(int(i) for i in step) for step in steps)


# --- OUTER, KRON and CROSS -----------------------------------------------------------------


def _outer_spec(x: Spec, y: Spec) -> Spec:
    return x.with_shape((x.size, y.size))


def _outer_body(x: Any, y: Any) -> Any:
    return reshape(x, (math.prod(np.shape(x)), 1)) * reshape(y, (1, math.prod(np.shape(y))))


def _kron_spec(x: Spec, y: Spec) -> Spec:
    rank = max(x.ndim, y.ndim)
    pairs = zip(_padded(x.shape, rank), _padded(y.shape, rank), strict=True)
    return x.with_shape(tuple(m * n for m, n in pairs))


def _padded(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + shape


def _kron_body(x: Any, y: Any) -> Any:
    rank = max(np.ndim(x), np.ndim(y))
    xs, ys = _padded(np.shape(x), rank), _padded(np.shape(y), rank)
    left = reshape(x, tuple(itertools.chain(*((m, 1) for m in xs))))
    right = reshape(y, tuple(itertools.chain(*((1, n) for n in ys))))
    return reshape(left * right, tuple(m * n for m, n in zip(xs, ys, strict=True)))


def _cross_spec(x: Spec, y: Spec) -> Spec:
    if x.shape[-1:] != (3,) or y.shape[-1:] != (3,):
        raise ShapeError(
            f"cross products are of vectors of 3, got {x} and {y}",
            "in op CROSS",
            "move the axis of the components with axisa=, axisb=, axisc= or axis=",
        )
    return x.with_shape(broadcast_shapes("CROSS", x, y))


def _cross_body(x: Any, y: Any) -> Any:
    shape = np.broadcast_shapes(np.shape(x), np.shape(y))
    last = len(shape) - 1
    x, y = broadcast_to(x, shape), broadcast_to(y, shape)
    return roll(x, -1, last) * roll(y, -2, last) - roll(x, -2, last) * roll(y, -1, last)


composite("OUTER", _outer_body, spec=_outer_spec)
composite("KRON", _kron_body, spec=_kron_spec)
composite("CROSS", _cross_body, spec=_cross_spec)


def outer(x: Any, y: Any) -> Any:
    """Products x_i y_j of all elements, both flattened: shape (x.size, y.size)."""
    return bind("OUTER", *promote(x, y))


def kron(x: Any, y: Any) -> Any:
    """Kronecker product: blocks x_ij y; the operand of lower rank gets leading axes."""
    return bind("KRON", *promote(x, y))


def cross(
    x: Any, y: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Any:
    """Cross product (x_2 y_3 - x_3 y_2, x_3 y_1 - x_1 y_3, x_1 y_2 - x_2 y_1) along an axis of 3.

    Arguments: axisa, axisb, axisc: the components' axis of x, y and the result; axis sets all.
    Other axes broadcast. Raises ShapeError for vectors that do not have 3 components.
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = promote(x, y)
    z = bind("CROSS", _component_last(x, axisa), _component_last(y, axisb))
    (place,) = normal_axes(axisc, np.ndim(z))
    order = list(range(np.ndim(z) - 1))
    order.insert(place, np.ndim(z) - 1)
    return transpose(z, tuple(order))


def _component_last(x: Any, axis: int) -> Any:
    (place,) = normal_axes(axis, np.ndim(x))
    return transpose(x, (*(i for i in range(np.ndim(x)) if i != place), place))
