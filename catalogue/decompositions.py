"""Entries of matrix decompositions."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import SPD, SYMMETRIC
from catalogue.entry import Entry, Sample, Special, define
from catalogue.linalg import NAN, Rng, named, regular

# --- CHOLESKY ------------------------------------------------------------------------------


def _cholesky_samples(rng: Rng) -> Iterable[Sample]:
    yield named("four", SPD.draw(rng, (4, 4)))
    yield named("stack", SPD.draw(rng, (2, 3, 3)))
    yield named("stack_of_stacks", SPD.draw(rng, (2, 1, 2, 2)))
    yield named("identity", np.eye(3))
    a = SPD.draw(rng, (3, 3))
    yield named("unread_triangle", a + np.triu(rng.normal(size=(3, 3)), 1))
    yield named("one", [[4.0]])
    yield named("empty", np.zeros((0, 0)), tags=["empty"])
    yield named("no_stack", np.zeros((0, 2, 2)), tags=["empty"])


define(
    Entry(
        "CHOLESKY",
        ops.cholesky,
        _cholesky_samples,
        domains=(SPD,),
        symmetric=(0,),
        contracts=True,
        specials=(
            Special("indefinite", ([[1.0, 2.0], [2.0, 1.0]],), [[NAN, 0.0], [NAN, NAN]]),
            Special("zero_pivot", ([[0.0]],), [[NAN]]),
            Special(
                "indefinite_in_stack",
                ([[[-1.0]], [[4.0]]],),
                [[[NAN]], [[2.0]]],
                cotangent=[[[1.0]], [[2.0]]],
                gradients=([[[NAN]], [[0.5]]],),
            ),
            Special("unread_nan", ([[4.0, NAN], [2.0, 2.0]],), [[2.0, 0.0], [1.0, 1.0]]),
            # differences along symmetric directions say nothing of how entries share a gradient
            Special(
                "symmetric_gradient",
                ([[4.0, 2.0], [2.0, 5.0]],),
                [[2.0, 0.0], [1.0, 2.0]],
                cotangent=[[1.0, 0.0], [1.0, 1.0]],
                gradients=([[0.1875, 0.125], [0.125, 0.25]],),
            ),
        ),
    )
)

# --- LU and QR -----------------------------------------------------------------------------


def _rectangular_samples(rng: Rng) -> Iterable[Sample]:
    yield named("square", regular(rng, 3, 3))
    yield named("tall", regular(rng, 4, 2))
    yield named("wide", regular(rng, 2, 4))
    yield named("stack", regular(rng, 2, 3, 2))
    yield named("stack_of_stacks", regular(rng, 2, 1, 2, 2))
    yield named("column", [[3.0], [-4.0]])
    yield named("row", [[3.0, -4.0]])
    yield named("one", [[-2.0]])
    yield named("empty", np.zeros((0, 0)), tags=["empty"])
    yield named("no_columns", np.zeros((3, 0)), tags=["empty"])
    yield named("no_rows", np.zeros((0, 2)), tags=["empty"])
    yield named("no_stack", np.zeros((0, 3, 2)), tags=["empty"])


define(Entry("LU", ops.lu, _rectangular_samples, contracts=True))
define(Entry("QR", ops.qr, _rectangular_samples, contracts=True))

# --- EIGH and EIGVALSH ---------------------------------------------------------------------


def projected(v: Any) -> Any:
    """v diag(1, 2, ...) v^T: what is left of vectors (in columns) without their signs."""
    weights = np.arange(1, np.shape(v)[-1] + 1).astype(v.dtype)
    axes = (*range(np.ndim(v) - 2), np.ndim(v) - 1, np.ndim(v) - 2)
    return ops.matmul(v * weights, ops.transpose(v, axes))


def _eigh_gauge(outputs: Any) -> Any:
    w, v = outputs
    return w, projected(v)


def _symmetric_samples(rng: Rng) -> Iterable[Sample]:
    yield named("four", SYMMETRIC.draw(rng, (4, 4)))
    yield named("definite", SPD.draw(rng, (3, 3)))
    yield named("stack", SYMMETRIC.draw(rng, (2, 3, 3)))
    yield named("stack_of_stacks", SYMMETRIC.draw(rng, (2, 1, 2, 2)))
    yield named("diagonal", np.diag([3.0, -1.0, 0.0]))
    yield named("equal_magnitudes", [[2.0, -1.0], [-1.0, 2.0]])
    a = SYMMETRIC.draw(rng, (3, 3))
    yield named("unread_triangle", a + np.triu(rng.normal(size=(3, 3)), 1))
    yield named("one", [[-2.0]])
    yield named("empty", np.zeros((0, 0)), tags=["empty"])
    yield named("no_stack", np.zeros((0, 2, 2)), tags=["empty"])


define(
    Entry(
        "EIGH",
        ops.eigh,
        _symmetric_samples,
        domains=(SYMMETRIC,),
        gauge=_eigh_gauge,
        symmetric=(0,),
        contracts=True,
        specials=(
            Special(
                "symmetric_gradient",
                (np.diag([1.0, 3.0]),),
                ([1.0, 3.0], np.eye(2)),
                cotangent=(np.array([1.0, 0.0]), np.array([[0.0, 1.0], [0.0, 0.0]])),
                gradients=([[1.0, 0.25], [0.25, 0.0]],),
            ),
        ),
    )
)
define(
    Entry(
        "EIGVALSH",
        ops.eigvalsh,
        _symmetric_samples,
        domains=(SYMMETRIC,),
        symmetric=(0,),
        contracts=True,
        specials=(
            # of equal eigenvalues only symmetric functions have a derivative: that of the trace
            Special(
                "equal_eigenvalues",
                (2.0 * np.eye(3),),
                [2.0, 2.0, 2.0],
                cotangent=[3.0, 3.0, 3.0],
                gradients=(3.0 * np.eye(3),),
            ),
            Special("nan", ([[NAN, 0.0], [0.0, 1.0]],), [NAN, NAN]),
            Special("unread_nan", ([[1.0, NAN], [0.0, 2.0]],), [1.0, 2.0]),
        ),
    )
)

# --- SVD -----------------------------------------------------------------------------------


def _svd_gauge(outputs: Any) -> Any:
    u, s, vh = outputs
    weights = np.arange(1, np.shape(s)[-1] + 1).astype(s.dtype)
    axes = (*range(np.ndim(vh) - 2), np.ndim(vh) - 1, np.ndim(vh) - 2)
    return projected(u), s, projected(ops.transpose(vh, axes)), ops.matmul(u * weights, vh)


define(
    Entry(
        "SVD",
        ops.svd,
        _rectangular_samples,
        gauge=_svd_gauge,
        contracts=True,
        specials=(
            # gauge free: the sum of singular values is smooth here, with gradient u @ vh
            Special(
                "equal_values",
                (2.0 * np.eye(2),),
                cotangent=(None, np.ones(2), None),
                gradients=(np.eye(2),),
            ),
        ),
    )
)
