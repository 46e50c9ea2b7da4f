"""vmap: clamped indices, negative axes, batches of one and none, gradients per sample."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from tests.public_cases.cases import right
from tests.public_cases.roads import hold, slopes, values

# --- D01: clamped indices -------------------------------------------------------------------


def update(i: Any) -> Any:
    return ops.dynamic_update_slice(np.zeros(5), np.ones(3), (i,))


def test_d01_an_update_that_would_run_past_the_end_is_moved_back() -> None:
    starts = np.array([1, 2, 3])
    hold(values(ad.vmap(update), starts, narrow=False), "D01", "mapped update")
    right("D01", "mapped update").holds(np.stack([update(i) for i in starts]), "looped")


GATHERS: dict[str, Callable[[Any, Any], Any]] = {
    "dynamic_slice": lambda x, i: ops.dynamic_slice(x, (i,), (1,))[0],
    "clip": lambda x, i: x[np.clip(i, 0, x.shape[0] - 1)],
    "take": lambda x, i: np.take(x, i, mode="clip"),
}


@pytest.mark.parametrize("name", GATHERS)
def test_d01_clamped_indices_keep_their_slopes(name: str) -> None:
    gather, index = GATHERS[name], np.array([0, 2, 7, -9])

    def mapped(x: Any) -> Any:
        return ad.vmap(gather, in_axes=(None, 0))(x, index)

    def looped(x: Any) -> Any:
        return np.stack([gather(x, i) for i in index])

    for f in (mapped, looped):
        hold(slopes(f, [10.0, 20.0, 30.0]), "D01", "Jacobian of a mapped gather")
    one = slopes(lambda x: ad.vmap(gather, in_axes=(None, 0))(x, np.array([1])), [1.0])
    hold(one, "D01", "Jacobian of one entry")


def test_d01_updates_keep_their_slopes_where_the_start_is_clamped() -> None:
    def f(x: Any, patch: Any) -> Any:
        return ad.vmap(lambda i: ops.dynamic_update_slice(x, patch, (i,)))(np.array([3, -7]))

    for road, j in slopes(f, np.zeros(5), np.ones(3), argnum=1).items():
        np.testing.assert_array_equal(j[0, 2:], np.eye(3), err_msg=road)
        np.testing.assert_array_equal(j[1, :3], np.eye(3), err_msg=road)


# --- D03: negative axes ---------------------------------------------------------------------

COLUMNS = [[3.0, 1.0], [2.0, 4.0], [0.0, 5.0]]
WEIGHTS = np.array([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]])


@pytest.mark.parametrize("library", [np, ops], ids=["numpy", "ops"])
def test_d03_sort_of_the_last_axis_mapped_over_columns(library: Any) -> None:
    def by_columns(f: Any) -> Any:
        return ad.vmap(lambda a: f(a, axis=-1), in_axes=1, out_axes=1)

    hold(values(by_columns(library.sort), COLUMNS), "D03", "mapped sort")
    found = values(by_columns(library.argsort), COLUMNS)
    hold(found, "D03", "mapped argsort")
    weighted = slopes(lambda x: np.sum(WEIGHTS * by_columns(library.sort)(x)), COLUMNS)
    hold(weighted, "D03", "gradient through the mapped sort")


AXIS_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sort": np.sort,
    "cumsum": np.cumsum,
    "flip": np.flip,
    "max": np.max,
    "argsort": np.argsort,
    "softmax": ops.softmax,
}


@pytest.mark.parametrize("name", AXIS_FUNCTIONS)
def test_d03_every_axis_under_every_batch_axis(name: str) -> None:
    f, x = AXIS_FUNCTIONS[name], np.random.default_rng(3).normal(size=(2, 3, 4))
    for axis in range(-2, 2):
        for batch in range(-3, 3):
            got = ad.vmap(lambda a, axis=axis: f(a, axis=axis), in_axes=batch)(x)
            rows = [f(a, axis=axis) for a in np.moveaxis(x, batch, 0)]
            np.testing.assert_allclose(got, rows, rtol=1e-15, err_msg=f"{axis} {batch}")


# --- D06: batches of one and none -----------------------------------------------------------


def test_d06_batches_of_one_and_none() -> None:
    right("D06", "sum over a batch of one").holds(ad.vmap(np.sum)(np.array([10.0])))
    none = np.zeros((0, 3))
    mapped = {
        "shape of sums over no batch": ad.vmap(np.sum),
        "shape of rows of no batch": ad.vmap(lambda row: 2 * row),
        "shape of gradients of no batch": ad.vmap(ad.grad(lambda row: np.sum(row**2))),
    }
    for what, f in mapped.items():
        for road, got in values(f, none).items():
            right("D06", what).holds(got.shape, road)


@pytest.mark.parametrize("size", [0, 1, 2])
def test_d06_no_axis_is_lost_or_gained(size: int) -> None:
    rows = np.ones((size, 1))
    assert ad.vmap(np.squeeze)(rows).shape == (size,)
    assert ad.vmap(ad.jacrev(lambda v: np.sum(v**2)))(rows).shape == (size, 1)
    assert ad.vmap(ad.jacfwd(lambda v: v**2))(rows).shape == (size, 1, 1)


# --- D07: gradients per sample --------------------------------------------------------------

SAMPLES = np.array([[1.0, 2.0], [3.0, -1.0], [0.0, 1.0], [2.0, 2.0]])
TARGETS, W = np.array([1.0, 0.0, -1.0, 2.0]), np.array([0.5, -1.0])


def loss(w: Any, x: Any, t: Any) -> Any:
    return 0.5 * (x @ w - t) ** 2


def test_d07_gradients_per_sample_are_those_of_a_loop() -> None:
    mapped = ad.vmap(ad.grad(loss), in_axes=(None, 0, 0))
    found = values(mapped, W, SAMPLES, TARGETS)
    looped = [ad.grad(loss)(W, x, t) for x, t in zip(SAMPLES, TARGETS, strict=True)]
    found["looped"] = np.stack(looped)
    hold(found, "D07", "per sample")
    hold({road: g.mean(axis=0) for road, g in found.items()}, "D07", "their mean")
    hold({road: g.var(axis=0, ddof=1) for road, g in found.items()}, "D07", "their variance")
    batch = slopes(lambda w: np.mean(loss(w, SAMPLES, TARGETS)), W)
    hold(batch, "D07", "their mean")
