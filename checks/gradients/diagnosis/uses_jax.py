"""Fan-out in a JAX function: the part of a gradient that comes through each use of a value.

The function's jaxpr is flattened first (jit, custom rules and checkpoints are replaced by what they
evaluate), so that the parts are JAX's own derivatives, not those of a custom rule.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from checks.gradients.diagnosis.culprit_jax import LOOPS, evaluate, inner_of, source_line
from checks.gradients.diagnosis.uses import USES, Use
from checks.gradients.target import Target, pair

Array = np.ndarray[Any, Any]


def uses(
    target: Target, cotangents: Sequence[Array], directions: Sequence[Sequence[Array]]
) -> Iterator[Use]:
    """The uses of every value that is read more than once, as `diagnosis.uses` has them."""
    import jax

    natives = target.native(target.points)
    try:
        closed = jax.make_jaxpr(lambda *arrays: _flattened(target, arrays))(*natives)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):  # Python looks at its values
        return
    jaxpr = closed.jaxpr
    sites = _sites(jaxpr)
    values = list(dict.fromkeys(var for var, _ in sites))
    places = {place: k for k, (_, place) in enumerate(sites)}

    def spread(*zeros: Any) -> list[Any]:
        env = _run_with(closed, natives, {p: zeros[k] for p, k in places.items()})
        return [a.val if hasattr(a, "val") else env[a] for a in jaxpr.outvars]

    def every(*given: Any) -> list[Any]:
        env = _run_with(closed, given, {})
        return [env[v] for v in values]

    like = target.originals[target.positions[0]]
    cts = [target.framework.native(u, like) for u in cotangents]
    zeros = [jax.numpy.zeros(v.aval.shape, v.aval.dtype) for v, _ in sites]
    try:
        _, pull = jax.vjp(spread, *zeros)
        bars = pull(cts)
        dots = [jax.jvp(every, tuple(natives), tuple(target.native(d)))[1] for d in directions]
    except (TypeError, ValueError, NotImplementedError):  # a part without one of the modes
        return
    makers = {v: e.primitive.name for e in jaxpr.eqns for v in e.outvars}
    inputs = dict(zip(jaxpr.invars, target.point_paths, strict=True))
    for (var, (n, _)), bar in zip(sites, bars, strict=True):
        name = inputs.get(var) or f"the result of {makers[var]}"
        k = values.index(var)
        through = tuple(pair([target.to_numpy(bar)], [target.to_numpy(d[k])]) for d in dots)
        yield Use(name, source_line(jaxpr.eqns[n]), through)


def _sites(jaxpr: Any) -> list[tuple[Any, tuple[int, int]]]:
    """The uses of values that are read more than once: value, equation and place."""
    made = {*jaxpr.invars, *(v for e in jaxpr.eqns for v in e.outvars)}  # others are constants
    found: dict[Any, list[tuple[int, int]]] = {}
    for n, eqn in enumerate(jaxpr.eqns):
        for i, a in enumerate(eqn.invars):
            if not hasattr(a, "val") and a in made and np.issubdtype(a.aval.dtype, np.inexact):
                found.setdefault(a, []).append((n, i))
    return [(v, p) for v, places in found.items() if 2 <= len(places) <= USES for p in places]


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


def _run_with(
    closed: Any, given: Sequence[Any], more: Mapping[tuple[int, int], Any]
) -> dict[Any, Any]:
    """The value of every variable, with something added to what some equations read."""
    env: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(closed.jaxpr.invars, given, strict=True))
    for n, eqn in enumerate(closed.jaxpr.eqns):
        reads = [a.val if hasattr(a, "val") else env[a] for a in eqn.invars]
        reads = [r + more[n, i] if (n, i) in more else r for i, r in enumerate(reads)]
        env.update(zip(eqn.outvars, evaluate(eqn, reads), strict=True))
    return env
