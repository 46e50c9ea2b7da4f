"""Reverse mode: pullbacks derived by transposing jvps.

The pullback of an equation is the transpose of its op's jvp, unless the op gives a `vjp` where
the transposed rule would lose digits. Equations upstream of a select use strong products
(`autodiff.strong`), so that what was not selected never poisons a derivative, at any order.
"""

import functools
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from autodiff.expansion import expanded, linear_expanded
from autodiff.forward import is_inexact
from autodiff.kept import replayed
from autodiff.native import quiet
from autodiff.op import Op, body_program, missing_rule
from autodiff.program import Equation, Literal, Program, Spec, Var
from autodiff.strong import protection, run_strong
from autodiff.trace import bind, mark, mark_as, program_of, sourced
from autodiff.transposition import Cotangents, Undefined, transpose_eval


def vjp_eval(
    program: Program,
    primals: Sequence[Any],
    captures: Sequence[Any] = (),
    wanted: Sequence[bool] | None = None,
    strong: Sequence[bool] = (),
) -> tuple[tuple[Any, ...], Callable[[Sequence[Any]], tuple[Any, ...]]]:
    """Outputs, and the pullback from output cotangents (None: zero) to input cotangents.

    `wanted` says which inputs need a cotangent; captures' cotangents follow the inputs'. `strong`
    says which outputs reach a select further on, so that zeros of their cotangents win.
    """
    program = expanded(program)
    env: dict[Var, Any] = dict(zip(program.captures, captures, strict=True))
    env.update(zip(program.inputs, primals, strict=True))
    parameters = (*program.inputs, *program.captures)
    mask = list(wanted) if wanted is not None else [True] * len(parameters)
    mask += [True] * (len(parameters) - len(mask))
    active = {v for v, w in zip(parameters, mask, strict=True) if w and is_inexact(v.spec.dtype)}
    tape: list[int] = []
    residuals: dict[int, Any] = {}
    with quiet():
        for number, eq in enumerate(program.equations):
            values = [a.value if isinstance(a, Literal) else env[a] for a in eq.inputs]
            taped = eq.op.derivative == "rule" and not active.isdisjoint(eq.inputs)
            with sourced(eq.source):
                if taped and eq.op.residual is not None:
                    result, residuals[number] = eq.op.residual(tuple(values), **eq.params)
                else:
                    result = bind(eq.op, *values, **eq.params)
            results = result if eq.op.multiple else (result,)
            env.update(zip(eq.outputs, results, strict=True))
            mark_as(eq.outputs, results, env)
            if taped:
                active.update(v for v in eq.outputs if is_inexact(v.spec.dtype))
                tape.append(number)
    outputs = tuple(a.value if isinstance(a, Literal) else env[a] for a in program.outputs)
    protected = protection(program, strong)

    def pullback(cotangents: Sequence[Any]) -> tuple[Any, ...]:
        cts = Cotangents()
        with quiet():
            for atom, ct in zip(program.outputs, cotangents, strict=True):
                cts.add(atom, ct)
            for number in reversed(tape):
                eq = program.equations[number]
                with sourced(eq.source, "bar"):
                    _pull_equation(eq, env, active, cts, protected, residuals.get(number))
            for v in parameters:
                mark("bar", env[v], cts.values.get(v))
            return tuple(cts.pop(v) if v in active else None for v in parameters)

    return outputs, pullback


def _pull_equation(
    eq: Equation,
    env: dict[Var, Any],
    active: set[Var],
    cts: Cotangents,
    protected: AbstractSet[Var],
    residuals: Any = None,
) -> None:
    out_cts = tuple([cts.pop(v) for v in eq.outputs])
    if all([c is None for c in out_cts]):
        return
    values = tuple([a.value if isinstance(a, Literal) else env[a] for a in eq.inputs])
    outs = tuple([env[v] for v in eq.outputs])
    for out, ct in zip(outs, out_cts, strict=True):
        mark("bar", out, ct)
    mask = tuple([a in active for a in eq.inputs])
    strong = not protected.isdisjoint(eq.outputs)
    if eq.op.control:
        # all outputs: a missing cotangent becomes zeros there, as good as a select's
        flags = (strong,) * len(outs)
        pulled = _pull_control(eq, values, outs, out_cts, mask, flags, residuals)
    else:
        pulled = pull(eq, values, outs, out_cts, mask, strong)
    for atom, ct in zip(eq.inputs, pulled, strict=True):
        if isinstance(atom, Var) and atom in active:
            cts.add(atom, ct, eq.op.kind)


