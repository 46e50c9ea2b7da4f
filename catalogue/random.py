"""Entries of random numbers."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from autodiff import ops
from catalogue.domain import REAL
from catalogue.entry import Entry, Sample, Special, define

Rng = np.random.Generator
KEY = ops.rng_key(20)
KEYS = np.stack([ops.rng_key(s) for s in (1, 2, 3)])
INTEGER = frozenset({"integer"})
EMPTY = frozenset({"empty", "integer"})


def _bits_samples(rng: Rng) -> Iterable[Sample]:
    del rng
    yield Sample("scalar", (KEY,), {}, INTEGER)
    yield Sample("words", (KEY,), {"shape": (2, 3)}, INTEGER)
    yield Sample("wide_words", (KEY,), {"shape": 5, "width": 64}, INTEGER)
    yield Sample("short_words", (KEY,), {"shape": 5, "drop": 9}, INTEGER)
    yield Sample("keys", (KEYS,), {"shape": (4,), "width": 64, "drop": 12}, INTEGER)
    yield Sample("empty", (KEY,), {"shape": (0, 2)}, EMPTY)
    yield Sample("no_keys", (KEYS[:0],), {"shape": (2,)}, EMPTY)


# threefry-2x32 with 20 rounds: known answers of the Random123 distribution (kat_vectors); with a
# counter of 0 the 64-bit word is both halves of the answer
define(
    Entry(
        "RNG_BITS",
        ops.rng_bits,
        _bits_samples,
        specials=(
            Special(
                "known_answer",
                (np.zeros(2, np.uint32),),
                np.uint64(0x6B20015999BA4EFE),
                kwargs={"width": 64},
            ),
        ),
    )
)


def _split_samples(rng: Rng) -> Iterable[Sample]:
    del rng
    yield Sample("two", (KEY,), {}, INTEGER)
    yield Sample("grid", (KEY,), {"shape": (2, 2)}, INTEGER)
    yield Sample("one", (KEY,), {"shape": ()}, INTEGER)
    yield Sample("keys", (KEYS,), {"shape": 2}, INTEGER)
    yield Sample("none", (KEY,), {"shape": 0}, EMPTY)


define(Entry("RNG_SPLIT", ops.rng_split, _split_samples))


def _fold_samples(rng: Rng) -> Iterable[Sample]:
    del rng
    yield Sample("integer", (KEY, np.asarray(7, np.uint32)), {}, INTEGER)
    yield Sample("integers", (KEY, np.arange(4, dtype=np.int64)), {}, INTEGER)
    yield Sample("keys", (KEYS, np.asarray([0, 1, 2**32 - 1], np.uint32)), {}, INTEGER)
    yield Sample("none", (KEY, np.zeros(0, np.uint32)), {}, EMPTY)


define(Entry("RNG_FOLD_IN", ops.rng_fold_in, _fold_samples))


# Draws of another dtype are other numbers: here they are float64 whatever the parameters' dtype is


def _uniform(key: Any, low: Any, high: Any, shape: Any = ()) -> Any:
    """`rng_uniform` of float64 numbers, converted to the dtype of its bounds."""
    drawn = ops.rng_uniform(key, shape, low, high, np.float64)
    return ops.cast(drawn, low.dtype)


def _normal(key: Any, loc: Any, scale: Any, shape: Any = ()) -> Any:
    """`rng_normal` of float64 numbers, converted to the dtype of its parameters."""
    drawn = ops.rng_normal(key, shape, loc, scale, np.float64)
    return ops.cast(drawn, loc.dtype)


def _bernoulli(key: Any, p: Any, shape: Any = None) -> Any:
    """`bernoulli` by float64 uniform numbers."""
    return ops.bernoulli(key, ops.cast(p, np.float64), shape)


def _draw_samples(rng: Rng) -> Iterable[Sample]:
    ends = np.asarray(0.0), np.asarray(1.0)
    yield Sample("scalar", (KEY, np.asarray(-1.5), np.asarray(2.0)))
    yield Sample("unit", (KEY, *ends), {"shape": (2, 3)})
    low = REAL.draw(rng, (3, 1))
    yield Sample("broadcast", (KEY, low, np.asarray([4.0, 5.0])), {"shape": (3, 2)})
    yield Sample("keys", (KEYS, low, low + 2.0), {"shape": (1,)})
    # low <= high is the domain of RNG_UNIFORM: past its end x is low
    yield Sample("point", (KEY, *2 * (np.asarray(2.0),)), {"shape": (2,)}, frozenset({"kink"}))
    yield Sample("empty", (KEY, *ends), {"shape": (0,)}, frozenset({"empty"}))
    yield Sample("no_keys", (KEYS[:0], *ends), {"shape": (2,)}, frozenset({"empty"}))


define(Entry("RNG_UNIFORM", _uniform, _draw_samples))
define(Entry("RNG_NORMAL", _normal, _draw_samples))


def _bernoulli_samples(rng: Rng) -> Iterable[Sample]:
    yield Sample("fair", (KEY, np.asarray(0.5)), {"shape": (4, 2)})
    yield Sample("never_always", (KEY, np.asarray([0.0, 1.0])), {})
    yield Sample("array", (KEY, rng.random((3, 2))), {})
    yield Sample("keys", (KEYS, np.asarray(0.3)), {"shape": (2,)})
    yield Sample("empty", (KEY, np.zeros(0)), {}, frozenset({"empty"}))


define(
    Entry(
        "BERNOULLI",
        _bernoulli,
        _bernoulli_samples,
        specials=(
            Special("ends", (KEY, np.asarray([0.0, 0.0, 1.0, 1.0])), [False, False, True, True]),
        ),
    )
)


def _dropout_samples(rng: Rng) -> Iterable[Sample]:
    yield Sample("half", (KEY, REAL.draw(rng, (3, 4))), {"rate": 0.5})
    yield Sample("keys", (KEYS, REAL.draw(rng, (3, 5))), {"rate": 0.3})
    yield Sample("none", (KEY, REAL.draw(rng, (4,))), {"rate": 0.0})
    yield Sample("all", (KEY, REAL.draw(rng, (4,))), {"rate": 1.0})
    yield Sample("scalar", (KEY, np.asarray(2.0)), {"rate": 0.25})
    yield Sample("empty", (KEY, np.zeros((0, 2))), {"rate": 0.5}, frozenset({"empty"}))


define(Entry("DROPOUT", ops.dropout, _dropout_samples))
