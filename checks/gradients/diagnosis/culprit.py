"""The first equation of a program whose own rule is wrong, with the user's source line.

Every equation is run at its actual arguments and its own derivative is held against differences of
its own evaluation, by the same check as the whole function.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff.errors import AutodiffError
from autodiff.forward import is_inexact
from autodiff.op import body_program
from autodiff.program import Equation, Program, Var
from autodiff.source import quoted
from autodiff.trace import bind
from checks.gradients.diagnosis.uses import traced
from checks.gradients.evidence import Evidence
from checks.gradients.framework import Framework
from checks.gradients.modes import modes_of
from checks.gradients.report import WRONG, Cause, Check
from checks.gradients.target import Target

Array = np.ndarray[Any, Any]
Failed = tuple[list[Check], list[Evidence], Target]
EQUATIONS = 400


@dataclasses.dataclass(frozen=True, eq=False)
class Culprit:
    """An equation whose own derivative is wrong.

    Arguments:
        where: its op, its number in the program and the user's line.
        found: the checks of it that failed, with their evidence.
    """

    where: str
    found: Failed


def culprit(target: Target, modes: Sequence[str], spent: Callable[[], bool]) -> Culprit | None:
    """The first equation whose own rule is wrong; None where none is, or none can be looked at.

    Arguments:
        target: the function; one with hand-written derivatives has no equations to blame.
        modes: those that failed.
        spent: whether the time is over.
    """
    if target.manual.given:
        return None
    if target.framework.name == "numpy":
        program = traced(target)
        if program is None or program.captures:
            return None
        return _in_program(program, list(target.points), target, modes, spent)
    if target.framework.name == "jax":
        from checks.gradients.diagnosis.culprit_jax import in_jaxpr

        return in_jaxpr(target, modes, spent)
    if target.framework.name == "torch":
        from checks.gradients.diagnosis.culprit_torch import in_graph

        return in_graph(target, modes, spent)
    return None


def _in_program(
    program: Program,
    values: Sequence[Any],
    target: Target,
    modes: Sequence[str],
    spent: Callable[[], bool],
    within: str = "",
) -> Culprit | None:
    env: dict[Var, Any] = dict(zip(program.inputs, values, strict=True))
    live = set(program.inputs)
    for number, eq in enumerate(program.equations[:EQUATIONS], 1):
        if spent():
            return None
        reads = [env[a] if isinstance(a, Var) else a.value for a in eq.inputs]
        moving = [i for i, a in enumerate(eq.inputs) if isinstance(a, Var) and a in live]
        found = _wrong_equation(eq, reads, moving, target, modes)
        live.update(eq.outputs if moving else ())
        if found is not None:
            inner = _in_body(eq, reads, target, modes, spent)
            if inner is not None:
                return inner
            text = f"equation {number}{within}, {_title(eq)}"
            return Culprit(ruled(text, _rule(eq), eq.source), found)
        result = bind(eq.op, *reads, **eq.params)
        env.update(zip(eq.outputs, result if eq.op.multiple else (result,), strict=True))
    return None


def _title(eq: Equation) -> str:
    """The op, with the function's name where it carries one: `CUSTOM_VJP of g`."""
    body = eq.params.get("body")
    return f"{eq.op.kind} of {body.name}" if isinstance(body, Program) else eq.op.kind


def _rule(eq: Equation) -> str | None:
    """The first line of the hand-written rule of a custom equation."""
    program = getattr(eq.params.get("bwd", eq.params.get("jvp")), "program", None)
    return next((e.source for e in program.equations if e.source), None) if program else None


def _in_body(
    eq: Equation,
    reads: Sequence[Any],
    target: Target,
    modes: Sequence[str],
    spent: Callable[[], bool],
) -> Culprit | None:
    """The wrong equation inside a composite that has no derivative of its own."""
    if eq.op.body is None or eq.op.jvp is not None or eq.op.vjp is not None:
        return None
    body = body_program(eq.op, tuple(a.spec for a in eq.inputs), eq.params)
    within = f" of the body of {eq.op.kind} {quoted(eq.source)}"
    return _in_program(body, reads, target, modes, spent, within)


def _wrong_equation(
    eq: Equation,
    reads: Sequence[Any],
    live: Sequence[int],
    target: Target,
    modes: Sequence[str],
) -> Failed | None:
    """The failed checks of one equation at its arguments, of which the `live` ones may move."""
    moving = [i for i in live if is_inexact(np.asarray(reads[i]).dtype)]
    smooth = [i for i, v in enumerate(eq.outputs) if is_inexact(v.spec.dtype)]
    if not moving or not smooth:
        return None

    def apply(*given: Any) -> list[Any]:
        full = list(reads)
        for i, x in zip(moving, given, strict=True):
            full[i] = x
        result = bind(eq.op, *full, **eq.params)
        outs = result if eq.op.multiple else (result,)
        return [outs[i] for i in smooth]

    args = [np.asarray(reads[i]) for i in moving]
    return failed_checks(f"{eq.op.kind}", target.framework, apply, args, target, modes)


def failed_checks(
    name: str,
    framework: Framework,
    function: Callable[..., Any],
    args: Sequence[Any],
    target: Target,
    modes: Sequence[str],
    names: tuple[str, ...] = (),
) -> Failed | None:
    """The checks of a part of a function that find it wrong; None where it is right.

    Arguments:
        name, framework, function, args: the part.
        target, modes: the whole, and the modes that failed.
        names: of the arguments; where there are none they are called operands.
    """
    from checks.gradients.first import first_order

    if not any(np.asarray(framework.numpy(a)).size for a in args):
        return None
    if not names:
        count = range(len(args))
        names = ("its operand",) if len(args) == 1 else tuple(f"operand {i}" for i in count)
    part = Target(name, framework, function, tuple(args), seed=target.seed, names=names)
    if not part.smooth or not all(np.all(np.isfinite(y)) for y in part.centre):
        return None
    try:
        checks, failed = first_order(part, modes_of(part, modes), None, [])
    except AutodiffError:  # an op that has no rule of this mode: that is another verdict
        return None
    wrong = [c for c in checks if c.verdict == WRONG]
    return (wrong, failed, part) if wrong and failed else None


def described(path: str, line: int, function: str) -> str:
    """`file:line in function`, the file relative to the working directory or by its last folder."""
    here = os.getcwd() + os.sep
    full = os.path.abspath(path)
    short = full[len(here) :] if full.startswith(here) else os.sep.join(full.split(os.sep)[-2:])
    return f"{short}:{line} in {function}"


def with_culprit(cause: Cause | None, found: Culprit, own: Cause | None) -> Cause:
    """A cause with the equation at fault; the equation's own where that says something else."""
    kind = found.found[2].name
    if own is not None and (cause is None or own.name != cause.name):
        return Cause(own.name, f"the rule of {kind}: {own.text}", found.where)
    if cause is not None:
        return dataclasses.replace(cause, where=found.where)
    return Cause("rule", f"the derivative of {kind} is wrong", found.where)


def ruled(name: str, rule: str | None, line: str | None) -> str:
    """A part's name with the place of its hand-written rule, and the line that calls it."""
    if rule is None:
        return titled(name, line)
    made = f"{name}, its rule at {rule}"
    return made if line is None else f"{made}; called {quoted(line)}"


def titled(name: str, line: str | None) -> str:
    """A name with its source line, where that is known."""
    return name if line is None else f"{name}, {quoted(line)}"
