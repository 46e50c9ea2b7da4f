"""Elementwise programs that differ in shapes alone, run as one program of all their entries.

Entry i of every result depends on entry i of the broadcast arguments alone, so that what an op
gives at ten shapes is what it gives at one array of all their entries. Lowering and compiling take
as long for one entry as for a hundred. Programs of 0-d and of empty arrays stay as they are, and of
those that broadcast the one of the highest rank: there a lowering may go another way. The others
are joined at the highest rank among them.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from autodiff.api import trace
from autodiff.interpret import run
from autodiff.program import Literal, Program
from autodiff.text import key as program_text
from checks.devices.batch import Case, Outcome
from checks.devices.interpreted import Emitted
from checks.devices.modules import Lowered, run_modules

_EXTENTS = re.compile(r"(?<=[a-z0-9])\[[\d,]*\]")
Part = tuple[slice, tuple[int, ...]]


def run_joined(
    cases: Sequence[Case], device: str, precision: str, twice: Sequence[bool] | None = None
) -> list[Lowered]:
    """`run_modules` of cases, elementwise ones together; a group that fails is run one by one.

    `twice` says which cases are wanted from a second load too; they lead, so that few modules are
    loaded again.
    """
    again = [False] * len(cases) if twice is None else list(twice)
    groups = sorted(_groups(cases), key=lambda group: not any(again[i] for i in group))
    found: dict[int, Lowered] = {}
    given, shared, alone = [], [], []
    for group in groups:
        try:
            given.append(join([cases[i] for i in group]) if len(group) > 1 else cases[group[0]])
            shared.append(group)
        except Exception:  # alone, each says itself what is wrong with it
            alone += group
    wanted = [any(again[i] for i in group) for group in shared]
    for group, whole in zip(shared, run_modules(given, device, precision, wanted), strict=True):
        if len(group) == 1:
            found[group[0]] = whole
        elif _failed(whole):
            alone += group
        else:
            parts = _parts([cases[i] for i in group])
            found.update((i, _part(whole, p)) for i, p in zip(group, parts, strict=True))
    rest = [cases[i] for i in alone]
    one_by_one = run_modules(rest, device, precision, [again[i] for i in alone])
    found.update(zip(alone, one_by_one, strict=True))
    return [found[i] for i in range(len(cases))]


def extent(program: Program) -> tuple[int, ...] | None:
    """The shape that every result of an elementwise program has and its arguments broadcast to.

    None where the program is not elementwise throughout, holds constant arrays, or is of 0-d or
    empty arrays.
    """
    atoms = (a for eq in program.equations for a in eq.inputs)
    if not program.equations or not all(eq.op.elementwise for eq in program.equations):
        return None
    if any(isinstance(a, Literal) and a.spec.shape for a in (*atoms, *program.outputs)):
        return None
    shape = np.broadcast_shapes(*(s.shape for s in program.in_specs))
    same = all(s.shape == shape for s in program.out_specs)
    return shape if same and shape and 0 not in shape else None


def _groups(cases: Sequence[Case]) -> list[list[int]]:
    """Indices of the cases that are run together, in the order of their first ones."""
    found: dict[Any, list[int]] = {}
    for i, (program, _) in enumerate(cases):
        alone = extent(program) is None
        found.setdefault(i if alone else _EXTENTS.sub("", program_text(program)), []).append(i)
    return [part for group in found.values() for part in _apart(group, cases)]


def _apart(group: list[int], cases: Sequence[Case]) -> list[list[int]]:
    """The group, and by itself the case of the highest rank among those that broadcast."""
    broadcast = [i for i in group if {s.shape for s in cases[i][0].in_specs} - {_shape(cases[i])}]
    if len(group) == 1 or not broadcast:
        return [group]
    apart = max(broadcast, key=lambda i: len(_shape(cases[i])))
    return [[i for i in group if i != apart], [apart]]


def _shape(case: Case) -> tuple[int, ...]:
    """The shape of an elementwise case."""
    return extent(case[0]) or ()


def join(cases: Sequence[Case]) -> Case:
    """One case of the entries of all: arguments broadcast, flattened and put end to end, along the
    first axis of as many as the case of the highest rank has.
    """
    program = cases[0][0]
    shapes = [_shape(case) for case in cases]
    trailing = (1,) * (max(map(len, shapes)) - 1)
    args = [
        np.concatenate(
            [
                np.broadcast_to(np.asarray(given[i]), shape).reshape(-1, *trailing)
                for (_, given), shape in zip(cases, shapes, strict=True)
            ]
        )
        for i in range(len(program.inputs))
    ]
    return trace(lambda *flat: list(run(program, flat)), *args), args


def _parts(cases: Sequence[Case]) -> list[Part]:
    """Where the entries of each case are, and their shape."""
    found: list[Part] = []
    start = 0
    for shape in map(_shape, cases):
        size = int(np.prod(shape))
        found.append((slice(start, start + size), shape))
        start += size
    return found


def _failed(whole: Lowered) -> bool:
    return isinstance(whole.emitted, Exception) or isinstance(whole.device, Exception)


def _part(whole: Lowered, part: Part) -> Lowered:
    emitted = whole.emitted
    if isinstance(emitted, Emitted):
        emitted = Emitted(emitted.types, emitted.ops, _cut(emitted.results, part))
    again = None if whole.again is None else _cut(whole.again, part)
    return Lowered(emitted, _cut(whole.device, part), again)


def _cut(results: Outcome, part: Part) -> Any:
    """A case's own entries of results; an exception is that of each."""
    if isinstance(results, Exception):
        return results
    entries, shape = part
    return tuple([np.asarray(r)[entries].reshape(shape) for r in results])
