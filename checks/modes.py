"""Forward and reverse mode of flat programs, and several programs as one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.forward import jvp_eval
from autodiff.program import Atom, Equation, Program, Var, verify
from autodiff.reverse import vjp_eval
from autodiff.simplify import substitute
from autodiff.trace import spec_of

Array = np.ndarray[Any, Any]


def joined(parts: Sequence[tuple[Program, Sequence[int]]], args: Sequence[Array]) -> Program:
    """One program of flat arrays for several, the results of each after those of the one before.

    Arguments: (program, which of the arguments are its inputs) pairs; the arguments.
    """
    inputs = tuple([Var(spec_of(a)) for a in args])
    equations: list[Equation] = []
    outputs: list[Atom] = []
    for program, places in parts:
        names = dict(zip(program.inputs, [inputs[i] for i in places], strict=True))
        equations += [substitute(eq, names) for eq in program.equations]
        outputs += [names.get(a, a) if isinstance(a, Var) else a for a in program.outputs]
    trees = (tree.flatten(t)[1] for t in (tuple(range(len(inputs))), [*range(len(outputs))]))
    return verify(Program(inputs, (), tuple(equations), tuple(outputs), *trees))


def pulled(
    program: Program,
    points: Sequence[Any],
    cotangents: Sequence[Any],
    wanted: Sequence[bool] | None = None,
) -> list[Any]:
    """Cotangents of a program's inputs, by reverse mode; zeros where nothing depends on them."""
    found = vjp_eval(program, points, wanted=wanted)[1](list(cotangents))
    return [
        np.zeros(s.shape, s.dtype) if g is None else g
        for g, s in zip(found, program.in_specs, strict=True)
    ]


def pushed(program: Program, points: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """Tangents of a program's results, by forward mode; zeros where nothing depends on them."""
    found = jvp_eval(program, points, tangents)[1]
    return [
        np.zeros(s.shape, s.dtype) if d is None else d
        for d, s in zip(found, program.out_specs, strict=True)
    ]
