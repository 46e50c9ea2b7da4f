"""Fan-out in a JAX function: the part of a gradient that comes through each use of a value.

The function's jaxpr is flattened first (jit, custom rules and checkpoints are replaced by what they
evaluate), so that the parts are JAX's own derivatives, not those of a custom rule.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from checks.gradients.diagnosis.culprit_jax import evaluate, inner_of, source_line
from checks.gradients.diagnosis.trial import Trial
from checks.gradients.target import wide

Array = np.ndarray[Any, Any]
USES = 16
LOOPS = ("cond", "scan", "while")
Parts = list[tuple[str, Array]]


def contributions(trial: Trial, point: int) -> Iterator[tuple[str, Parts]]:
    """Per value read more than once: the parts of the gradient of a point through each use."""
    import jax

    target = trial.target
    natives = target.native(target.points)
    try:
        closed = jax.make_jaxpr(lambda *arrays: _flattened(target, arrays))(*natives)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):  # Python looks at its values
        return
    jaxpr = closed.jaxpr
    sites: dict[Any, list[tuple[int, int]]] = {}
    for n, eqn in enumerate(jaxpr.eqns):
        for i, a in enumerate(eqn.invars):
            if not hasattr(a, "val") and np.issubdtype(a.aval.dtype, np.inexact):
                sites.setdefault(a, []).append((n, i))
    still = _values(closed, natives)
    for var, found in sites.items():
        if trial.spent:
            return
        if not 2 <= len(found) <= USES:
            continue
        parts: Parts = []
        for site in found:
            part = _through(trial, closed, still, point, var, site)
            parts.append((source_line(jaxpr.eqns[site[0]]) or "", part))
        made = next((e for e in jaxpr.eqns if var in e.outvars), None)
        if made is not None:
            yield f"the result of {made.primitive.name}", parts
        elif var in jaxpr.invars:
            yield target.point_paths[jaxpr.invars.index(var)], parts


def _flattened(target: Any, arrays: Sequence[Any]) -> list[Any]:
    """The function with what it calls in its place."""
    import jax

    closed = jax.make_jaxpr(lambda *given: target.flat(given))(*arrays)
    return _run(closed.jaxpr, closed.consts, arrays)


def _run(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    for eqn in jaxpr.eqns:
        values = [a.val if hasattr(a, "val") else env[a] for a in eqn.invars]
        inner = None if eqn.primitive.name in LOOPS else inner_of(eqn, values, customs=True)
        outs = evaluate(eqn, values) if inner is None else _run(*inner)
        env.update(zip(eqn.outvars, outs, strict=True))
    return [a.val if hasattr(a, "val") else env[a] for a in jaxpr.outvars]


def _values(closed: Any, given: Sequence[Any], until: Any = None) -> dict[Any, Any]:
    """The value of every variable; no further than `until` where it is given."""
    env: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(closed.jaxpr.invars, given, strict=True))
    for eqn in closed.jaxpr.eqns:
        if until is not None and until in env:
            break
        values = [a.val if hasattr(a, "val") else env[a] for a in eqn.invars]
        env.update(zip(eqn.outvars, evaluate(eqn, values), strict=True))
    return env


def _through(
    trial: Trial, closed: Any, still: dict[Any, Any], point: int, var: Any, site: tuple[int, int]
) -> Array:
    """The gradient through one use: that use reads `var`, all others its value held still."""
    import jax

    jaxpr, target = closed.jaxpr, trial.target
    natives = [still[v] for v in jaxpr.invars]

    def flat(x: Any) -> list[Any]:
        given = [x if k == point else p for k, p in enumerate(natives)]
        moving = _values(closed, given, var)[var]
        moved: dict[Any, Any] = {}
        for n, eqn in enumerate(jaxpr.eqns):
            if n != site[0] and not any(not hasattr(a, "val") and a in moved for a in eqn.invars):
                continue
            reads = [
                moving if (n, i) == site else a.val if hasattr(a, "val") else moved.get(a, still[a])
                for i, a in enumerate(eqn.invars)
            ]
            moved.update(zip(eqn.outvars, evaluate(eqn, reads), strict=True))
        return [a.val if hasattr(a, "val") else moved.get(a, still[a]) for a in jaxpr.outvars]

    _, pull = jax.vjp(flat, natives[point])
    original = target.originals[target.positions[0]]
    cotangents = [
        target.framework.native(np.asarray(u, y.dtype), original)
        for u, y in zip(trial.evidence.cotangents, target.centre, strict=True)
    ]
    (part,) = pull(cotangents)
    return wide(target.to_numpy(part))
