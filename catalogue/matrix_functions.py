"""Entries of matrix functions."""

from collections.abc import Iterable

import numpy as np

from autodiff import ops
from catalogue.domain import REAL
from catalogue.entry import Entry, Sample, Special, define
from catalogue.linalg import NAN, Rng, complex_matrix, named, regular

# --- EXPM ----------------------------------------------------------------------------------


def _expm_samples(rng: Rng) -> Iterable[Sample]:
    yield named("four", 0.5 * rng.normal(size=(4, 4)))
    yield named("stack", rng.normal(size=(2, 3, 3)))
    yield named("squarings", [[1.0, 6.0], [-7.0, 0.5]])
    yield named("zeros", np.zeros((3, 3)))
    # Theano/Theano#6379: repeated eigenvalues other than 0 and 1, and a defective matrix
    yield named("multiple_of_identity", 1.5 * np.eye(3))
    yield named("defective", [[2.0, 1.0], [0.0, 2.0]])
    yield named("nilpotent", [[0.0, 1.0, 2.0], [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]])
    yield named("mixed_norms", np.stack([1e-8 * np.eye(2), regular(rng, 2, 2, high=9.0)]))
    yield named("one", [[-1.5]])
    yield named("empty", np.zeros((0, 0)), tags=["empty"])
    yield named("no_stack", np.zeros((0, 2, 2)), tags=["empty"])
    yield named("complex", complex_matrix(rng, 2, 2), tags=["complex"])


define(
    Entry(
        "EXPM",
        ops.expm,
        _expm_samples,
        contracts=True,
        specials=(
            Special("nan", ([[NAN, 0.0], [0.0, 1.0]],), [[NAN, NAN], [NAN, NAN]]),
            Special("zeros_give_identity", (np.zeros((2, 2)),), np.eye(2)),
        ),
    )
)


def _frechet_samples(rng: Rng) -> Iterable[Sample]:
    for sample in _expm_samples(rng):
        (a,) = sample.args
        t = rng.normal(size=a.shape) + (1j * rng.normal(size=a.shape) if a.dtype.kind == "c" else 0)
        yield Sample(sample.name, (a, t), {}, sample.tags)
    a = rng.normal(size=(2, 2))
    yield named("large_direction", a, 1e200 * rng.normal(size=(2, 2)), tags=["large"])
    yield named("tiny_direction", a, 1e-200 * rng.normal(size=(2, 2)), tags=["tiny"])
    yield named("zero_direction", a, np.zeros((2, 2)))


define(Entry("EXPM_FRECHET", ops.expm_frechet, _frechet_samples, contracts=True))

# --- MATRIX_POWER --------------------------------------------------------------------------


def _power_samples(rng: Rng) -> Iterable[Sample]:
    a = regular(rng, 3, 3)
    for n in (0, 1, 2, 3, 6, -1, -2):
        yield named(f"power_{n}".replace("-", "minus_"), a, n=n)
    yield named("stack", regular(rng, 2, 2, 2), n=5)
    yield named("singular", [[1.0, 2.0], [2.0, 4.0]], n=3)
    yield named("empty", np.zeros((0, 0)), n=2, tags=["empty"])
    yield named("complex", complex_matrix(rng, 2, 2), n=-3, tags=["complex"])
    yield named("integers", rng.integers(-3, 3, (2, 2)), n=3, tags=["integer"])


define(Entry("MATRIX_POWER", ops.matrix_power, _power_samples, contracts=True))

# --- PINV and LSTSQ ------------------------------------------------------------------------


def _pinv_samples(rng: Rng) -> Iterable[Sample]:
    yield named("square", regular(rng, 3, 3))
    yield named("tall", regular(rng, 4, 2))
    yield named("wide", regular(rng, 2, 4))
    yield named("stack", regular(rng, 2, 3, 2))
    yield named("one", [[0.5]])
    yield named("empty", np.zeros((0, 0)), tags=["empty"])
    yield named("no_columns", np.zeros((3, 0)), tags=["empty"])
    yield named("no_stack", np.zeros((0, 3, 2)), tags=["empty"])
    # the rank changes at every neighbour: only the derivative along that rank exists
    yield named("deficient", np.outer([1.0, 2.0, -1.0], [2.0, 0.5]), tags=["singular"])


define(
    Entry(
        "PINV",
        ops.pinv,
        _pinv_samples,
        contracts=True,
        specials=(Special("zeros", (np.zeros((2, 3)),), np.zeros((3, 2))),),
    )
)


def _lstsq_samples(rng: Rng) -> Iterable[Sample]:
    yield named("tall", regular(rng, 5, 2), rng.normal(size=(5, 2)))
    yield named("vector", regular(rng, 4, 3), rng.normal(size=4))
    yield named("wide", regular(rng, 2, 4), rng.normal(size=2))
    yield named("stack", regular(rng, 2, 3, 2), rng.normal(size=(2, 3, 1)))
    yield named("one", [[2.0]], [[3.0]])
    yield named("empty", np.zeros((0, 0)), np.zeros(0), tags=["empty"])
    yield named("no_stack", np.zeros((0, 3, 2)), np.zeros((0, 3, 1)), tags=["empty"])


define(Entry("LSTSQ", ops.lstsq, _lstsq_samples, contracts=True))

# --- MATRIX_NORM ---------------------------------------------------------------------------


def _norm_samples(rng: Rng) -> Iterable[Sample]:
    a = regular(rng, 3, 4)
    for ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        yield named(f"ord_{ord}", a, ord=ord)
    yield named("stack", regular(rng, 2, 2, 3), ord=2)
    yield named("one", [[-2.0]], ord="nuc")
    yield named("empty", np.zeros((0, 0)), tags=["empty"])
    yield named("zeros", np.zeros((2, 2)), tags=["kink"])
    yield named("tie", np.eye(2), ord=1, tags=["tie"])
    yield named("large", 1e200 * REAL.draw(rng, (2, 2)), tags=["large"])


define(Entry("MATRIX_NORM", ops.matrix_norm, _norm_samples, contracts=True))
