"""Surfaces of devices: StableHLO text, `jax.jit` against the interpreter, a device against itself."""

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np

import autodiff as ad
from autodiff.interpret import interpret_flat
from autodiff.program import Program
from checks.judge import CheckError, Judge
from checks.subject import Subject
from checks.surfaces.base import Surface, at_float32, define, ordinary, rounded

Array = np.ndarray[Any, Any]
PRECISION = {"float32": "float32", "float64": "float64"}
WIDE = {"f64", "complex<f64>"}
OPS_IN_CHUNK = 12
DEVICE = "jax-cpu"


def case(subject: Subject, dtype: str) -> tuple[Program, list[Array]]:
    """The subject's program of values and derivatives, with arguments of the dtype's values."""
    program, args = subject.derivative
    return program, rounded(args) if dtype == "float32" else list(args)


def _reference(subject: Subject, dtype: str) -> list[Array]:
    program, args = case(subject, dtype)
    results = interpret_flat(program, *args, precision=dtype)
    return [_flushed(np.asarray(r), dtype) for r in results]


def _flushed(x: Array, dtype: str) -> Array:
    """Subnormal results as zeros: XLA flushes them on every CPU (f32 and f64)."""
    if x.dtype.kind not in "fc" or x.dtype.itemsize < 4:
        return x
    tiny = np.finfo(np.float32 if dtype == "float32" else np.float64).tiny
    if x.dtype.kind == "c":
        return (
            np.where(np.abs(x.real) < tiny, 0.0, x.real)
            + 1j * np.where(np.abs(x.imag) < tiny, 0.0, x.imag)
        ).astype(x.dtype)
    return np.where(np.abs(x) < tiny, np.zeros((), x.dtype), x)


def _compare(judge: Judge, label: str, actual: Any, expected: Any, dtype: str) -> None:
    if len(actual) != len(expected):
        raise CheckError(f"{label} returned {len(actual)} results, expected {len(expected)}")
    for i, (got, want) in enumerate(zip(actual, expected, strict=True)):
        got = np.asarray(got)
        if got.dtype != want.dtype:
            raise CheckError(f"{label} result {i} is {got.dtype.name}, expected {want.dtype.name}")
        judge.compare(f"{label} result {i}", _flushed(got, dtype), want, equal_nan=True)


# --- emission ------------------------------------------------------------------------------


def _check_emit(subject: Subject, dtype: str, judge: Judge) -> None:
    from autodiff.lower.stablehlo import (
        UnsupportedError,
        compile_stablehlo,
        element_types,
        eval_stablehlo,
        verify_stablehlo,
    )

    program, args = case(subject, dtype)
    text = ad.lower_stablehlo(program, precision=dtype)
    verify_stablehlo(text)
    types = element_types(text)
    if dtype == "float32" and types & WIDE:
        raise CheckError(f"the float32 module holds {', '.join(sorted(types & WIDE))}")
    narrow = _arguments(program, args, dtype)
    try:
        results, label = eval_stablehlo(text, narrow), "reference interpreter"
    except UnsupportedError:
        results, label = compile_stablehlo(text)(*narrow), "compiled text"
    _compare(judge, label, results, _reference(subject, dtype), dtype)


def _arguments(program: Program, args: Sequence[Array], dtype: str) -> list[Array]:
    from autodiff.lower.jax import input_dtypes
    from autodiff.rounding import cast

    return [
        cast(np.asarray(a), d) if np.asarray(a).dtype != d else np.asarray(a)
        for a, d in zip(args, input_dtypes(program, dtype), strict=True)
    ]


define(
    Surface(
        "emit_f32",
        "StableHLO at float32: verified, no float64 in it, run by the reference interpreter",
        ("float32",),
        at_float32,
        _check_emit,
        needs=("jax",),
    )
)
define(
    Surface(
        "emit_f64",
        "StableHLO at float64: verified and run by the reference interpreter",
        ("float64",),
        ordinary,
        _check_emit,
        needs=("jax",),
    )
)

# --- devices -------------------------------------------------------------------------------

_done: "collections.OrderedDict[tuple[int, str], tuple[Subject, Any]]" = collections.OrderedDict()
KEPT = 4000


def _prepare(subjects: Sequence[Subject], dtype: str) -> None:
    """Run many subjects in few compiled modules; `check` picks its own outcome."""
    from checks.devices import run_batch

    waiting = [s for s in subjects if (id(s), dtype) not in _done]
    cases, kept = [], []
    for s in waiting:
        try:
            cases.append(case(s, dtype))
            kept.append(s)
        except Exception as error:
            _done[id(s), dtype] = (s, error)
    for s, outcome in zip(kept, run_batch(cases, DEVICE, dtype), strict=True):
        _done[id(s), dtype] = (s, outcome)
    while len(_done) > KEPT:
        _done.popitem(last=False)


def _outcome(subject: Subject, dtype: str) -> Any:
    if (id(subject), dtype) not in _done:
        _prepare([subject], dtype)
    outcome = _done[id(subject), dtype][1]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _check_device(subject: Subject, dtype: str, judge: Judge) -> None:
    _compare(judge, DEVICE, _outcome(subject, dtype), _reference(subject, dtype), dtype)


for _name, _dtype, _claims in (
    ("device_f32", "float32", at_float32),
    ("device_f64", "float64", ordinary),
):
    define(
        Surface(
            _name,
            "jax.jit on the device against the interpreter",
            (_dtype,),
            _claims,
            _check_device,
            prepare=_prepare,
            needs=("jax",),
            chunk=OPS_IN_CHUNK,
        )
    )


def _self_claims(subject: Subject) -> bool:
    return at_float32(subject) and subject.thorough and not subject.tags


def _check_self(subject: Subject, dtype: str, judge: Judge) -> None:
    """A second load and run of the same program, in a module of its own."""
    from checks.devices import run_batch

    (again,) = run_batch([case(subject, dtype)], DEVICE, dtype)
    if isinstance(again, Exception):
        raise again
    first = _outcome(subject, dtype)
    for i, (got, want) in enumerate(zip(again, first, strict=True)):
        judge.compare(f"second load, result {i}", got, want, equal_nan=True)


define(
    Surface(
        "device_self",
        "the device against itself: two loads of one program",
        ("float32",),
        _self_claims,
        _check_self,
        prepare=_prepare,
        needs=("jax",),
        chunk=OPS_IN_CHUNK,
    )
)
