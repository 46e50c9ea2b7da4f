"""Entries of strong products: what is plain where all is finite, and zeros that win."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import COMPLEX, REAL
from catalogue.entry import Entry, Sample, Special, define
from catalogue.linalg import Rng, complex_matrix, named, regular

INF, NAN = np.inf, np.nan
Shape = tuple[int, ...]
Row = tuple[str, Shape, Shape, dict[str, Any]]

# --- sums of products ----------------------------------------------------------------------


def _strong_products(*rows: Row) -> Callable[[Rng], Iterable[Sample]]:
    """Samples (name, shape, shape, arguments) strong in either operand; values that are not
    finite, at the first row's shapes, follow.
    """

    def samples(rng: Rng) -> Iterable[Sample]:
        for zeros in (0, 1):
            for name, left, right, kwargs in rows:
                args = (REAL.draw(rng, left), REAL.draw(rng, right))
                tags = frozenset({"empty"} if 0 in (*left, *right) else ())
                yield Sample(f"{name}_{zeros}", args, {**kwargs, "zeros": zeros}, tags)
            _, left, right, kwargs = rows[0]
            kwargs = {**kwargs, "zeros": zeros}
            pair = [REAL.draw(rng, left), REAL.draw(rng, right)]
            pair[zeros] = np.where(rng.random(pair[zeros].shape) < 0.6, 0.0, pair[zeros])
            yield Sample(f"zeros_{zeros}", tuple(pair), kwargs)
            bad = [x.copy() for x in pair]
            bad[1 - zeros].flat[:3] = (NAN, INF, -INF)
            yield Sample(f"nonfinite_{zeros}", tuple(bad), kwargs, frozenset({"nonfinite"}))
        z = (COMPLEX.draw(rng, left), COMPLEX.draw(rng, right))
        yield Sample("complex", z, kwargs, frozenset({"complex"}))

    return samples


_MATMUL: tuple[Row, ...] = (
    ("matrices", (2, 3), (3, 4), {}),
    ("stacks", (2, 2, 3), (2, 3, 2), {}),
    ("shared_right", (2, 2, 3), (3, 2), {}),
    ("vectors", (4,), (4,), {}),
    ("f32", (2, 3), (3, 2), {"algorithm": "f32"}),
    ("nothing_summed", (2, 0), (0, 3), {}),
    ("no_stack", (0, 2, 3), (3, 2), {}),
)
define(
    Entry(
        "STRONG_MATMUL",
        ops.strong_matmul,
        _strong_products(*_MATMUL),
        contracts=True,
        specials=(
            Special(
                "zeros_win",
                ([[0.0, 2.0], [0.0, 0.0]], [[INF, NAN], [3.0, 1.0]]),
                [[6.0, 2.0], [0.0, 0.0]],
                # d/dx is NaN where a slope is, d/dy 0 where x is 0
                cotangent=[[1.0, 0.0], [0.0, 0.0]],
                gradients=([[INF, 3.0], [0.0, 0.0]], [[0.0, 0.0], [2.0, 0.0]]),
            ),
            Special(
                "zeros_of_the_second_win",
                ([[INF, 1.0]], [[0.0], [2.0]]),
                [[2.0]],
                {"zeros": 1},
                tangents=([[NAN, 3.0]], [[0.0], [1.0]]),
                tangent=[[7.0]],
            ),
            Special("infinite_sum", ([[1.0, 0.0, 2.0]], [[INF], [NAN], [INF]]), [[INF]]),
            Special("negative_sum", ([[-1.0, 0.0, 2.0]], [[INF], [NAN], [-INF]]), [[-INF]]),
            Special("opposite_infinities", ([[1.0, 2.0]], [[INF], [-INF]]), [[NAN]]),
            Special("nan_stays", ([[1.0, 2.0]], [[NAN], [1.0]]), [[NAN]]),
            Special("nan_cotangent_stays", ([[NAN, 2.0]], [[0.0], [1.0]]), [[NAN]]),
        ),
    )
)
define(
    Entry(
        "STRONG_DOT_GENERAL",
        ops.strong_dot_general,
        _strong_products(
            ("matrix", (2, 3), (3, 4), {"dimension_numbers": (((1,), (0,)), ((), ()))}),
            ("batch", (2, 3, 2), (2, 2, 3), {"dimension_numbers": (((1,), (2,)), ((0,), (0,)))}),
            ("crossed", (2, 3, 4), (4, 2, 2), {"dimension_numbers": (((0, 2), (2, 0)), ((), ()))}),
            ("scalars", (), (), {"dimension_numbers": (((), ()), ((), ()))}),
            ("nothing_summed", (2, 0), (0, 3), {"dimension_numbers": (((1,), (0,)), ((), ()))}),
        ),
        contracts=True,
        specials=(
            Special(
                "zeros_win",
                ([0.0, 2.0], [NAN, 3.0]),
                6.0,
                {"dimension_numbers": (((0,), (0,)), ((), ()))},
                tangents=([0.0, 1.0], [INF, -1.0]),
                tangent=1.0,
            ),
        ),
    )
)
define(
    Entry(
        "STRONG_CONV",
        ops.strong_conv,
        _strong_products(
            ("plain", (2, 2, 4), (2, 2, 2), {}),
            ("padded", (1, 1, 3), (2, 1, 2), {"padding": 1}),
            ("strided", (1, 2, 5), (2, 1, 2), {"stride": 2, "groups": 2, "rhs_dilation": 2}),
            ("plane", (1, 1, 3, 3), (1, 1, 2, 2), {}),
            ("empty_batch", (0, 2, 4), (3, 2, 2), {}),
        ),
        contracts=True,
        specials=(
            Special(
                "zeros_win",
                ([[[0.0, 1.0, 2.0]]], [[[NAN, 3.0]]]),
                [[[3.0, NAN]]],
                cotangent=[[[1.0, 0.0]]],
                gradients=([[[NAN, 3.0, 0.0]]], [[[0.0, 1.0]]]),
            ),
        ),
    )
)
define(
    Entry(
        "STRONG_CONVOLVE",
        ops.strong_convolve,
        _strong_products(
            ("full", (5,), (3,), {}),
            ("same", (3,), (4,), {"mode": "same"}),
            ("rows", (2, 4), (3,), {}),
            ("no_rows", (0, 4), (3,), {}),
        ),
        contracts=True,
        specials=(
            Special(
                "zeros_win",
                ([0.0, 2.0], [NAN, 3.0]),
                [0.0, NAN, 6.0],
                cotangent=[1.0, 0.0, 0.0],
                gradients=([NAN, 0.0], [0.0, 0.0]),
            ),
        ),
    )
)

# --- linear maps that mix elements ---------------------------------------------------------


def _systems(matrices: Callable[..., Any]) -> Callable[[Rng], Iterable[Sample]]:
    def samples(rng: Rng) -> Iterable[Sample]:
        a = matrices(rng, 3, 3)
        b = rng.normal(size=(3, 2))
        yield named("matrix", a, b)
        yield named("zero_column", a, b * [0.0, 1.0])
        yield named("vector", a, b[:, 0])
        yield named("stack", matrices(rng, 2, 2, 2), rng.normal(size=(2, 2, 2)))
        yield named("empty", np.zeros((0, 0)), np.zeros((0, 2)), tags=["empty"])
        yield named("no_stack", np.zeros((0, 2, 2)), np.zeros((0, 2, 1)), tags=["empty"])
        c = complex_matrix(rng, 2, 2) + 2 * np.eye(2)
        yield named("complex", c, COMPLEX.draw(rng, (2, 2)), tags=["complex"])
        yield named("singular", np.zeros((2, 2)), [[0.0, 1.0], [0.0, 2.0]], tags=["nonfinite"])

    return samples


def _triangle(rng: Rng, *shape: int) -> Any:
    return 0.4 * rng.normal(size=shape) + np.diag(np.linspace(1.0, 2.0, shape[-1]))


for _kind, _function, _matrices in (
    ("STRONG_SOLVE", ops.strong_solve, regular),
    ("STRONG_TRIANGULAR_SOLVE", ops.strong_triangular_solve, _triangle),
):
    define(
        Entry(
            _kind,
            _function,
            _systems(_matrices),
            contracts=True,
            specials=(
                Special(
                    "zeros_win",
                    ([[NAN, NAN], [NAN, NAN]], [0.0, 0.0]),
                    [0.0, 0.0],
                    tangents=([[INF, 1.0], [2.0, NAN]], [0.0, 0.0]),
                    tangent=[0.0, 0.0],
                ),
            ),
        )
    )


def _frechet_samples(rng: Rng) -> Iterable[Sample]:
    yield named("one", [[0.3]], [[2.0]])
    yield named("three", *rng.normal(size=(2, 3, 3)))
    yield named("stack", *rng.normal(size=(2, 2, 2, 2)))
    yield named("zero_direction", rng.normal(size=(2, 2)), np.zeros((2, 2)))
    yield named("empty", np.zeros((0, 0)), np.zeros((0, 0)), tags=["empty"])


define(
    Entry(
        "STRONG_EXPM_FRECHET",
        ops.strong_expm_frechet,
        _frechet_samples,
        contracts=True,
        specials=(
            Special("zeros_win", ([[NAN, INF], [1.0, 0.0]], np.zeros((2, 2))), np.zeros((2, 2))),
        ),
    )
)


def _tangent_samples(rng: Rng) -> Iterable[Sample]:
    yield named("one", [[2.0]], [[3.0]])
    yield named("three", *rng.normal(size=(2, 3, 3)))
    yield named("second_wins", *rng.normal(size=(3, 4, 4)), zeros=2)
    yield named("stack", *rng.normal(size=(2, 2, 3, 3)))
    yield named("zero_direction", regular(rng, 3, 3), np.zeros((3, 3)))
    yield named("empty", np.zeros((0, 0)), np.zeros((0, 0)), tags=["empty"])


define(
    Entry(
        "STRONG_COFACTOR_TANGENT",
        ops.strong_cofactor_tangent,
        _tangent_samples,
        contracts=True,
        specials=(
            Special(
                "zeros_win",
                ([[NAN, INF], [1.0, 0.0]], np.zeros((2, 2))),
                np.zeros((2, 2)),
                tangents=([[INF, 0.0], [0.0, NAN]], np.zeros((2, 2))),
                tangent=np.zeros((2, 2)),
            ),
        ),
    )
)
