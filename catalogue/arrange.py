"""Entries of arrangements: squeezing, stacking, rolling, tiling and repeating."""

from autodiff import ops
from catalogue.entry import Entry, define
from catalogue.shape import calls, lists

define(
    Entry(
        "SQUEEZE",
        ops.squeeze,
        calls(
            ("all", (1, 3, 1, 2), {}),
            ("named", (1, 3, 1), {"axis": -1}),
            ("two", (1, 3, 1), {"axis": (0, 2)}),
            ("to_scalar", (1, 1), {}),
            ("nothing", (2, 3), {}),
            ("empty", (0, 1), {"axis": 1}),
        ),
    )
)
define(
    Entry(
        "EXPAND",
        ops.expand_dims,
        calls(
            ("first", (2, 3), {"axis": 0}),
            ("last", (2, 3), {"axis": -1}),
            ("two", (2, 3), {"axis": (1, -1)}),
            ("scalar", (), {"axis": (0, 1)}),
            ("empty", (0,), {"axis": 1}),
        ),
    )
)
define(
    Entry(
        "STACK",
        ops.stack,
        lists(
            ("rows", ((3,), (3,), (3,)), {}),
            ("last", ((2, 3), (2, 3)), {"axis": -1}),
            ("middle", ((2, 3), (2, 3)), {"axis": 1}),
            ("scalars", ((), ()), {}),
            ("single", ((2,),), {"axis": 1}),
            ("empty", ((0, 2), (0, 2)), {"axis": 1}),
        ),
    )
)
define(
    Entry(
        "ROLL",
        ops.roll,
        calls(
            ("flat", (2, 3), {"shift": 2}),
            ("axis", (3, 4), {"shift": -1, "axis": -1}),
            ("two", (3, 4), {"shift": (1, 2), "axis": (0, 1)}),
            ("repeated_axis", (3, 4), {"shift": (1, 2), "axis": (1, 1)}),
            ("around", (3,), {"shift": 7, "axis": 0}),
            ("nothing", (3,), {"shift": 3, "axis": 0}),
            ("one", (1,), {"shift": 1, "axis": 0}),
            ("scalar", (), {"shift": 1}),
            ("empty", (0, 2), {"shift": 1, "axis": 0}),
        ),
    )
)
define(
    Entry(
        "TILE",
        ops.tile,
        calls(
            ("axes", (2, 3), {"repeats": (2, 1)}),
            ("last", (2, 3), {"repeats": 2}),
            ("more_axes", (2,), {"repeats": (3, 1, 2)}),
            ("once", (2, 3), {"repeats": 1}),
            ("scalar", (), {"repeats": 3}),
            ("none", (2,), {"repeats": 0}),
            ("empty", (0, 2), {"repeats": (2, 2)}),
        ),
        contracts=True,
    )
)
define(
    Entry(
        "REPEAT",
        ops.repeat,
        calls(
            ("flat", (2, 3), {"repeats": 2}),
            ("axis", (2, 3), {"repeats": 2, "axis": -1}),
            ("counts", (3, 2), {"repeats": (1, 0, 2), "axis": 0}),
            ("one", (1,), {"repeats": 3, "axis": 0}),
            ("none", (2, 2), {"repeats": 0, "axis": 1}),
            ("scalar", (), {"repeats": 2}),
            ("empty", (0, 2), {"repeats": 2, "axis": 0}),
        ),
        contracts=True,
    )
)
