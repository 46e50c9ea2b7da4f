"""vmap against a loop: random axes in and out, shapes, batch sizes 0 to 3, containers, None."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autodiff as ad
from autodiff import tree

Array = np.ndarray[Any, Any]


@dataclasses.dataclass
class Pair:
    """A container of the user's own."""

    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Case:
    """A function of one example, and the ranks its array arguments may have."""

    name: str
    function: Callable[..., Any]
    ranks: tuple[tuple[int, ...], ...]
    same_shape: bool = False


def _normalised(x: Any, w: Any) -> Any:
    return {"unit": x / (1.0 + np.sum(x * x)), "rest": [w, (x[..., None] * 2.0, None)]}


def _record(x: Any, y: Any) -> Any:
    return Pair(np.max(x, initial=0.0), (np.sum(y), x - 1.0))


def _loop(x: Any, y: Any) -> Any:
    return ad.scan(lambda c, _: (np.tanh(c + np.sum(y)), c), np.sum(x), None, length=2)


CASES = (
    Case("elementwise", lambda x, y: np.exp(x) * y, ((0, 1, 2), (0, 1, 2)), same_shape=True),
    Case("scalar with array", lambda x, y: x * np.cos(y), ((0,), (1, 2, 3))),
    Case("last axis", lambda x: (np.sum(x, -1), np.cumsum(x, -1), np.flip(x, -1)), ((1, 2, 3),)),
    Case("all axes", lambda x: np.sum(x * x), ((0, 1, 2, 3),)),
    Case("outer", lambda x, y: np.outer(x, y), ((1,), (1,))),
    Case("matrix", lambda x: (x.T, x @ x.T, np.einsum("ij,ij->j", x, x)), ((2,),)),
    Case("where", lambda x, y: np.where(x > 0, x, y), ((1, 2), (1, 2)), same_shape=True),
    Case("shape", lambda x: np.reshape(np.swapaxes(x, 0, -1), (-1,)), ((2, 3),)),
    Case("index", lambda x: (x[0], x[..., -1], x[np.array([1, 0])]), ((2,),)),
    Case("join", lambda x, y: np.concatenate([x, y, x]), ((1, 2), (1, 2)), same_shape=True),
    Case("sort", lambda x: np.sort(x, -1), ((1, 2),)),
    Case("independent", lambda x: np.arange(3.0), ((0, 1),)),
    Case("container", _normalised, ((1, 2), (0, 1))),
    Case("record", _record, ((1,), (2,))),
    Case("gradient", ad.grad(lambda x: np.sum(np.sin(x) * x)), ((0, 1, 2),)),
    Case("tangent", lambda x, t: ad.jvp(np.tanh, (x,), (t,)), ((0, 1),) * 2, same_shape=True),
    Case("nested", ad.vmap(lambda x: x * np.sum(x), -1, -1), ((1, 2),)),
    Case("scan", _loop, ((0, 1), (1,))),
    Case("branch", lambda x: ad.cond(np.sum(x) > 0, np.sin, np.cos, x), ((0, 1, 2),)),
)


@st.composite
def calls(draw: Any, case: Case) -> tuple[int, list[Array], list[int | None], int]:
    """Batch size, stacked arguments, in_axes (None: shared) and out_axes of one call."""
    size = draw(st.integers(0, 3))
    common = [draw(st.integers(2, 3)) for _ in range(3)]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    args: list[Array] = []
    axes: list[int | None] = []
    first_rank = None
    for ranks in case.ranks:
        rank = draw(st.sampled_from(ranks))
        if case.same_shape and first_rank is not None:
            rank = first_rank
        first_rank = rank
        axis = draw(st.one_of(st.none(), st.integers(-rank - 1, rank)))
        if axis is None and len(axes) == len(case.ranks) - 1 and not any(_mapped(axes)):
            axis = 0
        shape = list(common[:rank])
        if axis is not None:
            shape.insert(axis % (rank + 1), size)
        args.append(np.asarray(rng.normal(size=shape)))
        axes.append(axis)
    return size, args, axes, draw(st.integers(-1, 0))


