"""Entries of triangles, diagonals and traces."""

from collections.abc import Iterable

from autodiff import ops
from catalogue.domain import COMPLEX, REAL
from catalogue.entry import Entry, Sample, Special, define
from catalogue.linalg import NAN, Rng, named


def _triangle_samples(rng: Rng) -> Iterable[Sample]:
    for k in (-2, 0, 1, 5):
        yield named(f"lower_k{k}", REAL.draw(rng, (3, 4)), k=k, lower=True)
    yield named("upper", REAL.draw(rng, (4, 3)), lower=False)
    yield named("upper_below", REAL.draw(rng, (2, 3, 3)), k=-1, lower=False)
    yield named("one", REAL.draw(rng, (1, 1)))
    yield named("no_rows", REAL.draw(rng, (0, 3)), tags=["empty"])
    yield named("no_stack", REAL.draw(rng, (0, 2, 2)), tags=["empty"])
    yield named("complex", COMPLEX.draw(rng, (2, 2)), tags=["complex"])
    yield named("integers", rng.integers(-5, 5, (3, 3)), k=-1, tags=["integer"])


define(
    Entry(
        "TRIANGLE",
        ops.triangle,
        _triangle_samples,
        specials=(
            Special(
                "unread_nan",
                ([[1.0, NAN], [2.0, 3.0]],),
                [[1.0, 0.0], [2.0, 3.0]],
                cotangent=[[1.0, 5.0], [2.0, 3.0]],
                gradients=([[1.0, 0.0], [2.0, 3.0]],),
            ),
        ),
    )
)


def _diagonal_samples(rng: Rng) -> Iterable[Sample]:
    yield named("square", REAL.draw(rng, (3, 3)))
    yield named("above", REAL.draw(rng, (3, 5)), offset=2)
    yield named("below", REAL.draw(rng, (4, 2)), offset=-1)
    yield named("outside", REAL.draw(rng, (2, 3)), offset=-2, tags=["empty"])
    yield named("axes", REAL.draw(rng, (2, 3, 2, 3)), axis1=0, axis2=-1)
    yield named("axes_swapped", REAL.draw(rng, (3, 2, 2)), offset=1, axis1=1, axis2=0)
    yield named("one", REAL.draw(rng, (1, 1)))
    yield named("empty", REAL.draw(rng, (0, 0)), tags=["empty"])
    yield named("no_stack", REAL.draw(rng, (0, 2, 2)), tags=["empty"])
    yield named("complex", COMPLEX.draw(rng, (2, 2)), tags=["complex"])
    yield named("integers", rng.integers(-5, 5, (3, 3)), tags=["integer"])


define(Entry("DIAGONAL", ops.diagonal, _diagonal_samples))
define(Entry("TRACE", ops.trace, _diagonal_samples, contracts=True))


def _diagonal_matrix_samples(rng: Rng) -> Iterable[Sample]:
    yield named("square", REAL.draw(rng, (3,)))
    yield named("above", REAL.draw(rng, (2, 2)), offset=1)
    yield named("below_wide", REAL.draw(rng, (2,)), offset=-1, shape=(3, 5))
    yield named("tall", REAL.draw(rng, (2, 1, 2)), shape=(4, 2))
    yield named("one", REAL.draw(rng, (1,)))
    yield named("empty", REAL.draw(rng, (0,)), tags=["empty"])
    yield named("no_stack", REAL.draw(rng, (0, 2)), tags=["empty"])
    yield named("complex", COMPLEX.draw(rng, (2,)), tags=["complex"])


define(Entry("DIAGONAL_MATRIX", ops.diagonal_matrix, _diagonal_matrix_samples))
