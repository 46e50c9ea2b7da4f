"""Calls of an op's rules at the catalogue's samples and at points near them, with what is right."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import autodiff as ad
from autodiff import tree
from autodiff.forward import is_inexact
from autodiff.op import OPS, Op
from autodiff.tracer import Tracer
from checks.power.inject import mutated
from checks.power.rules import Call, Rule, flat_values, results_of, rules_of
from checks.subject import Subject
from checks.tolerances import constant

NO_DERIVATIVE = frozenset({"edge", "singular", "nonfinite"})
MAPPED = 3


def calls_of(kind: str, subjects: Sequence[Subject]) -> list[Call]:
    """Every call of the op's rules (derived ones too) on arrays while its samples, and two points
    near each, are differentiated in both modes and batched; the smallest first.
    """
    op, found = OPS[kind], list[Call]()
    label = [""]
    wrapped = {name: _recorder(op, name, rule, found, label) for name, rule in rules_of(op).items()}
    with mutated(kind, **wrapped), np.errstate(all="ignore"):
        for subject in subjects:
            if subject.special is None:
                label[0] = subject.sample
                _exercise(_fresh(subject))
                for other in _nearby(subject):
                    _exercise(other, batch=False)
    return sorted(found, key=lambda call: call.size)


def _recorder(op: Op, name: str, rule: Rule, found: list[Call], label: list[str]) -> Rule:
    def recorded(*args: Any, **params: Any) -> Any:
        result = rule(*args, **params)
        if not any(isinstance(v, Tracer) for v in flat_values((args, tuple(params.values())))):
            right = tuple(None if r is None else np.array(r) for r in results_of(op, name, result))
            found.append(Call(name, label[0], args, params, right))
        return result

    return recorded


def _fresh(subject: Subject) -> Subject:
    """The same subject without the programs it has traced."""
    return dataclasses.replace(subject)


def _exercise(subject: Subject, batch: bool = True) -> None:
    """Call the rules: differentiate in both modes, then map all leaves, and each alone."""
    if subject.differentiable and not subject.tags & NO_DERIVATIVE:
        points = subject.points
        if subject.forward_mode:
            ad.jvp(subject.smooth, tuple(points), tuple(subject.tangents("power")))
        ad.vjp(subject.smooth, *points)[1](subject.cotangents("power"))
    if batch and subject.leaves and not _branches(subject):
        rng = subject.rng("power rows")
        stacks = [np.stack([_row(rng, x, b) for b in range(MAPPED)]) for x in subject.leaves]
        for axes in _axes(len(subject.leaves)):
            stacked = [
                x if a is None else stack
                for x, stack, a in zip(subject.leaves, stacks, axes, strict=True)
            ]
            ad.vmap(_flat_function(subject), axes)(*stacked)


def _row(rng: np.random.Generator, leaf: Any, b: int) -> Any:
    """A row unlike its neighbours: not one that the vmap surface would make."""
    if leaf.dtype.kind in "fc":
        moved = leaf * (1.0 + constant("power_near") * rng.normal(size=leaf.shape) * (b > 0))
        ordered = leaf.ndim == 1 and bool(np.all(np.diff(leaf.real) > 0))
        return rng.permutation(moved) if leaf.ndim == 1 and not ordered else moved
    if leaf.dtype.kind == "b":
        return leaf ^ bool(b % 2)
    if leaf.size == 1:
        return np.maximum(leaf, b) - b
    return np.roll(leaf.ravel(), b).reshape(leaf.shape)


def _branches(subject: Subject) -> bool:
    return any(eq.op.kind == "GUARD" for eq in subject.program.equations)


def _flat_function(subject: Subject) -> Callable[..., list[Any]]:
    return lambda *leaves: list(tree.flatten(subject.call_leaves(*leaves))[0])


def _axes(count: int) -> list[tuple[int | None, ...]]:
    alone = [tuple(0 if i == j else None for j in range(count)) for i in range(count)]
    return [(0,) * count, *(alone if 1 < count <= 4 else [])]


def _nearby(subject: Subject) -> Iterator[Subject]:
    """The subject at a random point near its own, and at one near zero; where values exist."""
    if not subject.differentiable or subject.tags & (NO_DERIVATIVE | {"large", "tiny"}):
        return
    for scale in (1.0, constant("power_shrunk")):
        other = _moved(subject, scale)
        if all(np.all(np.isfinite(y)) for y in other.outputs):
            yield other


def _moved(subject: Subject, scale: float) -> Subject:
    rng, share = subject.rng("power near"), constant("power_near")
    leaves = list(subject.leaves)
    for i in subject.positions:
        x = leaves[i]
        noise = np.asarray(rng.normal(size=x.shape))
        if i in subject.symmetric_leaves:
            noise = noise + np.swapaxes(noise, -1, -2)
        leaves[i] = np.asarray(scale * x * (1.0 + share * noise), x.dtype)
    return dataclasses.replace(subject, args=tree.unflatten(subject._flat[1], leaves))


def difference(right: Sequence[Any], wrong: Sequence[Any]) -> float:
    """The largest relative difference of a rule's results: of each array, to its largest entry
    (arrays that are 0 throughout: to the largest of all). Infinite where forms differ.
    """
    sizes = [_size(r) for r in right]
    overall, worst = max(sizes, default=0.0), 0.0
    if len(right) != len(wrong):
        return np.inf
    for r, w, size in zip(right, wrong, sizes, strict=True):
        if r is None and w is None:
            continue
        r, w = _array(r, w), _array(w, r)
        if r.shape != w.shape or r.dtype != w.dtype:
            return np.inf
        if not is_inexact(r.dtype):
            worst = max(worst, np.inf if np.any(r != w) else 0.0)
            continue
        finite = np.isfinite(r)
        error = np.abs(w[finite] - r[finite])
        largest = float(np.max(np.where(np.isnan(error), np.inf, error), initial=0.0))
        if largest:
            worst = max(worst, largest / (size or overall) if size or overall else np.inf)
    return worst


def _size(value: Any) -> float:
    if value is None or not is_inexact(np.asarray(value).dtype):
        return 0.0
    finite = np.abs(value[np.isfinite(value)])
    return float(np.max(finite, initial=0.0))


def _array(value: Any, like: Any) -> Any:
    return np.zeros_like(like) if value is None else np.asarray(value)
