"""Elementwise programs of several shapes run as one."""

import numpy as np
import pytest

import autodiff as ad
from autodiff.families import batch_broadcasting
from autodiff.lower import jax as lower_jax
from autodiff.lower.jax import LoweringError
from autodiff.op import Op
from autodiff.trace import bind
from checks.devices import Emitted, joined

pytest.importorskip("jax")


def elementwise_cases():
    """Cases of one skeleton at several shapes, and others that stay alone."""
    rng = np.random.default_rng(3)
    shapes = [((2, 3), (2, 3)), ((3, 1), (1, 4)), ((5,), ()), ((2,), (2,))]
    points = [[rng.normal(size=s) for s in pair] for pair in shapes]
    alone = [[np.float64(0.3), np.float64(2.0)], [np.ones((0, 3)), np.ones(3)]]
    return [(ad.trace(lambda a, b: np.exp(a) * b, *p), p) for p in points + alone]


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_elementwise_programs_run_as_one_and_keep_their_own_shapes(precision):
    given = elementwise_cases()
    given.insert(1, (ad.trace(np.sum, np.ones(4)), [np.arange(4.0)]))
    assert joined._groups(given) == [[0, 3, 4], [2], [1], [5], [6]]
    assert joined.join([given[i] for i in (0, 3, 4)])[1][0].shape == (13, 1)
    found = joined.run_joined(given, "jax-cpu", precision, [True] + [False] * 6)
    for (program, args), got in zip(given, found, strict=True):
        want = np.asarray(ad.interpret(program, *args, precision=precision))
        assert isinstance(got.emitted, Emitted)
        for (value,) in (got.emitted.results, got.device):
            assert value.shape == want.shape and value.dtype == want.dtype
            np.testing.assert_allclose(value, want, rtol=1e-6)
    assert found[0].again[0].tobytes() == found[0].device[0].tobytes()
    assert found[0].again[0].shape == (2, 3)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (np.sum, [np.ones(3)]),
        (np.exp, [np.float64(1.0)]),
        (np.exp, [np.ones((2, 0))]),
        (lambda x: x + np.array([1.0, 2.0]), [np.ones(2)]),
        (lambda a, b: [np.exp(a), np.exp(b)], [np.ones((3, 1)), np.ones((1, 4))]),
        (lambda x: x, [np.ones(2)]),
        (lambda x: np.exp(x).reshape(2, 2), [np.ones(4)]),
    ],
)
def test_what_stays_alone(function, args):
    assert joined.extent(ad.trace(function, *args)) is None


def test_programs_that_differ_in_more_than_shapes_stay_apart():
    x, y = np.ones(3), np.ones((2, 2))
    differing = [
        (np.exp, x),
        (np.log, y),
        (lambda v: np.clip(v, 0.0, 1.0), x),
        (lambda v: np.clip(v, 0.0, 2.0), y),
        (np.exp, y.astype(np.float32)),
    ]
    given = [(ad.trace(f, v), [v]) for f, v in differing]
    assert joined._groups(given) == [[0], [1], [2], [3], [4]]


def test_a_group_that_cannot_be_joined_is_run_one_by_one():
    given = elementwise_cases()[:4]
    given[1] = (given[1][0], [np.ones((3, 1)), np.array([["a"] * 4])])
    found = joined.run_joined(given, "jax-cpu", "float64")
    assert isinstance(found[1].device, Exception) and isinstance(found[1].emitted, Exception)
    for i in (0, 2, 3):
        want = ad.interpret(given[i][0], *given[i][1])
        np.testing.assert_allclose(found[i].device[0], want, rtol=1e-13)


def test_a_joined_group_that_fails_is_run_one_by_one():
    op = Op(
        "ODD",
        lambda x: x,
        impl=np.exp,
        batch=batch_broadcasting("ODD"),
        jax="jnp.nosuch",
        elementwise=True,
    )
    points = [np.ones(2), np.ones((2, 3))]
    given = [(ad.trace(lambda v: bind(op, v), x), [x]) for x in points]
    assert joined._groups(given) == [[0, 1]]
    for got in joined.run_joined(given, "jax-cpu", "float32", [True, False]):
        assert isinstance(got.device, LoweringError) and isinstance(got.emitted, LoweringError)


@pytest.mark.parametrize("wrong_at", ["rank 2", "broadcasting"])
def test_a_lowering_that_is_wrong_at_some_shapes_is_seen(monkeypatch, wrong_at):
    def differ(x, y):
        at = {"rank 2": x.ndim == 2, "broadcasting": x.shape != y.shape}[wrong_at]
        return x - y + (1 if at else 0)

    monkeypatch.setenv("GRADSWEEP_FRESH", "1")
    resolve = lower_jax._resolve
    replaced = {"rules:dominance": differ}
    monkeypatch.setattr(lower_jax, "_resolve", lambda name: replaced.get(name) or resolve(name))
    rng = np.random.default_rng(4)
    shapes = [((5,), (5,)), ((2, 3), (2, 3)), ((4,), ()), ((3, 1), (1, 4))]
    points = [[rng.normal(size=s) for s in pair] for pair in shapes]
    given = [(ad.trace(ad.ops.dominance, *p), p) for p in points]
    found = joined.run_joined(given, "jax-cpu", "float64")
    seen = [
        not np.allclose(got.device[0], x - y) for got, (x, y) in zip(found, points, strict=True)
    ]
    assert any(seen)
