"""Entries of transposed and of causal convolutions."""

from collections.abc import Iterable

import numpy as np

from autodiff import ops
from catalogue.convolution import planted, rows
from catalogue.domain import REAL
from catalogue.entry import Entry, Sample, define


def _transposed1d(rng: np.random.Generator) -> Iterable[Sample]:
    yield from rows(
        [
            ("one_tap", (1, 1, 1), (1, 1, 1), {}),
            ("strided", (2, 2, 4), (2, 3, 3), {"stride": 2}),
            ("strides_beyond_kernel", (1, 2, 3), (2, 1, 2), {"stride": 4, "output_padding": 3}),
            ("same", (1, 2, 3), (2, 2, 4), {"stride": 2, "padding": "SAME"}),
            ("groups", (1, 4, 3), (4, 2, 2), {"groups": 2}),
            ("empty_batch", (0, 2, 3), (2, 2, 2), {}),
        ],
        rng,
    )


define(Entry("CONV_TRANSPOSE1D", ops.conv_transpose1d, _transposed1d, contracts=True))


def _transposed2d(rng: np.random.Generator) -> Iterable[Sample]:
    yield from rows(
        [
            ("plain", (2, 2, 3, 2), (2, 3, 2, 3), {}),
            ("strided_padded", (1, 2, 3, 3), (2, 2, 3, 3), {"stride": 2, "padding": 1}),
            (
                "output_padding",
                (1, 2, 2, 3),
                (2, 1, 3, 2),
                {"stride": (2, 3), "padding": 1, "output_padding": (1, 2)},
            ),
            ("uneven_padding", (1, 1, 3, 3), (1, 2, 3, 3), {"padding": ((0, 2), (1, 0))}),
            ("dilated", (1, 2, 3, 2), (2, 2, 2, 2), {"dilation": (2, 3)}),
            ("same", (1, 1, 2, 3), (1, 1, 3, 2), {"padding": "SAME", "stride": (3, 2)}),
            ("same_wide_stride", (1, 1, 2, 2), (1, 1, 1, 2), {"padding": "SAME", "stride": 3}),
            ("groups", (1, 4, 2, 2), (4, 3, 2, 2), {"groups": 2, "stride": 2}),
            ("pointwise", (2, 2, 2, 2), (2, 3, 1, 1), {}),
            ("cropped_to_one", (1, 1, 2, 2), (1, 1, 2, 2), {"padding": 1}),
        ],
        rng,
    )
    yield from planted(rng, (1, 2, 3, 3), (2, 2, 2, 2))


define(Entry("CONV_TRANSPOSE2D", ops.conv_transpose2d, _transposed2d, contracts=True))


def _causal(rng: np.random.Generator) -> Iterable[Sample]:
    for name, x, k in (
        ("plain", (2, 3, 5), (3, 4)),
        ("one_tap", (1, 2, 3), (2, 1)),
        ("longer_than_time", (1, 2, 2), (2, 4)),
        ("one_step", (2, 2, 1), (2, 3)),
        ("no_time", (1, 2, 0), (2, 3)),
        ("empty_batch", (0, 2, 3), (2, 2)),
    ):
        tags = frozenset({"empty"} if 0 in x else ())
        yield Sample(f"{name}_from_rest", (REAL.draw(rng, x), REAL.draw(rng, k)), tags=tags)
        state = REAL.draw(rng, (*x[:2], k[1] - 1))
        yield Sample(name, (REAL.draw(rng, x), REAL.draw(rng, k), state), tags=tags)


define(Entry("CAUSAL_CONV1D", ops.causal_conv1d, _causal, contracts=True))
