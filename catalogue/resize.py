"""Entry of the resizing of images."""

from collections.abc import Iterable

import numpy as np

from autodiff import ops
from catalogue.domain import COMPLEX, REAL
from catalogue.entry import Entry, Sample, define


def _resized(rng: np.random.Generator) -> Iterable[Sample]:
    for name, shape, to, kwargs in (
        ("enlarged", (2, 3, 2), (5, 4), {}),
        ("shrunk", (1, 5, 6), (2, 4), {}),
        ("one_axis", (2, 3), (7,), {}),
        ("corners", (3, 4), (5, 7), {"align_corners": True}),
        ("corners_to_one", (3, 4), (1, 2), {"align_corners": True}),
        ("nearest_enlarged", (2, 3, 2), (5, 4), {"method": "nearest"}),
        ("nearest_shrunk", (6, 5), (3, 2), {"method": "nearest"}),
        ("same_shape", (2, 3), (2, 3), {}),
        ("from_one", (1, 1), (2, 3), {}),
        ("empty", (0, 2, 2), (3, 3), {}),
    ):
        tags = frozenset({"empty"} if 0 in shape else ())
        yield Sample(name, (REAL.draw(rng, shape),), {"shape": to, **kwargs}, tags)
    yield Sample("complex", (COMPLEX.draw(rng, (2, 3)),), {"shape": (3, 4)}, frozenset({"complex"}))


define(Entry("RESIZE", ops.resize, _resized, contracts=True))
