"""The vmap surface: every mapping of axes against a loop, distinct rows, batches 0, 1 and 3."""

import itertools
from typing import Any

import numpy as np

import autodiff as ad
from autodiff import tree
from autodiff.batch import batch_program
from autodiff.program import sub_programs
from checks.judge import CheckError, Judge
from checks.subject import Subject
from checks.surfaces.base import Surface, define, ordinary

Array = np.ndarray[Any, Any]
Axes = tuple[int | None, ...]


def rows(leaf: Array, count: int) -> list[Array]:
    """Distinct rows made of one leaf, inside its domain: scaled floats, rotated integers,
    alternating bools.
    """
    made = []
    for b in range(count):
        if leaf.dtype.kind in "fc":
            made.append(np.asarray(leaf * (1.0 + 0.01 * b)))
        elif leaf.dtype.kind == "b":
            made.append(np.asarray(leaf ^ bool(b % 2)))
        else:
            made.append(np.roll(leaf.ravel(), b).reshape(leaf.shape))
    return made


def _check_vmap(subject: Subject, dtype: str, judge: Judge) -> None:
    del dtype
    if any(eq.op.kind == "GUARD" for eq in subject.program.equations):
        return  # a Python branch is decided by one example
    leaves = subject.leaves
    ones: Axes = tuple(0 for _ in leaves)
    for axes in _combinations(subject):
        _compare_loop(subject, judge, axes, 3, out_axis=0)
    if subject.thorough:
        _compare_loop(subject, judge, ones, 3, out_axis=-1)
        _compare_loop(subject, judge, ones, 1, out_axis=0)
        _compare_loop(subject, judge, ones, 0, out_axis=0)
    _compare_counts(subject)
    if subject.differentiable and not subject.tags & {"edge", "singular", "nonfinite"}:
        _compare_gradients(subject, judge)


def _combinations(subject: Subject) -> list[Axes]:
    """Mapped axes per leaf: all of (None, 0, -1) for thorough subjects, else all and each alone."""
    leaves = subject.leaves
    if subject.thorough and len(leaves) <= 3:
        options = [(None, 0, -1) if leaf.ndim else (None, 0) for leaf in leaves]
        return [c for c in itertools.product(*options) if any(a is not None for a in c)]
    alone: list[Axes] = []
    if 1 < len(leaves) <= 4:
        alone = [
            tuple(0 if i == j else None for j in range(len(leaves))) for i in range(len(leaves))
        ]
    return [tuple(0 for _ in leaves), *alone]


def _stacked(leaf: Array, axis: int | None, count: int) -> Array:
    if axis is None:
        return leaf
    if not count:
        return np.moveaxis(np.zeros((0, *leaf.shape), leaf.dtype), 0, axis)
    return np.stack(rows(leaf, count), axis=axis)


def _compare_loop(subject: Subject, judge: Judge, axes: Axes, count: int, out_axis: int) -> None:
    stacked = [_stacked(x, a, count) for x, a in zip(subject.leaves, axes, strict=True)]
    single = [_stacked(x, None, count) for x in subject.leaves]

    def function(*leaves: Any) -> list[Any]:
        return list(tree.flatten(subject.call_leaves(*leaves))[0])

    with np.errstate(all="ignore"):
        batched = ad.vmap(function, axes, out_axis)(*stacked)
        loop = [
            function(
                *(
                    x if a is None else np.take(s, b, axis=a)
                    for x, s, a in zip(single, stacked, axes, strict=True)
                )
            )
            for b in range(count)
        ]
    label = f"batch {count}, in_axes {axes}, out_axes {out_axis}"
    for i, got in enumerate(batched):
        spec = subject.program.out_specs[i]
        got = np.moveaxis(got, out_axis, 0)
        if got.dtype != spec.dtype or got.shape != (count, *spec.shape):
            raise CheckError(f"{label}: result {i} is {got.dtype}{got.shape}, not {count} x {spec}")
        if count:
            want = np.stack([np.asarray(row[i]) for row in loop])
            _compare(subject, judge, f"{label}, result {i}", got, want)


def _compare(subject: Subject, judge: Judge, label: str, got: Array, want: Array) -> None:
    variant = "reducing" if subject.contracts or subject.gauge is not None else None
    judge.compare(label, got, want, variant=variant, equal_nan=True)


def _compare_counts(subject: Subject) -> None:
    """No rule loops over the batch: as many equations for 3 rows as for 300."""
    flags = (True,) * len(subject.leaves)
    small, large = (_equations(batch_program(subject.program, size, flags)[0]) for size in (3, 300))
    if small != large:
        raise CheckError(f"a batching rule loops: {small} equations for 3 rows, {large} for 300")


def _equations(program: Any) -> int:
    return sum(1 + sum(_equations(p) for p in sub_programs(eq.params)) for eq in program.equations)


def _compare_gradients(subject: Subject, judge: Judge) -> None:
    """vmap of the gradient against gradients of rows; gradient of a vmap likewise."""
    points = subject.points
    weights = subject.cotangents("vmap")
    nums = tuple(range(len(points)))
    stacks = [np.stack(rows(x, 3)) for x in points]

    def loss(*p: Any) -> Any:
        total: Any = 0.0
        for y, w in zip(subject.smooth(*p), weights, strict=True):
            total = total + np.sum(np.real(y * w))
        return total

    def batch_loss(*p: Any) -> Any:
        return np.sum(ad.vmap(loss)(*p))

    with np.errstate(all="ignore"):
        one_by_one = [ad.grad(loss, nums)(*(s[b] for s in stacks)) for b in range(3)]
        inside = ad.vmap(ad.grad(loss, nums))(*stacks)
        outside = ad.grad(batch_loss, nums)(*stacks)
    for i in nums:
        want = np.stack([np.asarray(row[i]) for row in one_by_one])
        scale = _scale(want)
        for label, got in (("vmap of grad", inside[i]), ("grad of vmap", outside[i])):
            judge.compare(
                f"{label}, argument {i}",
                got,
                want,
                scale=scale,
                variant="reducing",
                equal_nan=bool(subject.tags),
            )


def _scale(want: Array) -> Array:
    finite = np.abs(want[np.isfinite(want)])
    return np.full(want.shape, max(1.0, float(np.max(finite, initial=0.0))))


def _claims(subject: Subject) -> bool:
    return ordinary(subject) and bool(subject.leaves)


define(
    Surface("vmap", "vmap against a loop over distinct rows", ("float64",), _claims, _check_vmap)
)

__all__ = ["rows"]
