"""JAX functions of the control primitives: `control_<kind>(evaluate, *arrays, **params)`.

`evaluate(program, *arrays)` gives a sub-program's results; guards and taps inside are dropped, as
their values cannot leave a JAX loop. `evaluate.with_effects(program, *arrays)` returns them beside
the results, and `evaluate.keep(effects)` hands them on where the sub-program ran unconditionally.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from autodiff.program import Program
from autodiff.subprogram import Rule


def control_if(evaluate: Any, predicate: Any, *operands: Any, branches: Any) -> Any:
    """One of two sub-programs."""
    yes, no = (lambda *args, b=b: evaluate(b, *args) for b in branches)
    return lax.cond(predicate, yes, no, *operands)


def control_while(
    evaluate: Any, *args: Any, cond: Program, body: Program, consts: int, max_steps: int | None
) -> Any:
    """A sub-program repeated while a condition holds, `max_steps` times at most."""
    fixed, carry = args[:consts], args[consts:]

    def going(state: Any) -> Any:
        step, values = state
        more = evaluate(cond, *fixed, *values)[0]
        return more if max_steps is None else (step < max_steps) & more

    def advance(state: Any) -> Any:
        step, values = state
        return step + 1, evaluate(body, *fixed, *values)

    return lax.while_loop(going, advance, (jnp.zeros((), jnp.int32), tuple(carry)))[1]


def control_scan(
    evaluate: Any,
    *args: Any,
    body: Program,
    consts: int,
    carry: int,
    length: int,
    reverse: bool,
) -> Any:
    """A sub-program along the first axis of arrays, with a carried value."""
    fixed, state, xs = args[:consts], args[consts : consts + carry], args[consts + carry :]

    def step(values: Any, rows: Any) -> Any:
        results = evaluate(body, *fixed, *values, *rows)
        return results[:carry], results[carry:]

    last, stacked = lax.scan(step, tuple(state), tuple(xs), length=length, reverse=reverse)
    return (*last, *stacked)


def control_checkpoint(evaluate: Any, *args: Any, body: Program) -> Any:
    """A sub-program that JAX, too, recomputes in reverse mode."""
    results, effects = jax.checkpoint(lambda *xs: evaluate.with_effects(body, *xs))(*args)
    evaluate.keep(effects)
    return results


def control_custom_jvp(evaluate: Any, *args: Any, body: Program, rule: Rule, consts: int) -> Any:
    """A sub-program that JAX, too, differentiates by the user's rule."""
    count = len(body.outputs)

    function = jax.custom_jvp(lambda *xs: evaluate.with_effects(body, *xs))

    def forward(primals: Any, tangents: Any) -> Any:
        effects = evaluate.with_effects(body, *primals)[1]
        pairs = zip(primals[consts:], tangents[consts:], strict=True)
        results = evaluate(rule.program, *primals, *(t for p, t in pairs if _has_tangent(p)))
        outs, dots = results[:count], iter(results[count:])
        out_dots = tuple(next(dots) if _has_tangent(o) else _no_tangent(o) for o in outs)
        return (outs, effects), (out_dots, jax.tree.map(_no_tangent, effects))

    function.defjvp(forward)
    results, effects = function(*args)
    evaluate.keep(effects)
    return results


def control_custom_vjp(
    evaluate: Any, *args: Any, body: Program, fwd: Rule, bwd: Rule, consts: int
) -> Any:
    """A sub-program that JAX, too, pulls back by the user's rules."""
    count = len(body.outputs)

    function = jax.custom_vjp(lambda *xs: evaluate.with_effects(body, *xs))

    def forward(*xs: Any) -> Any:
        results = evaluate(fwd.program, *xs)
        effects = evaluate.with_effects(body, *xs)[1]
        return (results[:count], effects), (xs, results[count:])

    def backward(saved: Any, cotangents: Any) -> Any:
        xs, residuals = saved
        given = [c for c in cotangents[0] if c.dtype != jax.dtypes.float0]
        pulled = iter(evaluate(bwd.program, *xs[:consts], *residuals, *given))
        rest = [next(pulled) if _has_tangent(x) else None for x in xs[consts:]]
        return (*(None,) * consts, *rest)

    function.defvjp(forward, backward)
    results, effects = function(*args)
    evaluate.keep(effects)
    return results


def _has_tangent(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


def _no_tangent(x: Any) -> Any:
    """A zero tangent: of JAX's type float0 for integers and bools."""
    return jnp.zeros_like(x) if _has_tangent(x) else np.zeros(x.shape, jax.dtypes.float0)
