"""Entries of control ops: each function is a small program that uses the op."""

from collections.abc import Iterable
from typing import Any

import numpy as np

import autodiff as ad
from catalogue.domain import POSITIVE, REAL, Domain
from catalogue.entry import Entry, Sample, Special, define

Rng = np.random.Generator


def _branch(x: Any) -> Any:
    return np.where(x > 0, x * x, -x) if np.sum(x) > 0 else np.exp(x)


def _guarded(x: Any) -> Any:
    """A Python branch on a concrete value: recorded as a GUARD."""
    return _branch(x)


def _guard_samples(rng: Rng) -> Iterable[Sample]:
    yield Sample("taken", (POSITIVE.draw(rng, (3,)),))
    yield Sample("not_taken", (-POSITIVE.draw(rng, (3,)),))
    yield Sample("scalar", (np.asarray(0.7),))
    yield Sample("matrix", (POSITIVE.draw(rng, (2, 2)),))


define(Entry("GUARD", _guarded, _guard_samples))


def _arrays(domain: Domain) -> Any:
    def samples(rng: Rng) -> Iterable[Sample]:
        yield Sample("scalar", (domain.draw(rng),))
        yield Sample("empty", (np.zeros((0,)),), tags=frozenset({"empty"}))
        yield Sample("one", (domain.draw(rng, (1,)),))
        yield Sample("vector", (domain.draw(rng, (4,)),))
        yield Sample("matrix", (domain.draw(rng, (2, 3)),))

    return samples


def _stopped(x: Any) -> Any:
    return ad.stop_gradient(x)


define(
    Entry(
        "STOP_GRADIENT",
        _stopped,
        _arrays(REAL),
        specials=(
            Special("zero_derivative", (2.0,), 2.0, cotangent=3.0, gradients=(0.0,)),
            Special("zero_tangent", (2.0,), 2.0, tangents=(5.0,), tangent=0.0),
        ),
    )
)


def _tapped(x: Any) -> Any:
    return ad.tap("catalogue.tap", x * x) * x


define(Entry("TAP", _tapped, _arrays(REAL)))


def _checkpointed(x: Any, w: Any) -> Any:
    return ad.checkpoint(lambda a, b: np.exp(a * b) / (1.0 + a * a))(x, w)


def _checkpoint_samples(rng: Rng) -> Iterable[Sample]:
    for name, shape in (("scalar", ()), ("vector", (3,)), ("empty", (0,)), ("matrix", (2, 3))):
        yield Sample(name, (REAL.draw(rng, shape), REAL.draw(rng, shape)))
    yield Sample("broadcast", (REAL.draw(rng, (2, 1)), REAL.draw(rng, (3,))))


define(Entry("CHECKPOINT", _checkpointed, _checkpoint_samples))


def _if(predicate: Any, x: Any) -> Any:
    return ad.cond(predicate, lambda v: np.log(v) * v, lambda v: v * v - np.exp(-v), x)


def _if_samples(rng: Rng) -> Iterable[Sample]:
    for flag in (True, False):
        name = "true" if flag else "false"
        yield Sample(f"{name}_scalar", (np.asarray(flag), POSITIVE.draw(rng)))
        yield Sample(f"{name}_matrix", (np.asarray(flag), POSITIVE.draw(rng, (2, 3))))
        yield Sample(f"{name}_empty", (np.asarray(flag), np.zeros((0,))))
    # log(0) in the branch not taken must not poison the derivative
    yield Sample("false_at_pole", (np.asarray(False), np.array([0.0, 1.0, 2.0])))


define(
    Entry(
        "IF",
        _if,
        _if_samples,
        specials=(
            Special(
                "untaken_pole", (np.asarray(False), 0.0), -1.0, cotangent=2.0, gradients=(2.0,)
            ),
        ),
    )
)


def _while(x: Any, rate: Any) -> Any:
    """Grow x by 1 + rate until its sum passes 10; each row of a batch takes its own steps."""

    def going(state: Any) -> Any:
        return np.sum(state[0]) < 10.0

    def step(state: Any) -> Any:
        value, count = state
        return value * (1.0 + rate) + 0.1 * value * value, count + 1.0

    value, count = ad.while_loop(going, step, (x, np.zeros((), x.dtype)), max_steps=12)
    return value * count


def _while_samples(rng: Rng) -> Iterable[Sample]:
    yield Sample("scalar", (np.asarray(0.9), np.asarray(0.8)))
    yield Sample("vector", (POSITIVE.draw(rng, (3,)), np.asarray(0.5)))
    yield Sample("rates", (POSITIVE.draw(rng, (3,)), POSITIVE.draw(rng, (3,))))
    yield Sample("no_steps", (np.full((2,), 9.0), np.asarray(0.5)))
    yield Sample("hits_bound", (np.full((2,), -1.0), np.asarray(0.01)))
    yield Sample("matrix", (POSITIVE.draw(rng, (2, 2)), np.asarray(0.7)))


define(Entry("WHILE", _while, _while_samples, contracts=True))


def _scan(init: Any, xs: Any, *, reverse: bool = False) -> Any:
    def step(carry: Any, x: Any) -> Any:
        new = np.exp(-carry * x) + 0.5 * x
        return new, carry * new

    return ad.scan(step, init, xs, reverse=reverse)


def _scan_samples(rng: Rng) -> Iterable[Sample]:
    yield Sample("scalars", (REAL.draw(rng), POSITIVE.draw(rng, (5,))))
    yield Sample("reverse", (REAL.draw(rng), POSITIVE.draw(rng, (5,))), {"reverse": True})
    yield Sample("vectors", (REAL.draw(rng, (3,)), POSITIVE.draw(rng, (4, 3))))
    yield Sample("length_0", (REAL.draw(rng, (3,)), np.zeros((0, 3))))
    yield Sample("length_1", (REAL.draw(rng, (2,)), POSITIVE.draw(rng, (1, 2))))
    yield Sample("broadcast_rows", (REAL.draw(rng, (2, 3)), POSITIVE.draw(rng, (3, 3))))


define(Entry("SCAN", _scan, _scan_samples, contracts=True))


@ad.custom_jvp
def _softened(x: Any, scale: Any) -> Any:
    return np.exp(x) * scale


@_softened.defjvp
def _softened_rule(primals: Any, tangents: Any) -> Any:
    (x, scale), (x_dot, scale_dot) = primals, tangents
    y = _softened(x, scale)
    return y, y * x_dot + np.exp(x) * scale_dot


def _pairs(rng: Rng) -> Iterable[Sample]:
    for name, shape in (("scalar", ()), ("vector", (3,)), ("empty", (0,)), ("matrix", (2, 3))):
        yield Sample(name, (REAL.draw(rng, shape), REAL.draw(rng, shape)))
    yield Sample("one", (REAL.draw(rng, (1,)), REAL.draw(rng, (1,))))


def _custom_jvp(x: Any, scale: Any) -> Any:
    return _softened(x, scale)


define(Entry("CUSTOM_JVP", _custom_jvp, _pairs))


@ad.custom_vjp
def _product(x: Any, scale: Any) -> Any:
    return np.exp(x) * scale


def _product_fwd(x: Any, scale: Any) -> Any:
    e = np.exp(x)
    return e * scale, (e, scale)


def _product_bwd(residuals: Any, ct: Any) -> Any:
    e, scale = residuals
    return ct * e * scale, ct * e


_product.defvjp(_product_fwd, _product_bwd)


def _custom_vjp(x: Any, scale: Any) -> Any:
    return _product(x, scale)


define(Entry("CUSTOM_VJP", _custom_vjp, _pairs))