def _pull_control(
    eq: Equation,
    values: tuple[Any, ...],
    outs: tuple[Any, ...],
    out_cts: tuple[Any, ...],
    mask: tuple[bool, ...],
    strong: tuple[bool, ...],
    residuals: Any,
) -> tuple[Any, ...]:
    if eq.op.vjp is None:
        raise missing_rule(eq.op, "vjp", eq.source)
    extra = {} if eq.op.residual is None else {"residuals": residuals}
    pulled = eq.op.vjp(out_cts, values, outs, wanted=mask, strong=strong, **extra, **eq.params)
    return tuple(pulled)


def pull(
    eq: Equation,
    values: tuple[Any, ...],
    outs: tuple[Any, ...],
    out_cts: tuple[Any, ...],
    mask: tuple[bool, ...],
    strong: bool,
) -> tuple[Any, ...]:
    """Cotangents of an equation's operands (None where zero or not wanted)."""
    n, m = len(values), len(outs)
    present = tuple([c is not None for c in out_cts])

    def flat(*args: Any) -> tuple[Any, ...]:
        rest = iter(args[n + m :])
        cts = tuple(next(rest) if p else None for p in present)
        return _by_rule(eq, args[:n], args[n : n + m], cts, mask, strong)

    args = (*values, *outs, *[c for c in out_cts if c is not None])
    found = replayed("pull", eq, (mask, present, strong), args, flat)
    if found is not None:
        return found
    return _by_rule(eq, values, outs, out_cts, mask, strong)


def _by_rule(
    eq: Equation,
    values: tuple[Any, ...],
    outs: tuple[Any, ...],
    out_cts: tuple[Any, ...],
    mask: tuple[bool, ...],
    strong: bool,
) -> tuple[Any, ...]:
    op = eq.op
    if op.vjp is not None:
        if strong:
            return _strong_vjp(eq, values, outs, out_cts)
        bare = out_cts if op.multiple else out_cts[0]
        results: tuple[Any, ...] = op.vjp(
            bare, values, outs if op.multiple else outs[0], **eq.params
        )
        return results
    if op.jvp is None:
        raise missing_rule(op, "jvp", eq.source)
    if op.transpose is not None and not strong and sum(mask) == len(mask) == 1:
        inputs = (Undefined(eq.inputs[0].spec),)
        linear: tuple[Any, ...] = op.transpose(
            out_cts if op.multiple else out_cts[0], inputs, **eq.params
        )
        return linear
    linear_program, nonzero = _tangent_program(
        op,
        tuple(a.spec for a in eq.inputs),
        tuple(v.spec for v in eq.outputs),
        tuple(sorted(eq.params.items())),
        mask,
    )
    wanted_cts = [c for c, nz in zip(out_cts, nonzero, strict=True) if nz]
    known = (*values, *outs)
    pulled = iter(transpose_eval(linear_program, known, wanted_cts, strong=strong))
    return tuple(next(pulled) if m else None for m in mask)


