"""Branches of `lax.cond` and `lax.switch` that did not run at the point: nothing was said of them.

The recorded equations are run one by one at the point's values; a loop that holds a branch is run
step by step, up to a number of steps.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from checks.gradients.diagnosis.culprit_jax import evaluate, inner_of, source_line
from checks.gradients.frameworks.jax import inner_jaxprs, jax
from checks.gradients.target import Target

STEPS = 256  # of loops with branches inside


class _TooLongError(Exception):
    """More steps than a note is worth."""


class Taken:
    """Which branch of each `cond` equation ran."""

    def __init__(self) -> None:
        self.steps = STEPS
        self.known: dict[int, tuple[Any, set[int]]] = {}

    def note(self, eqn: Any, index: int) -> None:
        """Branch `index` of an equation ran."""
        self.known.setdefault(id(eqn), (eqn, set()))[1].add(index)

    def step(self) -> None:
        """One more step of a loop."""
        self.steps -= 1
        if self.steps < 0:
            raise _TooLongError


def branch_notes(target: Target) -> list[str]:
    """A note for each branch of the user's that did not run at the point."""
    natives = target.native(target.points)
    try:
        closed = jax.make_jaxpr(lambda *arrays: list(target.flat(arrays)))(*natives)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):  # Python looks at its values
        return []
    if not _branches(closed.jaxpr):
        return []
    taken = Taken()
    try:
        _run(closed.jaxpr, closed.consts, natives, taken)
    except _TooLongError:
        return [f"branches inside loops of more than {STEPS} steps: which of them ran is not known"]
    notes = []
    for eqn, ran in taken.known.values():
        line, count = source_line(eqn), len(eqn.params["branches"])
        for k in sorted(set(range(count)) - ran) if line is not None else ():
            which = f" (for {bool(k)})" if count == 2 else ""
            notes.append(f"branch {k}{which} of cond at {line} never ran: it was not checked")
    return notes


def _branches(jaxpr: Any) -> bool:
    """Whether an equation, or one inside it, is a `cond`."""
    return any(eqn.primitive.name == "cond" or _holds(eqn) for eqn in jaxpr.eqns)


def _holds(eqn: Any) -> bool:
    return any(_branches(inner) for inner in inner_jaxprs(eqn))


def _run(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], taken: Taken) -> list[Any]:
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if hasattr(atom, "val") else env[atom]

    for eqn in jaxpr.eqns:
        values = [read(a) for a in eqn.invars]
        if eqn.primitive.name == "cond":
            taken.note(eqn, int(values[0]))
        if eqn.primitive.name == "cond" or _holds(eqn):
            for inner in _inner_runs(eqn, values, taken):
                _run(*inner, taken)
        env.update(zip(eqn.outvars, evaluate(eqn, values), strict=True))
    return [read(a) for a in jaxpr.outvars]


Inner = tuple[Any, Sequence[Any], list[Any]]


def _inner_runs(eqn: Any, values: Sequence[Any], taken: Taken) -> Iterator[Inner]:
    """What an equation runs once; loops are run here, step by step."""
    if eqn.primitive.name == "scan":
        _scan(eqn.params, list(values), taken)
    elif eqn.primitive.name == "while":
        _while(eqn.params, list(values), taken)
    else:
        inner = inner_of(eqn, list(values), customs=True)
        if inner is not None:
            yield inner


def _scan(params: Any, values: list[Any], taken: Taken) -> None:
    first = params["num_consts"]
    held = first + params["num_carry"]
    carry, body = values[first:held], params["jaxpr"]
    order = range(params["length"])
    for i in reversed(order) if params["reverse"] else order:
        taken.step()
        given = [*values[:first], *carry, *(x[i] for x in values[held:])]
        carry = _run(body.jaxpr, body.consts, given, taken)[: len(carry)]


def _while(params: Any, values: list[Any], taken: Taken) -> None:
    tests, held = params["cond_nconsts"], params["body_nconsts"]
    carry = values[tests + held :]
    test, body = params["cond_jaxpr"], params["body_jaxpr"]
    while bool(_run(test.jaxpr, test.consts, [*values[:tests], *carry], taken)[0]):
        taken.step()
        given = [*values[tests : tests + held], *carry]
        carry = _run(body.jaxpr, body.consts, given, taken)
