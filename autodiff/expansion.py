"""Composites replaced by their bodies where derivatives are to be taken through them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from autodiff.interpret import run
from autodiff.op import Op, body_program
from autodiff.program import Program, Var
from autodiff.trace import bind, mark_as, program_of, sourced


def needs_expansion(op: Op) -> bool:
    """Whether reverse mode goes through the op's body: a composite without a rule of its own."""
    return op.body is not None and op.jvp is None and op.vjp is None and op.derivative == "rule"


def expanded(program: Program) -> Program:
    """The program with composites that lack derivative rules replaced by their bodies."""
    if not any([needs_expansion(eq.op) for eq in program.equations]):
        return program
    known: Program | None = program.__dict__.get("_expanded")
    if known is None:
        known = _expanded(program)
        object.__setattr__(program, "_expanded", known)
    return known


def _expanded(program: Program) -> Program:
    n = len(program.captures)
    specs = tuple(v.spec for v in (*program.captures, *program.inputs))
    flat = program_of(
        lambda *a: run(program, a[n:], a[:n], expand=needs_expansion), specs, program.name
    )
    return dataclasses.replace(flat, captures=flat.inputs[:n], inputs=flat.inputs[n:])


def linear_expanded(program: Program, known: int) -> Program:
    """The program with its composites in the linear inputs (those after the first `known`)
    replaced by their bodies; composites of known values stay, with their own derivative rules.
    """
    linear = set(program.inputs[known:])
    needed = False
    for eq in program.equations:
        if any(a in linear for a in eq.inputs):
            linear.update(eq.outputs)
            needed = needed or expands_linear(eq.op)
    if not needed:
        return program
    flags = [i >= known for i in range(len(program.inputs))]
    return program_of(
        lambda *a: _run_expanded(program, a, flags)[0], program.in_specs, program.name
    )


def expands_linear(op: Op) -> bool:
    """Whether a composite of linear operands is transposed through its body."""
    return op.body is not None and op.transpose is None


def _run_expanded(
    program: Program, args: Sequence[Any], flags: Sequence[bool]
) -> tuple[tuple[Any, ...], list[bool]]:
    """Apply a program, expanding composites of linear operands; which outputs are linear."""
    env: dict[Any, Any] = dict(zip(program.inputs, args, strict=True))
    linear: set[Any] = {v for v, f in zip(program.inputs, flags, strict=True) if f}
    for eq in program.equations:
        values = [env[a] if isinstance(a, Var) else a.value for a in eq.inputs]
        depends = [a in linear for a in eq.inputs]
        outputs = [any(depends)] * len(eq.outputs)
        with sourced(eq.source):
            if any(depends) and expands_linear(eq.op):
                body = body_program(eq.op, tuple(a.spec for a in eq.inputs), eq.params)
                result, outputs = _run_expanded(body, values, depends)
            else:
                result = bind(eq.op, *values, **eq.params)
                result = result if eq.op.multiple else (result,)
        env.update(zip(eq.outputs, result, strict=True))
        mark_as(eq.outputs, result, env)
        linear.update(v for v, f in zip(eq.outputs, outputs, strict=True) if f)
    results = tuple(env[a] if isinstance(a, Var) else a.value for a in program.outputs)
    return results, [a in linear for a in program.outputs]


__all__ = ["expanded", "expands_linear", "linear_expanded", "needs_expansion"]
