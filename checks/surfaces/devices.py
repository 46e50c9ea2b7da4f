"""Surfaces of devices: StableHLO text, `jax.jit` against the interpreter, a device and itself."""

import collections
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

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
KEPT = 4000
Case = tuple[Program, Sequence[Any]]


def case(subject: Subject, dtype: str) -> tuple[Program, list[Array]]:
    """The subject's program of values and derivatives, with arguments of the dtype's values.

    Derivatives come with equal computations done once: each would be lowered and compiled.
    """
    program, args = subject.shared if subject.thorough else subject.road
    return program, rounded(args) if dtype == "float32" else list(args)


def _interpreted(subject: Subject, dtype: str) -> list[Array]:
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


class Store:
    """Outcomes of subjects by dtype, computed many at once; old ones are dropped."""

    def __init__(
        self,
        run: Callable[[Sequence[Case], Sequence[Subject], str], Sequence[Any]],
    ) -> None:
        self.run = run
        self.done: collections.OrderedDict[tuple[int, str], tuple[Subject, Any]] = (
            collections.OrderedDict()
        )

    def prepare(self, subjects: Sequence[Subject], dtype: str) -> None:
        """Compute the outcomes that are not there yet; a subject's exception is its outcome."""
        cases, kept = [], []
        for s in subjects:
            if (id(s), dtype) in self.done:
                continue
            try:
                cases.append(case(s, dtype))
                kept.append(s)
            except Exception as error:
                self.done[id(s), dtype] = (s, error)
        if cases:
            for s, outcome in zip(kept, self.run(cases, kept, dtype), strict=True):
                self.done[id(s), dtype] = (s, outcome)
        while len(self.done) > KEPT:
            self.done.popitem(last=False)

    def outcome(self, subject: Subject, dtype: str) -> Any:
        """The outcome of one subject, or the exception it ended with."""
        if (id(subject), dtype) not in self.done:
            self.prepare([subject], dtype)
        found = self.done[id(subject), dtype][1]
        if isinstance(found, Exception):
            raise found
        return found


def _run(cases: Sequence[Case], subjects: Sequence[Subject], dtype: str) -> Sequence[Any]:
    from checks.devices.joined import run_joined

    twice = [dtype == "float32" and s.first for s in subjects]
    return run_joined(cases, DEVICE, dtype, twice)


_modules = Store(_run)
# the interpreter's results, for both surfaces of a dtype
_references: collections.OrderedDict[tuple[int, str], tuple[Subject, list[Array]]] = (
    collections.OrderedDict()
)


def _reference(subject: Subject, dtype: str) -> list[Array]:
    """What the interpreter gives for the subject's program, computed once."""
    found = _references.get((id(subject), dtype))
    if found is None:
        found = _references[id(subject), dtype] = (subject, _interpreted(subject, dtype))
        while len(_references) > KEPT:
            _references.popitem(last=False)
    return found[1]


def _check_emit(subject: Subject, dtype: str, judge: Judge) -> None:
    from autodiff.lower.stablehlo import UnsupportedError

    found = _modules.outcome(subject, dtype).emitted
    if isinstance(found, Exception):
        raise found
    if dtype == "float32" and found.types & WIDE:
        raise CheckError(f"the float32 module holds {', '.join(sorted(found.types & WIDE))}")
    results, label = found.results, "reference interpreter"
    # What the interpreter lacks is run by XLA in its stead, from the same module; so are NaN and
    # infinities, which it sorts and searches wrongly.
    if isinstance(results, UnsupportedError) or "nonfinite" in subject.tags:
        results, label = _device_results(subject, dtype), "compiled module"
    _compare(judge, label, results, _reference(subject, dtype), dtype)


for _name, _dtype, _claims, _compares in (
    (
        "emit_f32",
        "float32",
        at_float32,
        "StableHLO at float32: verified, no float64 in it, and run",
    ),
    ("emit_f64", "float64", ordinary, "StableHLO at float64: verified and run"),
):
    define(
        Surface(
            _name,
            _compares,
            (_dtype,),
            _claims,
            _check_emit,
            prepare=_modules.prepare,
            needs=("jax",),
            chunk=OPS_IN_CHUNK,
            group=f"modules_{_dtype}",
        )
    )

# --- devices -------------------------------------------------------------------------------


def _device_results(subject: Subject, dtype: str) -> Any:
    found = _modules.outcome(subject, dtype).device
    if isinstance(found, Exception):
        raise found
    return found


def _check_device(subject: Subject, dtype: str, judge: Judge) -> None:
    _compare(judge, DEVICE, _device_results(subject, dtype), _reference(subject, dtype), dtype)


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
            prepare=_modules.prepare,
            needs=("jax",),
            chunk=OPS_IN_CHUNK,
            group=f"modules_{_dtype}",
        )
    )


def _self_claims(subject: Subject) -> bool:
    return at_float32(subject) and subject.first


def _check_self(subject: Subject, dtype: str, judge: Judge) -> None:
    """Two loads of the same module, each run once."""
    again = _modules.outcome(subject, dtype).again
    if isinstance(again, Exception):
        raise again
    first = _device_results(subject, dtype)
    for i, (got, want) in enumerate(zip(again, first, strict=True)):
        judge.compare(f"second load, result {i}", got, want, equal_nan=True)


define(
    Surface(
        "device_self",
        "the device against itself: two loads of one program",
        ("float32",),
        _self_claims,
        _check_self,
        prepare=_modules.prepare,
        needs=("jax",),
        chunk=OPS_IN_CHUNK,
        group="modules_float32",
    )
)
