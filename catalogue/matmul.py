"""Entries of matrix products."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import COMPLEX, REAL
from catalogue.entry import Entry, Sample, Special, define
from catalogue.shape import marks

Rng = np.random.Generator
Row = tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]


def products(*rows: Row) -> Callable[[Rng], Iterable[Sample]]:
    """Samples of two operands: (name, shape, shape, arguments).

    Special values at the first row's shapes follow.
    """

    def samples(rng: Rng) -> Iterable[Sample]:
        for name, left, right, kwargs in rows:
            args = (REAL.draw(rng, left), REAL.draw(rng, right))
            yield Sample(name, args, kwargs, marks(left, right))
        _, left, right, kwargs = rows[0]
        z = (COMPLEX.draw(rng, left), COMPLEX.draw(rng, right))
        yield Sample("complex", z, kwargs, frozenset({"complex"}))
        mixed = (COMPLEX.draw(rng, left), REAL.draw(rng, right))
        yield Sample("complex_and_real", mixed, kwargs, frozenset({"complex"}))
        whole = (rng.integers(-9, 9, left), rng.integers(-9, 9, right))
        yield Sample("integer", whole, kwargs, frozenset({"integer"}))
        sparse = (np.where(rng.random(left) < 0.6, 0.0, 2.0), REAL.draw(rng, right))
        yield Sample("zeros", sparse, kwargs)
        scaled = (REAL.draw(rng, left) * 1e150, REAL.draw(rng, right) * 1e-150)
        yield Sample("magnitudes", scaled, kwargs, frozenset({"large"}))
        bad = REAL.draw(rng, left)
        bad.flat[:3] = (np.nan, np.inf, -np.inf)
        yield Sample("nonfinite", (bad, np.ones(right)), kwargs, frozenset({"nonfinite"}))

    return samples


define(
    Entry(
        "MATMUL",
        ops.matmul,
        products(
            ("matrices", (2, 3), (3, 4), {}),
            ("stacks", (2, 2, 3), (2, 3, 2), {}),
            ("shared_right", (2, 2, 3), (3, 4), {}),
            ("shared_left", (2, 3), (3, 3, 2), {}),
            ("broadcast_stacks", (2, 1, 2, 3), (3, 3, 1), {}),
            ("vector_left", (3,), (2, 3, 2), {}),
            ("vector_right", (2, 2, 3), (3,), {}),
            ("vectors", (4,), (4,), {}),
            ("f32", (2, 3), (3, 2), {"algorithm": "f32"}),
            ("one", (1, 1), (1, 1), {}),
            ("nothing_summed", (2, 0), (0, 3), {}),
            ("no_rows", (0, 2), (2, 3), {}),
            ("no_stack", (0, 2, 3), (3, 2), {}),
            ("square", (3, 3), (3, 3), {}),
        ),
        specials=(
            Special(
                "no_conjugation",
                ([[1j]], [[2.0 + 1j]]),
                [[-1.0 + 2j]],
                cotangent=[[1.0 + 0j]],
                gradients=([[2.0 + 1j]], [[1j]]),
            ),
        ),
        contracts=True,
    )
)
define(
    Entry(
        "DOT_GENERAL",
        ops.dot_general,
        products(
            ("matrix", (2, 3), (3, 4), {"dimension_numbers": (((1,), (0,)), ((), ()))}),
            ("batch", (2, 3, 2), (2, 2, 3), {"dimension_numbers": (((1,), (2,)), ((0,), (0,)))}),
            ("batch_inside", (3, 2), (4, 2), {"dimension_numbers": (((), ()), ((1,), (1,)))}),
            (
                "two_sums_crossed",
                (2, 3, 4),
                (4, 2, 2),
                {"dimension_numbers": (((0, 2), (2, 0)), ((), ()))},
            ),
            (
                "two_batches_crossed",
                (2, 3, 2),
                (3, 2, 2),
                {"dimension_numbers": (((2,), (2,)), ((0, 1), (1, 0)))},
            ),
            ("all_summed", (2, 3), (2, 3), {"dimension_numbers": (((0, 1), (0, 1)), ((), ()))}),
            ("outer", (2,), (3,), {"dimension_numbers": (((), ()), ((), ()))}),
            ("negative", (2, 3), (3, 4), {"dimension_numbers": (((-1,), (-2,)), ((), ()))}),
            ("scalars", (), (), {"dimension_numbers": (((), ()), ((), ()))}),
            (
                "f32",
                (2, 3),
                (2, 3),
                {"dimension_numbers": (((1,), (1,)), ((), ())), "algorithm": "f32"},
            ),
            ("nothing_summed", (2, 0), (0, 3), {"dimension_numbers": (((1,), (0,)), ((), ()))}),
            ("no_batch", (0, 2), (0, 2), {"dimension_numbers": (((1,), (1,)), ((0,), (0,)))}),
        ),
        contracts=True,
    )
)
