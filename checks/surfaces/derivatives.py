"""Surfaces of derivatives: reverse against differences, forward against reverse, second order."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import autodiff as ad
from autodiff.forward import jvp_eval
from autodiff.native import replay
from autodiff.program import Program
from autodiff.reverse import vjp_eval
from autodiff.simplify import simplify
from checks.differences import directional, one_sided
from checks.judge import CheckError, Judge
from checks.modes import pulled, pushed
from checks.subject import Subject
from checks.surfaces.base import HOST, Surface, define, differentiable
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
POINTWISE = frozenset({"kink", "tie"})
UNDEFINED = frozenset({"edge", "singular"})

# --- reverse -------------------------------------------------------------------------------


def _reverse_claims(subject: Subject) -> bool:
    return differentiable(subject) and not subject.tags & UNDEFINED


def _check_reverse(subject: Subject, dtype: str, judge: Judge) -> None:
    del dtype
    points, cts = subject.points, subject.cotangents()
    gradients = subject.gradients
    centre = _centre(subject, judge)
    for g, x in zip(gradients, points, strict=True):
        if g.shape != x.shape or g.dtype != x.dtype:
            raise CheckError(f"gradient is {g.dtype}{g.shape} for an argument {x.dtype}{x.shape}")
    for direction in _directions(subject):
        claimed = sum(_pair(g, t) for g, t in zip(gradients, direction, strict=True))
        if subject.tags & POINTWISE:
            _judge_kink(subject, judge, points, direction, cts, claimed)
        else:
            _judge_smooth(subject, judge, centre, direction, cts, claimed)


def _centre(subject: Subject, judge: Judge) -> list[Array]:
    """The value at the point of what differences are taken of: where that is the traced program,
    it must be the function there.
    """
    if subject.repeated == subject.smooth:
        return subject.outputs
    centre = list(subject.repeated(*subject.points))
    for i, (got, want) in enumerate(zip(centre, subject.outputs, strict=True)):
        judge.compare(f"result {i} of the program", got, want, equal_nan=True, dtype=np.float64)
    return centre


def _directions(subject: Subject) -> list[list[Array]]:
    """A random direction through each argument alone, and two through all together."""
    joint = [subject.tangents("reverse 0"), subject.tangents("reverse 1")]
    if len(subject.points) == 1:
        return joint
    alone = subject.tangents("reverse alone")
    single = [
        [t if i == j else np.zeros_like(t) for j, t in enumerate(alone)]
        for i in range(len(alone))
        if alone[i].size
    ]
    return [joint[0], *single]


def _pair(u: Array, v: Array) -> float:
    return float((u * v).real.sum())


def _judge_smooth(
    subject: Subject,
    judge: Judge,
    centre: Sequence[Array],
    direction: Sequence[Array],
    cts: Sequence[Array],
    claimed: float,
) -> None:
    found = directional(subject.repeated, subject.points, direction, centre)
    judge.evaluations += found[0].evaluations if found else 0
    if not all(np.isfinite(d.estimate).all() for d in found):
        raise CheckError("every step of the difference leaves the domain: move the sample inside")
    expected = sum(_pair(c, d.value) for c, d in zip(cts, found, strict=True))
    terms = sum(float(np.abs(c * d.value).sum()) for c, d in zip(cts, found, strict=True))
    estimate = sum(float((np.abs(c) * d.estimate).sum()) for c, d in zip(cts, found, strict=True))
    scale = terms or 1.0
    size = sum(float((np.abs(c) * d.size).sum()) for c, d in zip(cts, found, strict=True))
    smallest = np.finfo(np.float64).tiny
    if estimate > max(constant("kink_error_estimate") * max(terms, size), smallest):
        raise CheckError(
            f"the difference is too noisy to judge: {expected:.6g} +- {estimate:.2g} against "
            f"{claimed:.9g}; move the sample away from the kink, or tag it"
        )
    floor = constant("richardson_error_factor") * estimate / scale
    judge.number(
        "gradient along a random direction",
        abs(claimed - expected) / scale,
        floor=floor,
        detail=f"derivative {claimed:.12g}, difference {expected:.12g} +- {estimate:.1e}",
    )


def _judge_kink(
    subject: Subject,
    judge: Judge,
    points: Sequence[Array],
    direction: Sequence[Array],
    cts: Sequence[Array],
    claimed: float,
) -> None:
    """At a kink the gradient must lie between the one-sided slopes."""
    left, right, jumps = one_sided(subject.repeated, points, direction)
    if jumps:
        return  # no slope exists on that side: `special` states the convention
    low = high = size = 0.0
    for c, a, b in zip(cts, left, right, strict=True):
        both = np.real(c * a), np.real(c * b)
        low += float(np.sum(np.minimum(*both)))
        high += float(np.sum(np.maximum(*both)))
        size += float(np.sum(np.maximum(np.abs(both[0]), np.abs(both[1]))))
    if not np.isfinite(size):
        raise CheckError("a one-sided slope diverges: the sample is no kink, tag it 'singular'")
    scale = size or 1.0
    outside = max(low - claimed, claimed - high, 0.0) / scale
    judge.number(
        "gradient between one-sided slopes",
        outside,
        floor=constant("one_sided_error"),
        detail=f"derivative {claimed:.9g}, slopes between {low:.9g} and {high:.9g}",
    )


define(
    Surface(
        "reverse",
        "reverse mode against Richardson differences",
        ("float64",),
        _reverse_claims,
        _check_reverse,
        group=HOST,
    )
)

# --- forward -------------------------------------------------------------------------------


def _check_forward(subject: Subject, dtype: str, judge: Judge) -> None:
    del dtype
    if not subject.forward_mode:
        return
    cts, dots = subject.cotangents(), subject.tangents()
    left = [(c, d) for c, d in zip(cts, subject.pushed, strict=True)]
    right = [(g, t) for g, t in zip(subject.gradients, dots, strict=True)]
    forward, reverse = (sum(_pair(u, v) for u, v in side) for side in (left, right))
    terms = sum(float(np.abs(u * v).sum()) for u, v in (*left, *right))
    tiny = 8 * np.finfo(np.float64).tiny
    if not np.isfinite(terms):
        raise CheckError(f"forward {forward!r} and reverse {reverse!r} are not finite")
    judge.number(
        "<u, Jv> against <J^T u, v>",
        abs(forward - reverse) / (terms or 1.0),
        factor=subject.condition,
        floor=tiny / max(terms, tiny),
        detail=f"forward {forward!r}, reverse {reverse!r}",
    )


define(
    Surface(
        "forward",
        "forward mode against reverse mode: <u, Jv> = <J^T u, v>",
        ("float64",),
        _reverse_claims,
        _check_forward,
        group=HOST,
    )
)

# --- second --------------------------------------------------------------------------------


def _second_claims(subject: Subject) -> bool:
    return (
        _reverse_claims(subject)
        and subject.second
        and not subject.tags & (POINTWISE | {"large", "tiny"})  # squares leave the range
        and all(x.dtype.kind != "c" for x in (*subject.points, *subject.outputs))
    )


def _weights(subject: Subject) -> list[tuple[Array, Array]]:
    """Per result the (w, v) of the loss <w, y> + <v, y * y> / 2, which is linear in none of them:
    random, over the result's size and its square.
    """
    sizes = [max(1.0, float(np.max(np.abs(y), initial=0.0))) for y in subject.outputs]
    pairs = zip(subject.cotangents("second 0"), subject.cotangents("second 1"), strict=True)
    return [(w / size, v / size / size) for (w, v), size in zip(pairs, sizes, strict=True)]


def _check_second(subject: Subject, dtype: str, judge: Judge) -> None:
    """Each composition is a transform of a transform's program: forward and reverse mode of the
    gradient's, and of the slope's (the tangent along v), with equal equations done once.
    """
    del dtype
    points = subject.points
    u, v = subject.tangents("second u"), subject.tangents("second v")
    gradient = simplify(ad.trace(lambda *p: _gradient(subject, p), *points))
    found = directional(_repeated(subject, gradient), points, v)
    reverse_reverse = pulled(gradient, points, v)
    for name, value in _compositions(subject, gradient, u, v).items():
        _judge_bilinear(judge, name, value, u, reverse_reverse)
    for i, (h, d) in enumerate(zip(reverse_reverse, found, strict=True)):
        if not np.isfinite(d.estimate).all():
            raise CheckError("every step of the difference leaves the domain")
        scale = max(float(np.max(np.abs(d.value), initial=0.0)), np.finfo(np.float64).tiny)
        worst = float(np.max(d.estimate, initial=0.0)) / scale
        judge.compare(
            f"Hessian row {i} against differences of the gradient",
            _symmetrised(subject, i, h),
            _symmetrised(subject, i, d.value),
            scale=scale,
            floor=constant("richardson_error_factor") * worst,
        )


def _gradient(subject: Subject, points: Sequence[Any]) -> list[Any]:
    """The gradient of the loss: the results' cotangents are w + v * y."""
    program = subject.smooth_program
    outs, pullback = vjp_eval(program, points)
    cts = [w + v * y for y, (w, v) in zip(outs, _weights(subject), strict=True)]
    found = zip(pullback(cts), program.in_specs, strict=True)
    return [np.zeros(s.shape, s.dtype) if g is None else g for g, s in found]