@functools.lru_cache(maxsize=4096)
def _tangent_program(
    op: Op,
    in_specs: tuple[Spec, ...],
    out_specs: tuple[Spec, ...],
    params: tuple[tuple[str, Any], ...],
    mask: tuple[bool, ...],
) -> tuple[Program, tuple[bool, ...]]:
    """The op's jvp as a program (primals, outputs, tangents) -> tangents, linear in the last."""
    n, m = len(in_specs), len(out_specs)
    nonzero: list[bool] = []

    def f(*args: Any) -> tuple[Any, ...]:
        primals, outs, rest = args[:n], args[n : n + m], iter(args[n + m :])
        tangents = tuple(next(rest) if b else None for b in mask)
        assert op.jvp is not None
        dots = op.jvp(primals, tangents, outs if op.multiple else outs[0], **dict(params))
        dots = tuple(dots) if op.multiple else (dots,)
        dots = tuple(
            d if is_inexact(s.dtype) else None for d, s in zip(dots, out_specs, strict=True)
        )
        nonzero[:] = [d is not None for d in dots]
        return tuple(d for d in dots if d is not None)

    tangent_specs = [s for s, b in zip(in_specs, mask, strict=True) if b]
    program = program_of(f, (*in_specs, *out_specs, *tangent_specs), name=f"jvp_{op.kind.lower()}")
    return linear_expanded(program, n + m), tuple(nonzero)


def _strong_vjp(
    eq: Equation, values: tuple[Any, ...], outs: tuple[Any, ...], out_cts: tuple[Any, ...]
) -> tuple[Any, ...]:
    """An op's own vjp with its cotangent products replaced by strong ones."""
    present = tuple(c is not None for c in out_cts)
    program, mask = _vjp_program(
        eq.op,
        tuple(a.spec for a in eq.inputs),
        tuple(v.spec for v in eq.outputs),
        tuple(sorted(eq.params.items())),
        present,
    )
    given = [c for c in out_cts if c is not None]
    known = (*values, *outs)
    flags = (*(False,) * len(known), *(True,) * len(given))
    results = iter(run_strong(program, (*known, *given), flags))
    return tuple(next(results) if m else None for m in mask)


@functools.lru_cache(maxsize=1024)
def _vjp_program(
    op: Op,
    in_specs: tuple[Spec, ...],
    out_specs: tuple[Spec, ...],
    params: tuple[tuple[str, Any], ...],
    present: tuple[bool, ...],
) -> tuple[Program, tuple[bool, ...]]:
    """The op's vjp as a program (primals, outputs, cotangents) -> operand cotangents."""
    n, m = len(in_specs), len(out_specs)
    mask: list[bool] = []

    def f(*args: Any) -> tuple[Any, ...]:
        rest = iter(args[n + m :])
        cts = tuple(next(rest) if p else None for p in present)
        outs = args[n : n + m]
        assert op.vjp is not None
        bare_cts, bare_outs = (cts, outs) if op.multiple else (cts[0], outs[0])
        pulled = op.vjp(bare_cts, args[:n], bare_outs, **dict(params))
        mask[:] = [p is not None for p in pulled]
        return tuple(p for p in pulled if p is not None)

    ct_specs = [s for s, p in zip(out_specs, present, strict=True) if p]
    program = program_of(f, (*in_specs, *out_specs, *ct_specs), name=f"vjp_{op.kind.lower()}")
    return linear_expanded(program, n + m), tuple(mask)


@functools.lru_cache(maxsize=1024)
def vjp_program(
    program: Program, wanted: tuple[bool, ...], present: tuple[bool, ...]
) -> tuple[Program, tuple[bool, ...]]:
    """The program (inputs, present output cotangents) -> wanted input cotangents, and which of
    them are not identically zero (those alone are returned).
    """
    n = len(program.inputs)
    mask: list[bool] = []

    def f(*args: Any) -> tuple[Any, ...]:
        _, pullback = vjp_eval(program, args[:n], wanted=wanted)
        rest = iter(args[n:])
        pulled = pullback([next(rest) if p else None for p in present])
        mask[:] = [p is not None for p in pulled]
        return tuple(p for p in pulled if p is not None)

    ct_specs = [s for s, p in zip(program.out_specs, present, strict=True) if p]
    traced = program_of(f, (*program.in_specs, *ct_specs), name=f"vjp_{program.name}")
    return traced, tuple(mask)


__all__ = [
    "Cotangents",
    "Undefined",
    "body_program",
    "linear_expanded",
    "transpose_eval",
    "vjp_eval",
    "vjp_program",
]
