"""Entries of what is written in products."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import COMPLEX, REAL
from catalogue.entry import Entry, Sample, define
from catalogue.matmul import products
from catalogue.shape import marks

Rng = np.random.Generator

define(
    Entry(
        "DOT",
        ops.dot,
        products(
            ("matrices", (2, 3), (3, 4), {}),
            ("vectors", (4,), (4,), {}),
            ("matrix_vector", (2, 3), (3,), {}),
            ("stacks", (2, 2, 3), (2, 3, 2), {}),
            ("scalar", (), (2, 3), {}),
            ("f32", (2, 3), (3, 2), {"algorithm": "f32"}),
            ("one", (1,), (1,), {}),
            ("nothing_summed", (2, 0), (0, 3), {}),
        ),
        contracts=True,
    )
)
define(
    Entry(
        "OUTER",
        ops.outer,
        products(
            ("vectors", (3,), (4,), {}),
            ("flattened", (2, 2), (1, 3), {}),
            ("scalars", (), (2,), {}),
            ("empty", (0,), (3,), {}),
        ),
    )
)
define(
    Entry(
        "KRON",
        ops.kron,
        products(
            ("matrices", (2, 3), (2, 2), {}),
            ("vectors", (3,), (2,), {}),
            ("ranks", (2,), (2, 1, 3), {}),
            ("scalar", (), (2,), {}),
            ("empty", (0, 2), (2, 3), {}),
        ),
    )
)
define(
    Entry(
        "CROSS",
        ops.cross,
        products(
            ("rows", (2, 3), (2, 3), {}),
            ("vectors", (3,), (3,), {}),
            ("broadcast", (4, 3), (3,), {}),
            ("columns", (3, 2), (3, 2), {"axis": 0}),
            ("three_axes", (3, 2), (2, 3), {"axisa": 0, "axisb": 1, "axisc": 0}),
            ("empty", (0, 3), (3,), {}),
        ),
    )
)


def _einsum(*operands: Any, subscripts: str, algorithm: str = "default") -> Any:
    return ops.einsum(subscripts, *operands, algorithm=algorithm)


# name, subscripts, shapes
SUBSCRIPTS: tuple[tuple[str, str, tuple[tuple[int, ...], ...]], ...] = (
    ("matrix_product", "ij,jk->ik", ((2, 3), (3, 2))),
    ("batched", "bij,bjk->bik", ((2, 2, 3), (2, 3, 2))),
    ("transposed_result", "ij,kj->ki", ((2, 3), (4, 3))),
    ("implicit", "ba,cb", ((2, 3), (4, 2))),
    ("ellipsis", "...ij,...j->i...", ((2, 1, 2, 3), (3, 3))),
    ("trace", "ii", ((3, 3),)),
    ("diagonal", "jii->ij", ((2, 3, 3),)),
    ("triple", "iii->i", ((2, 2, 2),)),
    ("diagonal_of_both", "ii,ii->i", ((3, 3), (3, 3))),
    ("summed_alone", "ij,k->k", ((2, 3), (2,))),
    ("elementwise", "ij,ij->ij", ((2, 3), (2, 3))),
    ("extent_one", "ij,ij->j", ((1, 3), (2, 3))),
    ("outer", "i,j->ji", ((2,), (3,))),
    ("scalars", ",->", ((), ())),
    ("chain", "ij,jk,kl->il", ((2, 3), (3, 2), (2, 2))),
    ("shared_by_three", "bi,bi,b->b", ((2, 3), (2, 3), (2,))),
    ("empty", "ij,jk->ik", ((2, 0), (0, 2))),
)


def _einsums(rng: Rng) -> Iterable[Sample]:
    for name, subscripts, shapes in SUBSCRIPTS:
        args = tuple(REAL.draw(rng, s) for s in shapes)
        yield Sample(name, args, {"subscripts": subscripts}, marks(*shapes))
    args = (REAL.draw(rng, (2, 3)), REAL.draw(rng, (3, 2)))
    yield Sample("f32", args, {"subscripts": "ij,jk", "algorithm": "f32"})
    z = (COMPLEX.draw(rng, (2, 3)), COMPLEX.draw(rng, (3, 2)))
    yield Sample("complex", z, {"subscripts": "ij,jk->i"}, frozenset({"complex"}))
    whole = (rng.integers(-9, 9, (2, 3)), rng.integers(-9, 9, (3,)))
    yield Sample("integer", whole, {"subscripts": "ij,j"}, frozenset({"integer"}))
    bad = (np.array([[np.nan, 1.0], [np.inf, 2.0]]), np.ones(2))
    yield Sample("nonfinite", bad, {"subscripts": "ij,j->i"}, frozenset({"nonfinite"}))


define(Entry("EINSUM", _einsum, _einsums, contracts=True))
