"""The plan that `render` prints and `execute` compiles: primitives alone, in order, with labels."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from autodiff.op import body_program
from autodiff.program import Atom, Equation, Program, Var
from autodiff.simplify import simplify

# Control ops whose value is that of their sub-program `body` on the operands.
CALLS = frozenset({"CHECKPOINT", "CUSTOM_JVP", "CUSTOM_VJP"})


@dataclasses.dataclass(frozen=True)
class Plan:
    """A program without composites.

    `labels`: per result variable the composites it was part of, outermost first; `aliases`: what
    stands now for the results of the composites themselves.
    """

    program: Program
    labels: Mapping[Var, tuple[str, ...]]
    aliases: Mapping[Var, Atom]


def plan(program: Program, keep: Callable[[Equation], bool] | None = None) -> Plan:
    """Composites and called sub-programs inlined, equal computations done once, unused ones not.

    `keep` names composites to leave as they are. Inlined equations carry the source line of the
    composite they come from; sub-programs of IF, WHILE and SCAN stay in params.
    """
    labels: dict[Var, tuple[str, ...]] = {}
    equations: list[Equation] = []
    env: dict[Var, Atom] = {}
    for eq in program.equations:
        _inline(eq, env, (), equations, labels, keep, eq.source)
    outputs = tuple(_read(a, env) for a in program.outputs)
    flat = dataclasses.replace(program, equations=tuple(equations), outputs=outputs)
    return Plan(simplify(flat), labels, env)


def _read(atom: Atom, env: Mapping[Var, Atom]) -> Atom:
    return env.get(atom, atom) if isinstance(atom, Var) else atom


def _inline(
    eq: Equation,
    env: dict[Var, Atom],
    path: tuple[str, ...],
    equations: list[Equation],
    labels: dict[Var, tuple[str, ...]],
    keep: Callable[[Equation], bool] | None,
    source: str | None,
) -> None:
    """Append the equation, or those of its body, with operands renamed by `env`."""
    inputs = tuple([env.get(a, a) if type(a) is Var else a for a in eq.inputs])
    inside = _inside(eq, keep)
    if inside is None:
        outputs = eq.outputs
        if path:  # a cached body's variables may occur again
            outputs = tuple([Var(v.spec, v.role) for v in eq.outputs])
            env.update(zip(eq.outputs, outputs, strict=True))
            labels.update(dict.fromkeys(outputs, path))
        equations.append(Equation(eq.op, inputs, eq.params, outputs, source))
        return
    inner: dict[Var, Atom] = dict(zip(inside.inputs, inputs, strict=True))
    for part in inside.equations:
        _inline(part, inner, (*path, eq.op.kind), equations, labels, keep, source)
    for v, a in zip(eq.outputs, inside.outputs, strict=True):
        env[v] = result = _read(a, inner)
        if isinstance(result, Var) and result.role is None:
            result.role = v.role


def _inside(eq: Equation, keep: Callable[[Equation], bool] | None) -> Program | None:
    """The program an equation stands for: a composite's body, a called sub-program."""
    if eq.op.body is not None and not (keep is not None and keep(eq)):
        return body_program(eq.op, tuple(a.spec for a in eq.inputs), eq.params)
    if eq.op.kind in CALLS:
        body: Any = eq.params["body"]
        assert isinstance(body, Program)
        return body
    return None
