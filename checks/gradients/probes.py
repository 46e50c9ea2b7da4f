"""Probes of the function itself: does it run twice alike, and leave its arguments alone."""

import dataclasses
from typing import Any

import numpy as np

from checks.gradients.evidence import moved_points
from checks.gradients.report import (
    DOMAIN,
    MUTATES_INPUT,
    NONDETERMINISTIC,
    NOT_DIFFERENTIABLE,
    Check,
)
from checks.gradients.target import Target, equal, unit_of
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
MOVED = 2.0**-6


def probe(target: Target, notes: list[str]) -> list[Check]:
    """The failed probes of a function at its point; small run-to-run differences are noted."""
    found = [*_mutation(target), *_repeated(target, notes)]
    notes += getattr(target.function, "notes", [])  # a module's: what its calls write
    notes += _held_fixed(target)
    if not target.smooth:
        kinds = ", ".join(y.dtype.name for y in target.first[0]) or "nothing"
        text = f"{target.name} returns {kinds}: no result has a derivative"
        return [*found, Check("probe", NOT_DIFFERENTIABLE, detail=text)]
    for i, y in zip(target.smooth, target.centre, strict=True):
        bad = int(np.sum(~np.isfinite(y)))
        if bad:
            text = f"result {i} is not finite at the point itself ({bad} of {y.size} entries)"
            found.append(Check("probe", DOMAIN, detail=text))
    return found


def _held_fixed(target: Target) -> list[str]:
    """A note where arguments of integers or bools stand beside the differentiated ones."""
    kinds = [
        f"{path} ({leaf.dtype.name})"
        for path, leaf in zip(target.paths, target.leaves, strict=True)
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biu" and leaf.ndim
    ]
    return [f"held fixed: {', '.join(kinds)}"] if kinds and target.argnums is None else []


def _mutation(target: Target) -> list[Check]:
    """Call once with arrays that are compared afterwards, the differentiated ones and the rest."""
    framework = target.framework
    numeric = [i for i, leaf in enumerate(target.leaves) if isinstance(leaf, np.ndarray)]
    full = list(target.leaves)
    for i in numeric:
        full[i] = framework.native(target.leaves[i], target.originals[i])
    from autodiff import tree

    target.tally.calls += 1
    leaves, treedef = tree.flatten(target.function(*tree.unflatten(target._flat[1], full)))
    values = [np.array(target.to_numpy(y)) for y in leaves]
    target.__dict__["first"] = (values, treedef)
    found = []
    for i in numeric:
        if framework.dead(full[i]):  # donated: nothing is left of the copy it was given
            continue
        after, before = target.to_numpy(full[i]), target.leaves[i]
        if not equal(after, before):
            where = np.argwhere(np.atleast_1d(after != before))
            text = (
                f"{target.name} writes into {target.paths[i]}: {len(where)} of {before.size} "
                f"entries changed, first at {where[0].tolist()}; work on a copy"
            )
            found.append(Check("probe", MUTATES_INPUT, detail=text))
    return found


def _raised(target: Target) -> str:
    return f"; the second raised {target.tally.refused}" if target.tally.refused else ""


def _repeated(target: Target, notes: list[str]) -> list[Check]:
    second = target.outputs(target.points)
    inputs = sum(x.size for x in target.points)
    for i, a, b in zip(target.smooth, target.centre, second, strict=True):
        if a.shape != b.shape:
            text = f"result {i} has shape {a.shape}, then {b.shape}: two calls differ"
            return [Check("probe", NONDETERMINISTIC, detail=text)]
        if equal(a, b):
            continue
        gaps = np.abs(a.astype(complex) - b.astype(complex))
        alike = np.array_equal(np.isnan(a), np.isnan(b))
        worst = float(np.max(gaps, initial=0.0, where=~np.isnan(gaps))) if alike else np.inf
        size = float(np.nanmax(np.abs(a.astype(complex)), initial=0.0))
        reordering = constant("nondeterminism_units") * inputs * unit_of(a.dtype)
        if worst <= min(reordering, constant("nondeterminism_note")) * size:
            notes.append(f"two calls differ by {worst:.1e} in result {i}: an order of summation")
            continue
        text = (
            f"two calls with equal arguments differ by {worst:.3g} in result {i} "
            f"(size {size:.3g}){_raised(target)}: "
            "fix the random numbers (pass a seed or key), or switch to evaluation mode"
        )
        return [Check("probe", NONDETERMINISTIC, detail=text)]
    return []


def recorded(target: Target) -> Target:
    """A JAX function with a loop outside of jit, by the equations that JAX records of it: at every
    call of its own the loop is compiled anew. Only where they give the same bits at two points.
    """
    if target.framework.name != "jax" or target.manual.given:
        return target
    from checks.gradients.frameworks.jax import has_loops

    natives = target.native(target.points)
    if not has_loops(target.flat, natives):
        return target
    made = dataclasses.replace(target, replay=target.framework.replay(target.flat, natives))
    made.__dict__.update(first=target.first, _fixed=target._fixed)
    for points in (target.points, moved_points(target, target.direction(), MOVED)):
        both = zip(target.outputs(points), made.outputs(points), strict=True)
        if not all(equal(a, b) for a, b in both):
            return target
    return made
