"""Entries of the cells of recurrent networks."""

from collections.abc import Callable, Iterable

import numpy as np

from autodiff import ops
from catalogue.domain import REAL
from catalogue.entry import Entry, Sample, define


def _cell(
    gates: int, states: int, biases: int
) -> Callable[[np.random.Generator], Iterable[Sample]]:
    """Samples of a cell: x, states, input and state weights, with biases and without."""

    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for name, rows, m, n in (
            ("vector", (), 3, 2),
            ("batch", (3,), 2, 3),
            ("time_and_batch", (2, 2), 1, 2),
            ("one_unit", (2,), 1, 1),
            ("no_inputs", (2,), 0, 2),
            ("empty_batch", (0,), 2, 2),
        ):
            x = REAL.draw(rng, (*rows, m))
            state = [REAL.draw(rng, (*rows, n)) for _ in range(states)]
            weights = [REAL.draw(rng, (gates * n, m)), REAL.draw(rng, (gates * n, n))]
            bias = [REAL.draw(rng, (gates * n,)) for _ in range(biases)]
            tags = frozenset({"empty"} if 0 in (*rows, m) else ())
            yield Sample(name, (x, *state, *weights, *bias), tags=tags)
            if name == "batch":
                yield Sample("no_bias", (x, *state, *weights))
                # gates fully open or closed
                yield Sample("saturated", (30 * x, *state, *weights, *bias))
                rest = [np.zeros_like(s) for s in state]
                yield Sample("at_rest", (np.zeros_like(x), *rest, *weights, *bias))

    return samples


define(Entry("LSTM_CELL", ops.lstm_cell, _cell(4, 2, 1), contracts=True))
define(Entry("GRU_CELL", ops.gru_cell, _cell(3, 1, 2), contracts=True))