def _mapped(axes: list[int | None]) -> list[bool]:
    return [a is not None for a in axes]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@given(st.data())
def test_random_axes_against_a_loop(case: Case, data: st.DataObject) -> None:
    size, args, axes, out_axis = data.draw(calls(case))
    batched = ad.vmap(case.function, tuple(axes), out_axis)(*args)
    got, got_tree = tree.flatten(batched)
    if not size:
        args = [a if x is None else np.ones(_with(a, x)) for a, x in zip(args, axes, strict=True)]
    loop = [
        case.function(
            *(a if x is None else np.take(a, b, x) for a, x in zip(args, axes, strict=True))
        )
        for b in range(max(size, 1))
    ]
    rows = [tree.flatten(row)[0] for row in loop]
    assert got_tree == tree.flatten(loop[0])[1]
    for i, value in enumerate(got):
        want = np.stack([np.asarray(row[i]) for row in rows], out_axis)
        if not size:
            want = np.take(want, np.arange(0), out_axis)
        assert value.shape == want.shape and value.dtype == want.dtype
        np.testing.assert_allclose(value, want, rtol=1e-12, atol=1e-12)


def _with(a: Array, axis: int) -> tuple[int, ...]:
    """The shape with one row where there was none."""
    shape = list(a.shape)
    shape[axis] = 1
    return tuple(shape)


@given(st.integers(0, 3), st.integers(-2, 1), st.sampled_from([0, -1]))
def test_containers_of_axes_in_and_out(size: int, axis: int, out: int) -> None:
    rng = np.random.default_rng(size)
    w, b, x = rng.normal(size=(3, 2)), np.asarray(rng.normal()), rng.normal(size=(3,))
    xs = np.stack([x * (i + 1.0) for i in range(size)], axis) if size else None
    xs = np.zeros(tuple(np.insert((3,), axis % 2, 0))) if xs is None else xs

    def f(params: Any, row: Any) -> Any:
        return {"y": row @ params["w"] + params["b"], "shared": params["w"] * 2.0, "s": row.sum()}

    mapped = ad.vmap(
        f,
        in_axes=({"w": None, "b": None}, axis),
        out_axes={"y": out, "shared": None, "s": 0},
    )
    got = mapped({"w": w, "b": b}, xs)
    rows = np.moveaxis(xs, axis, 0)
    np.testing.assert_array_equal(got["shared"], w * 2.0)
    np.testing.assert_allclose(np.moveaxis(got["y"], out, 0), rows @ w + b, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(got["s"], rows.sum(1), rtol=1e-13, atol=1e-13)


@given(st.integers(0, 3), st.sampled_from([0, 1, -1]))
def test_a_batch_of_shared_arguments(size: int, out: int) -> None:
    x = np.arange(3.0)
    got = ad.vmap(np.cos, in_axes=None, out_axes=out, axis_size=size)(x)
    np.testing.assert_array_equal(got, np.stack([np.cos(x)] * size, out) if size else got)
    assert got.shape == ((size, 3) if out == 0 else (3, size))


@given(st.integers(0, 2), st.integers(0, 2), st.integers(1, 3))
def test_vmap_of_vmap_maps_each_axis(first: int, second: int, size: int) -> None:
    x = np.random.default_rng(size).normal(size=(2, 3, size))
    inner = second if second < first else max(second - 1, 0)
    got = ad.vmap(ad.vmap(lambda v: v * np.sum(v), inner), first)(x)
    moved = np.moveaxis(x, first, 0)
    want = np.stack([[v * np.sum(v) for v in np.moveaxis(row, inner, 0)] for row in moved])
    np.testing.assert_allclose(got, want, rtol=1e-13)
