"""Entries of linear systems and inverses."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import COMPLEX
from catalogue.entry import Entry, Sample, Special, define

Rng = np.random.Generator
Array = np.ndarray[Any, Any]
NAN = float("nan")


def regular(rng: Rng, *shape: int, low: float = 0.8, high: float = 2.0) -> Array:
    """Matrices with singular values spread evenly between two bounds."""
    *lead, m, n = shape
    k = min(m, n)
    left = np.linalg.qr(rng.normal(size=(*lead, m, k)))[0]
    right = np.linalg.qr(rng.normal(size=(*lead, n, k)))[0]
    return np.asarray((left * np.linspace(low, high, k)) @ np.swapaxes(right, -1, -2))


def complex_matrix(rng: Rng, *shape: int) -> Array:
    """Complex matrices well away from singular ones."""
    return regular(rng, *shape) + 0.4j * regular(rng, *shape)


def named(name: str, *args: Any, tags: Iterable[str] = (), **kwargs: Any) -> Sample:
    """A sample of positional arrays and static keywords."""
    return Sample(name, tuple(np.asarray(a) for a in args), kwargs, frozenset(tags))


# --- TRIANGULAR_SOLVE ----------------------------------------------------------------------


def _with_triangle(rng: Rng, *shape: int) -> Array:
    """Matrices both triangles of which are well conditioned; what is not read is junk."""
    n = shape[-1]
    return np.asarray(0.4 * rng.normal(size=shape) + np.diag(np.linspace(1.0, 2.0, n)))


def _triangular_samples(rng: Rng) -> Iterable[Sample]:
    a, b = _with_triangle(rng, 4, 4), rng.normal(size=(4, 3))
    for lower in (True, False):
        for trans in (0, 1):
            name = f"{'lower' if lower else 'upper'}_{'transposed' if trans else 'plain'}"
            yield named(name, a, b, lower=lower, trans=trans)
    unit: dict[str, Any] = {"lower": True, "unit_diagonal": True}
    yield named("unit_diagonal", a + 3 * np.eye(4), b, **unit)
    yield named("unit_zero_diagonal", a * (1 - np.eye(4)), b[:, :1], trans="T", **unit)
    yield named("vector", a, b[:, 0])
    yield named("stack", _with_triangle(rng, 2, 3, 3), rng.normal(size=(2, 3, 2)), lower=True)
    yield named("stack_broadcast", _with_triangle(rng, 2, 2), rng.normal(size=(3, 2, 1)), trans=1)
    yield named("one", [[2.0]], [[3.0, -1.0]])
    yield named("empty", np.zeros((0, 0)), np.zeros((0, 2)), tags=["empty"])
    yield named("no_columns", a, np.zeros((4, 0)), tags=["empty"])
    yield named("no_stack", np.zeros((0, 2, 2)), np.zeros((0, 2, 1)), tags=["empty"])
    c = _with_triangle(rng, 3, 3) + 0.3j * rng.normal(size=(3, 3))
    yield named("complex", c, COMPLEX.draw(rng, (3, 2)), lower=True, tags=["complex"])
    yield named("complex_adjoint", c, COMPLEX.draw(rng, (3,)), trans="C", tags=["complex"])


define(
    Entry(
        "TRIANGULAR_SOLVE",
        ops.triangular_solve,
        _triangular_samples,
        contracts=True,
        specials=(
            # pymc-devs/pytensor#1230: what is not read has slope 0, also where it is NaN
            Special(
                "unread_nan",
                ([[NAN, NAN], [3.0, NAN]], [1.0, 2.0]),
                [1.0, -1.0],
                kwargs={"lower": True, "unit_diagonal": True},
                cotangent=[2.0, -1.0],
                gradients=([[0.0, 0.0], [1.0, 0.0]], [5.0, -1.0]),
            ),
            Special(
                "zero_pivot",
                ([[0.0, 0.0], [1.0, 1.0]], [1.0, 2.0]),
                [float("inf"), float("-inf")],
                kwargs={"lower": True},
            ),
        ),
    )
)

# --- SOLVE and INV -------------------------------------------------------------------------


def _solve_samples(rng: Rng) -> Iterable[Sample]:
    a = regular(rng, 4, 4)
    yield named("matrix", a, rng.normal(size=(4, 2)))
    yield named("vector", a, rng.normal(size=4))
    yield named("row_exchange", [[0.0, 2.0], [1.0, 1.0]], [1.0, -2.0])
    yield named("stack", regular(rng, 2, 2, 2), rng.normal(size=(2, 2, 3)))
    yield named("stack_vector", regular(rng, 2, 3, 3), rng.normal(size=3))
    yield named("stack_broadcast", regular(rng, 2, 1, 2, 2), rng.normal(size=(3, 2, 1)))
    yield named("one", [[0.5]], [3.0])
    yield named("empty", np.zeros((0, 0)), np.zeros(0), tags=["empty"])
    yield named("no_columns", a, np.zeros((4, 0)), tags=["empty"])
    yield named("no_stack", np.zeros((0, 2, 2)), np.zeros((0, 2, 1)), tags=["empty"])
    yield named("tiny", 1e-30 * a, rng.normal(size=4), tags=["tiny"])
    yield named("complex", complex_matrix(rng, 3, 3), COMPLEX.draw(rng, (3, 2)), tags=["complex"])
    yield named("square", regular(rng, 3, 3), rng.normal(size=(3, 3)))


define(
    Entry(
        "SOLVE",
        ops.solve,
        _solve_samples,
        contracts=True,
        specials=(
            Special("singular", ([[1.0, 2.0], [2.0, 4.0]], [1.0, 1.0]), [NAN, NAN]),
            Special(
                "singular_in_stack",
                ([[[0.0]], [[2.0]]], [[[1.0]], [[1.0]]]),
                [[[NAN]], [[0.5]]],
                cotangent=[[[1.0]], [[2.0]]],
                gradients=([[[NAN]], [[-0.5]]], [[[NAN]], [[1.0]]]),
            ),
        ),
    )
)


def _square_samples(rng: Rng) -> Iterable[Sample]:
    yield named("four", regular(rng, 4, 4))
    yield named("stack", regular(rng, 2, 3, 3))
    yield named("stack_of_stacks", regular(rng, 2, 1, 2, 2))
    yield named("permutation", [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    yield named("repeated_values", 2.0 * np.eye(3))
    yield named("defective", [[2.0, 1.0], [0.0, 2.0]])
    yield named("one", [[-2.5]])
    yield named("empty", np.zeros((0, 0)), tags=["empty"])
    yield named("no_stack", np.zeros((0, 2, 2)), tags=["empty"])
    yield named("complex", complex_matrix(rng, 3, 3), tags=["complex"])


define(
    Entry(
        "INV",
        ops.inv,
        _square_samples,
        contracts=True,
        specials=(
            Special("singular", ([[1.0, 2.0], [2.0, 4.0]],), [[NAN, NAN], [NAN, NAN]]),
            Special("singular_in_stack", ([[[0.0]], [[4.0]]],), [[[NAN]], [[0.25]]]),
        ),
    )
)
