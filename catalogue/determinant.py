"""Entries of determinants."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from autodiff import ops
from catalogue.entry import Entry, Sample, Special, define
from catalogue.linalg import NAN, Rng, complex_matrix, named, regular


def _rank(rng: Rng, n: int, rank: int) -> np.ndarray:
    """An n x n matrix of a lower rank."""
    return np.asarray(regular(rng, n, rank) @ regular(rng, rank, n))


def _det_samples(rng: Rng) -> Iterable[Sample]:
    yield named("four", regular(rng, 4, 4))
    yield named("stack", regular(rng, 2, 3, 3))
    yield named("stack_of_stacks", regular(rng, 2, 1, 2, 2))
    yield named("identity", np.eye(3))
    yield named("permutation", [[0.0, 1.0], [1.0, 0.0]])
    # tensorflow/tensorflow#119477: the gradient is the matrix of cofactors at any rank
    yield named("singular", [[1.0, 2.0], [2.0, 4.0]])
    yield named("rank_n_minus_1", _rank(rng, 4, 3))
    yield named("rank_n_minus_2", _rank(rng, 4, 2))
    yield named("zeros", np.zeros((4, 4)))
    yield named("one", [[-2.5]])
    yield named("one_zero", [[0.0]])
    yield named("empty", np.zeros((0, 0)), tags=["empty"])
    yield named("no_stack", np.zeros((0, 2, 2)), tags=["empty"])
    yield named("complex", complex_matrix(rng, 3, 3), tags=["complex"])


define(
    Entry(
        "DET",
        ops.det,
        _det_samples,
        contracts=True,
        specials=(
            Special("empty_is_one", (np.zeros((0, 0)),), 1.0),
            Special(
                "zero_cofactors",
                (np.zeros((3, 3)),),
                0.0,
                cotangent=2.0,
                gradients=(np.zeros((3, 3)),),
            ),
            Special("nan", ([[NAN, 1.0], [1.0, 2.0]],), NAN),
        ),
    )
)


define(Entry("COFACTOR", ops.cofactor, _det_samples, contracts=True))


def _tangent_samples(rng: Rng) -> Iterable[Sample]:
    for count, n, rank in ((1, 3, 2), (1, 4, 4), (2, 4, 3), (2, 3, 1), (3, 4, 2)):
        directions = rng.normal(size=(count, n, n))
        yield named(f"along_{count}_n{n}_rank{rank}", _rank(rng, n, rank), *directions)
    yield named("two", *rng.normal(size=(2, 2, 2)))
    yield named("stack", *rng.normal(size=(2, 2, 3, 3)))
    # along a direction alone the values are round-off at the zero matrix: nothing to divide by
    zero_matrix = named("zero_matrix", np.zeros((4, 4)), *rng.normal(size=(2, 4, 4)))
    yield dataclasses.replace(zero_matrix, argnums=(0,))
    yield named("zero_direction", regular(rng, 3, 3), np.zeros((3, 3)), np.eye(3))
    yield named("one", [[2.0]], [[3.0]])
    yield named("empty", np.zeros((0, 0)), np.zeros((0, 0)), tags=["empty"])
    a = complex_matrix(rng, 3, 3)
    yield named("complex", a, complex_matrix(rng, 3, 3), tags=["complex"])


define(Entry("COFACTOR_TANGENT", ops.cofactor_tangent, _tangent_samples, contracts=True))


def _slogdet_samples(rng: Rng) -> Iterable[Sample]:
    yield named("four", regular(rng, 4, 4))
    yield named("stack", regular(rng, 2, 3, 3))
    yield named("negative", [[0.0, 1.0], [1.0, 0.5]])
    yield named("one", [[-2.5]])
    yield named("empty", np.zeros((0, 0)), tags=["empty"])
    yield named("no_stack", np.zeros((0, 2, 2)), tags=["empty"])
    yield named("large", 1e200 * regular(rng, 3, 3), tags=["large"])
    yield named("tiny", 1e-200 * regular(rng, 3, 3), tags=["tiny"])


define(Entry("SLOGDET", ops.slogdet, _slogdet_samples, contracts=True))
