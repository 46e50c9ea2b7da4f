"""Entries of layout ops."""

from autodiff import ops
from catalogue.entry import Entry, define
from catalogue.shape import calls

define(
    Entry(
        "RESHAPE",
        ops.reshape,
        calls(
            ("split", (2, 6), {"shape": (3, 4)}),
            ("inferred", (2, 6), {"shape": (2, -1, 3)}),
            ("flat", (2, 3, 2), {"shape": -1}),
            ("scalar", (1, 1), {"shape": ()}),
            ("from_scalar", (), {"shape": (1, 1)}),
            ("empty", (0, 3), {"shape": (3, 0, 2)}),
        ),
        domains=(),
    )
)
define(
    Entry(
        "TRANSPOSE",
        ops.transpose,
        calls(
            ("matrix", (2, 3), {}),
            ("cycle", (2, 3, 4), {"axes": (1, 2, 0)}),
            ("negative", (2, 1, 3), {"axes": (-1, 0, -2)}),
            ("identity", (2, 3), {"axes": (0, 1)}),
            ("vector", (4,), {}),
            ("scalar", (), {}),
            ("empty", (0, 2), {}),
        ),
    )
)
define(
    Entry(
        "BROADCAST",
        ops.broadcast_to,
        calls(
            ("row", (3,), {"shape": (2, 3)}),
            ("column", (3, 1), {"shape": (3, 4)}),
            ("both", (1, 3, 1), {"shape": (2, 2, 3, 2)}),
            ("scalar", (), {"shape": (2, 3)}),
            ("to_scalar", (), {"shape": ()}),
            ("to_empty", (1,), {"shape": (0,)}),
            ("empty", (0, 1), {"shape": (2, 0, 3)}),
        ),
    )
)
define(
    Entry(
        "SUM_TO",
        ops.sum_to,
        calls(
            ("rows", (2, 3), {"shape": (3,)}),
            ("column", (3, 4), {"shape": (3, 1)}),
            ("both", (2, 2, 3, 2), {"shape": (1, 3, 1)}),
            ("scalar", (2, 3), {"shape": ()}),
            ("same", (2, 3), {"shape": (2, 3)}),
            ("one", (1, 1), {"shape": (1,)}),
            ("empty", (0, 3), {"shape": (3,)}),
        ),
        contracts=True,
    )
)
