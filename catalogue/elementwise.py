"""Entries of elementwise ops."""

from autodiff import ops
from catalogue.domain import REAL
from catalogue.entry import Entry, Special, define, elementwise_samples

define(
    Entry(
        "EXP",
        ops.exp,
        elementwise_samples(
            REAL,
            points={"zero": (0.0,), "large": (700.0,), "tiny": (-745.0,), "inf": ([1e9, -1e9],)},
            tags={"large": ["large"], "tiny": ["tiny"], "inf": ["nonfinite"]},
        ),
        domains=(REAL,),
        specials=(
            Special("minus_inf", (float("-inf"),), 0.0, cotangent=2.0, gradients=(0.0,)),
        ),
        composable=True,
    )
)
