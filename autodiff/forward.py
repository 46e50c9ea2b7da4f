"""Forward mode: a program evaluated on primals and tangents together."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.kept import replayed
from autodiff.native import quiet
from autodiff.op import body_program, missing_rule
from autodiff.program import Equation, Literal, Program, Var
from autodiff.trace import bind, mark, mark_as, program_of, sourced, spec_of


def is_inexact(dtype: np.dtype[Any]) -> bool:
    """Whether values of this dtype have a tangent space (floats, bf16 and the like, complex)."""
    return dtype.kind in "fc" or (dtype.kind == "V" and dtype.names is None)


def jvp_eval(
    program: Program,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    captures: Sequence[Any] = (),
    capture_tangents: Sequence[Any] | None = None,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Values and tangents of a program's outputs; a None tangent is a symbolic zero."""
    env: dict[Var, Any] = dict(zip(program.captures, captures, strict=True))
    env.update(zip(program.inputs, primals, strict=True))
    dots: dict[Var, Any] = dict(zip(program.inputs, tangents, strict=True))
    if capture_tangents is not None:
        dots.update(zip(program.captures, capture_tangents, strict=True))
    with quiet():
        for eq in program.equations:
            values = [a.value if isinstance(a, Literal) else env[a] for a in eq.inputs]
            t = [None if isinstance(a, Literal) else dots.get(a) for a in eq.inputs]
            with sourced(eq.source):
                outs, out_dots = jvp_equation(eq, values, t)
            env.update(zip(eq.outputs, outs, strict=True))
            dots.update(zip(eq.outputs, out_dots, strict=True))
            mark_as(eq.outputs, outs, env)
            for out, dot in zip(outs, out_dots, strict=True):
                if dot is not None:
                    mark("dot", out, dot)
    outputs = tuple(a.value if isinstance(a, Literal) else env[a] for a in program.outputs)
    return outputs, tuple(None if isinstance(a, Literal) else dots.get(a) for a in program.outputs)


def jvp_equation(
    eq: Equation, values: Sequence[Any], tangents: Sequence[Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Outputs and their tangents for one equation."""
    op = eq.op
    active = op.derivative == "rule" and any([t is not None for t in tangents])
    active = active and any([is_inexact(v.spec.dtype) for v in eq.outputs])
    if active and op.jvp is None and op.body is not None:
        body = body_program(op, tuple(a.spec for a in eq.inputs), eq.params)
        return jvp_eval(body, values, tangents)
    if active and op.control and op.jvp is not None:
        outs, dots = op.jvp(tuple(values), tuple(tangents), None, **eq.params)
        return tuple(outs), _fitted(eq, dots)
    if not active:
        result = bind(op, *values, **eq.params)
        outs = tuple(result) if op.multiple else (result,)
        return outs, (None,) * len(outs)
    return _replayed(eq, values, tangents)


def _replayed(
    eq: Equation, values: Sequence[Any], tangents: Sequence[Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """By the kept replay of the op and its jvp where there is one, else by rule."""
    n, m = len(values), len(eq.outputs)
    mask = tuple([t is not None for t in tangents])

    def flat(*args: Any) -> tuple[Any, ...]:
        rest = iter(args[n:])
        outs, dots = _by_rule(eq, args[:n], [next(rest) if b else None for b in mask])
        return (*outs, *dots)

    args = (*values, *[t for t in tangents if t is not None])
    found = replayed("push", eq, mask, args, flat)
    return _by_rule(eq, values, tangents) if found is None else (found[:m], found[m:])


def _by_rule(
    eq: Equation, values: Sequence[Any], tangents: Sequence[Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    op = eq.op
    result = bind(op, *values, **eq.params)
    outs = tuple(result) if op.multiple else (result,)
    if op.jvp is None:
        raise missing_rule(op, "jvp", eq.source)
    with sourced(eq.source, "dot"):
        dots = op.jvp(tuple(values), tuple(tangents), result, **eq.params)
    return outs, _fitted(eq, tuple(dots) if op.multiple else (dots,))


def _fitted(eq: Equation, dots: Sequence[Any]) -> tuple[Any, ...]:
    """Output tangents checked against their specs; outputs without a tangent space have none."""
    return tuple(
        [
            _checked(eq.op.kind, d, v) if is_inexact(v.spec.dtype) else None
            for d, v in zip(dots, eq.outputs, strict=True)
        ]
    )


def _checked(kind: str, tangent: Any, var: Var) -> Any:
    """A tangent of its primal's own spec; a rule that returns another shape is at fault."""
    if tangent is None:
        return None
    spec = spec_of(tangent)
    if spec is var.spec:
        return tangent
    if spec.shape != var.spec.shape:
        raise ShapeError(
            f"the jvp rule of {kind} returned shape {spec.shape} for an output of {var.spec}"
        )
    return tangent if spec.dtype == var.spec.dtype else bind("CAST", tangent, dtype=var.spec.dtype)


@functools.lru_cache(maxsize=1024)
def jvp_program(program: Program, nonzero: tuple[bool, ...]) -> tuple[Program, tuple[bool, ...]]:
    """The program (primals, nonzero tangents) -> (outputs, nonzero output tangents), and which
    output tangents are nonzero.
    """
    mask: list[bool] = []

    def f(*args: Any) -> tuple[Any, ...]:
        n = len(program.inputs)
        rest = iter(args[n:])
        tangents = [next(rest) if nz else None for nz in nonzero]
        outs, dots = jvp_eval(program, args[:n], tangents)
        mask[:] = [d is not None for d in dots]
        return (*outs, *(d for d in dots if d is not None))

    specs = program.in_specs
    tangent_specs = [s for s, nz in zip(specs, nonzero, strict=True) if nz]
    traced = program_of(f, (*specs, *tangent_specs), name=f"jvp_{program.name}")
    return traced, tuple(mask)


__all__ = ["is_inexact", "jvp_eval", "jvp_program"]
