"""Entries of convolutions."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import COMPLEX, REAL
from catalogue.entry import Entry, Sample, define

Shape = tuple[int, ...]
Row = tuple[str, Shape, Shape, dict[str, Any]]


def rows(table: Iterable[Row], rng: np.random.Generator) -> Iterable[Sample]:
    """One sample for each (name, shape of x, shape of the kernel, keyword arguments)."""
    for name, x, kernel, kwargs in table:
        tags = frozenset({"empty"} if 0 in (*x, *kernel) else ())
        yield Sample(name, (REAL.draw(rng, x), REAL.draw(rng, kernel)), kwargs, tags)


def planted(rng: np.random.Generator, x: Shape, kernel: Shape) -> Iterable[Sample]:
    """Operands with zeros, of far magnitudes, complex, and not finite."""
    a, b = REAL.draw(rng, x), REAL.draw(rng, kernel)
    a.flat[0], b.flat[0] = 0.0, 0.0
    yield Sample("zeros", (a, np.where(np.abs(b) < 1, 0.0, b)), {"padding": 1})
    yield Sample("large", (a * 1e15, b * 1e12), tags=frozenset({"large"}))
    yield Sample("tiny", (a * 1e-15, b * 1e-12), tags=frozenset({"tiny"}))
    z = COMPLEX.draw(rng, x), COMPLEX.draw(rng, kernel)
    yield Sample("complex", z, {"padding": 1}, frozenset({"complex"}))
    a = a.copy()
    a.flat[1] = np.inf
    yield Sample("infinite", (a, np.abs(b) + 1.0), tags=frozenset({"nonfinite"}))


def _conv(rng: np.random.Generator) -> Iterable[Sample]:
    yield from rows(
        [
            ("plain", (2, 2, 4, 3), (2, 2, 2, 2), {}),
            (
                "fractional_stride",
                (1, 2, 3, 3),
                (2, 2, 3, 2),
                {"lhs_dilation": (2, 3), "padding": 1},
            ),
            ("cropped", (1, 1, 6), (2, 1, 2), {"padding": ((-1, -2),)}),
            ("cropped_gaps", (1, 1, 5), (1, 1, 2), {"padding": ((-3, 2),), "lhs_dilation": 2}),
            (
                "all_at_once",
                (2, 4, 4),
                (6, 2, 3),
                {
                    "stride": 2,
                    "padding": ((2, 1),),
                    "lhs_dilation": 3,
                    "rhs_dilation": 2,
                    "groups": 2,
                },
            ),
            ("rest_dropped", (1, 1, 8), (1, 1, 3), {"stride": 4}),
            ("nothing_fits", (1, 1, 2), (1, 1, 4), {}),
            ("f32_products", (1, 2, 5), (1, 2, 3), {"algorithm": "f32"}),
        ],
        rng,
    )


define(Entry("CONV", ops.conv, _conv, contracts=True))


def _conv1d(rng: np.random.Generator) -> Iterable[Sample]:
    yield from rows(
        [
            ("one_tap", (1, 1, 1), (1, 1, 1), {}),
            ("same", (2, 3, 5), (2, 3, 3), {"padding": "SAME"}),
            ("same_strided", (1, 2, 6), (2, 2, 4), {"padding": "SAME", "stride": 2}),
            ("groups", (2, 4, 5), (6, 2, 2), {"groups": 2}),
            ("depthwise", (1, 3, 5), (6, 1, 3), {"groups": 3, "padding": 1}),
            ("empty_batch", (0, 2, 4), (3, 2, 2), {}),
            ("no_outputs", (2, 2, 4), (0, 2, 2), {}),
        ],
        rng,
    )
    yield from planted(rng, (1, 2, 5), (2, 2, 3))


define(Entry("CONV1D", ops.conv1d, _conv1d, contracts=True))


def _conv2d(rng: np.random.Generator) -> Iterable[Sample]:
    yield from rows(
        [
            ("plain", (2, 2, 4, 3), (3, 2, 3, 2), {}),
            ("pointwise", (2, 3, 2, 3), (2, 3, 1, 1), {}),
            ("whole_image", (2, 2, 3, 2), (2, 2, 3, 2), {}),
            ("same", (1, 2, 4, 5), (2, 2, 3, 2), {"padding": "SAME"}),
            ("uneven_padding", (1, 1, 4, 4), (1, 1, 3, 3), {"padding": ((0, 2), (3, 1))}),
            ("strides_beyond_kernel", (1, 2, 5, 5), (1, 2, 2, 1), {"stride": (3, 4)}),
            ("dilated", (1, 2, 5, 5), (2, 2, 2, 3), {"dilation": (3, 2)}),
            (
                "groups_strided_dilated",
                (1, 4, 5, 3),
                (4, 2, 2, 2),
                {"groups": 2, "stride": (2, 1), "dilation": (2, 1), "padding": (1, 0)},
            ),
            ("depthwise", (2, 2, 3, 3), (4, 1, 2, 2), {"groups": 2}),
            ("empty_batch", (0, 2, 3, 3), (2, 2, 2, 2), {}),
            ("no_channels", (1, 0, 3, 3), (2, 0, 2, 2), {}),
            ("cropped", (1, 1, 5, 4), (1, 1, 2, 2), {"padding": ((-1, 0), (0, -1))}),
        ],
        rng,
    )
    yield from planted(rng, (1, 2, 3, 3), (2, 2, 2, 2))


define(Entry("CONV2D", ops.conv2d, _conv2d, contracts=True))


def _conv3d(rng: np.random.Generator) -> Iterable[Sample]:
    yield from rows(
        [
            ("plain", (1, 2, 3, 2, 3), (2, 2, 2, 2, 2), {}),
            (
                "strided_same",
                (1, 1, 3, 4, 3),
                (1, 1, 3, 2, 2),
                {"padding": "SAME", "stride": (2, 1, 2)},
            ),
            ("groups", (2, 2, 2, 2, 2), (2, 1, 2, 1, 2), {"groups": 2, "padding": (1, 0, 1)}),
            ("dilated", (1, 1, 5, 3, 3), (1, 1, 2, 2, 2), {"dilation": (3, 2, 1)}),
        ],
        rng,
    )


define(Entry("CONV3D", ops.conv3d, _conv3d, contracts=True))