def _slope(subject: Subject, points: Sequence[Any], direction: Sequence[Any]) -> Any:
    """The tangent of the loss."""
    outs, dots = jvp_eval(subject.smooth_program, points, direction)
    total: Any = np.zeros(())
    for y, dot, (w, v) in zip(outs, dots, _weights(subject), strict=True):
        if dot is not None:
            total = total + np.sum((w + v * y) * dot)
    return total


def _repeated(subject: Subject, gradient: Program) -> Any:
    """The gradient as a function of the points; one with Python branches is traced anew at each."""
    if not subject.branches:
        again = replay(gradient)
        return lambda *p: again(p)
    weights, nums = _weights(subject), tuple(range(len(subject.points)))

    def loss(*points: Any) -> Any:
        outs = zip(subject.smooth(*points), weights, strict=True)
        return sum(np.sum(y * (w + 0.5 * v * y)) for y, (w, v) in outs)

    return lambda *p: list(ad.grad(loss, nums)(*p))


def _symmetrised(subject: Subject, i: int, h: Array) -> Array:
    leaf = subject.positions[i]
    return (h + np.swapaxes(h, -1, -2)) / 2 if leaf in subject.symmetric_leaves else np.asarray(h)


def _compositions(
    subject: Subject, gradient: Program, u: Sequence[Array], v: Sequence[Array]
) -> dict[str, float]:
    """u^T H v by the compositions that use forward mode."""
    if not subject.forward_mode:
        return {}
    points, one = subject.points, np.ones(())
    slope = simplify(ad.trace(lambda *p: _slope(subject, p, v), *points))
    rows = pushed(gradient, points, v)
    columns = pulled(slope, points, [one])
    return {
        "forward over reverse": sum(_pair(a, b) for a, b in zip(u, rows, strict=True)),
        "reverse over forward": sum(_pair(a, b) for a, b in zip(u, columns, strict=True)),
        "forward over forward": float(pushed(slope, points, u)[0]),
    }


def _judge_bilinear(
    judge: Judge, name: str, value: float, u: Sequence[Array], rows: Sequence[Array]
) -> None:
    expected = sum(_pair(a, b) for a, b in zip(u, rows, strict=True))
    terms = sum(float(np.abs(a * b).sum()) for a, b in zip(u, rows, strict=True))
    tiny = 8 * np.finfo(np.float64).tiny / np.finfo(np.float64).eps
    judge.number(
        f"{name} against reverse over reverse",
        abs(value - expected) / (terms or 1.0),
        floor=tiny / max(terms, tiny),
        detail=f"{value!r} against {expected!r}",
    )


define(
    Surface(
        "second",
        "the four compositions of modes, and differences of the gradient",
        ("float64",),
        _second_claims,
        _check_second,
        group=HOST,
    )
)
