"""Surfaces of roads on the host: printed source, and the fast executor."""

import collections
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

import autodiff as ad
from autodiff.interpret import interpret_flat
from autodiff.op import body_program
from autodiff.program import Program
from checks.judge import CheckError, Judge
from checks.subject import Subject
from checks.surfaces.base import HOST, Surface, at_float32, define, ordinary

Array = np.ndarray[Any, Any]
OPS_IN_CHUNK = 92  # what a process takes to start and import is that of some fifty ops
KEPT = 4000

# --- render --------------------------------------------------------------------------------

_rendered: "collections.OrderedDict[int, tuple[Subject, Any]]" = collections.OrderedDict()


def _prepare_render(subjects: Sequence[Subject], dtype: str) -> None:
    """Print many programs and run them in one process with NumPy and SciPy alone."""
    from autodiff.isolated import run_isolated

    del dtype
    jobs, kept = [], []
    for s in subjects:
        if id(s) in _rendered:
            continue
        try:
            program, args = s.road
            jobs.append((ad.render(program), list(args)))
            kept.append(s)
        except Exception as error:
            _rendered[id(s)] = (s, error)
    if jobs:
        for s, outcome in zip(kept, run_isolated(jobs), strict=True):
            _rendered[id(s)] = (s, outcome)
    while len(_rendered) > KEPT:
        _rendered.popitem(last=False)


def _check_render(subject: Subject, dtype: str, judge: Judge) -> None:
    if id(subject) not in _rendered:
        _prepare_render([subject], dtype)
    outcome = _rendered[id(subject)][1]
    if isinstance(outcome, Exception):
        raise outcome
    program, args = subject.road
    expected = interpret_flat(program, *args)
    if len(outcome) != len(expected):
        raise CheckError(f"the source returns {len(outcome)} results, expected {len(expected)}")
    for i, (got, want) in enumerate(zip(outcome, expected, strict=True)):
        got = got.astype(want.dtype) if want.dtype.kind == "V" else got  # files have no bfloat16
        judge.compare(f"result {i}", got, want, equal_nan=True)


define(
    Surface(
        "render",
        "printed Python source, run with NumPy and SciPy alone, against the interpreter",
        ("float64",),
        ordinary,
        _check_render,
        prepare=_prepare_render,
        chunk=OPS_IN_CHUNK,
    )
)

# --- execute -------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _compiled(program: Program) -> Any:
    """Samples of one shape have equal programs: the same source, compiled once."""
    from autodiff.execute import compile_program

    return compile_program(program)


def _is_elementwise(program: Program) -> bool:
    """Whether all ops are elementwise, those of composites' bodies included."""
    return all(
        eq.op.elementwise
        if eq.op.body is None
        else _is_elementwise(body_program(eq.op, tuple(a.spec for a in eq.inputs), eq.params))
        for eq in program.equations
    )


def _check_execute(subject: Subject, dtype: str, judge: Judge) -> None:
    # without floating arguments the compiled function has the widths it states itself
    floating = any(leaf.dtype.kind in "fc" for leaf in subject.leaves)
    if dtype == "float32" and not (floating and at_float32(subject)):
        return
    program, args = (subject.narrowed if dtype == "float32" else subject).road
    actual = _compiled(program)(*args)
    expected = interpret_flat(program, *args, precision=dtype)
    elementwise = _is_elementwise(program)
    values = len(subject.program.outputs)
    for i, (got, want, spec) in enumerate(zip(actual, expected, program.out_specs, strict=True)):
        got = np.asarray(got)
        if got.dtype != spec.dtype:
            raise CheckError(f"result {i} is {got.dtype}, the spec says {spec}")
        # a derivative is a sum of terms: where they cancel, float32 has no ulp to count in
        exact = elementwise and (dtype == "float64" or i < values)
        judge.compare(
            f"result {i}",
            got.astype(want.dtype),
            want,
            variant=None if exact else "reducing",
            equal_nan=True,
        )


define(
    Surface(
        "execute",
        "the fast executor against the interpreter",
        ("float64", "float32"),
        ordinary,
        _check_execute,
        group=HOST,
    )
)
