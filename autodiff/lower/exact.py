"""Programs in exact arithmetic: values with a proven error, to judge float64 and float32 by.

Numbers are Arb balls (python-flint), or mpmath's where Arb is absent. The precision is doubled
until every result has enough good digits: a fixed one leaves few where a program cancels.
"""

import dataclasses
import functools
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from autodiff.errors import AutodiffError
from autodiff.interpret import Reference, base_width
from autodiff.lower.balls import Ball, backend
from autodiff.lower.exact_arrays import ARRAYS, Array, Call, Gauge, each, nearest
from autodiff.lower.exact_functions import FUNCTIONS
from autodiff.lower.exact_linalg import NoRule
from autodiff.lower.number import Number, Undecided
from autodiff.op import OPS, Op, body_program
from autodiff.program import Literal, Program, Spec, Var
from autodiff.rounding import FORMATS, cast

PRECISIONS = {53: "float64", 24: "float32"}
WANTED = {53: 60, 24: 40}  # bits of relative accuracy at which a midpoint rounds correctly
START, LIMIT = 128, 4096

# Kernels that move, compare, add and multiply values alone, so that they are exact on Numbers.
STRUCTURAL = frozenset(
    "SUM_TO SLICE PAD CONCAT SPLIT GATHER SCATTER SCATTER_ADD DYNAMIC_SLICE DYNAMIC_UPDATE_SLICE "
    "ARGMAX_MASK CUMSUM CUMMAX CUMMIN SORT ARGSORT TOP_K MATMUL DOT_GENERAL TRIANGLE DIAGONAL "
    "DIAGONAL_MATRIX FOLD LABEL_MASK RNG_BITS RNG_SPLIT RNG_FOLD_IN".split()
)
# NumPy functions that are not: they look at bits, or at floating-point neighbours.
INEXACT = frozenset({"NEXTAFTER", "BITCAST", "ROUND_DECIMALS"})


class NotExact(AutodiffError):
    """A program or value without exact evaluation; carries `kind` (or "") and `reason`."""

    def __init__(self, kind: str, reason: str) -> None:
        self.kind, self.reason = kind, reason
        super().__init__(
            f"{f'op {kind}' if kind else 'the program'} is not evaluated exactly: {reason}",
            "in autodiff.lower.exact.evaluate_exact",
            "compare with the float64 interpreter instead",
            kind=kind,
            reason=reason,
        )


@dataclasses.dataclass(frozen=True)
class ExactArray:
    """One exact result.

    Attributes:
        value: the midpoints rounded once, to 53 or 24 bits, as float64 or complex128; integers and
            bools as they are.
        low: what is left of the midpoint, so that value + low has twice the digits.
        radius: upper bound of the distance from midpoint to exact value; 0 where it is exact.
        accuracy: bits of relative accuracy; 0 where all that is known is that the exact value
            rounds to 0.
    """

    value: Array
    low: Array
    radius: Array
    accuracy: Array


def evaluate_exact(
    program: Program,
    args: Sequence[Any],
    bits: int = 53,
    *,
    arithmetic: str | None = None,
    limit: int = LIMIT,
    entrywise: bool = True,
) -> list[ExactArray]:
    """The exact results of a flat program, rounded once.

    Inputs and literals are first rounded to the precision (float64 for 53 bits, float32 for 24),
    and so are values the program itself casts narrower; nothing else is rounded.

    Args:
        program: a program without captures.
        args: its flat inputs, finite.
        bits: 53 or 24, the precision of inputs and of the results' rounding.
        arithmetic: "flint" or "mpmath"; by default the first where it is installed. mpmath's
            accuracy is not proven but estimated from two precisions.
        limit: the largest precision to try, in bits.
        entrywise: whether each entry has its own relative accuracy (of one that is exactly 0, only
            1024 bits and more show that it rounds to 0); else entries are as accurate as the
            largest of their array needs, and small ones may have an accuracy of 0.

    Returns:
        One `ExactArray` per output.

    Raises:
        NotExact: an op has no exact rule; an input is NaN, infinite or -0.0, whose meaning real
            arithmetic lacks; a result is not finite; or the limit does not settle a comparison.
    """
    number = backend(arithmetic)
    if program.captures:
        raise NotExact("", "it has captured values")
    mode = Exact(program, PRECISIONS[bits], number)
    arrays = [mode.argument(a, v.spec) for a, v in zip(args, program.inputs, strict=True)]
    outcome = _raised(mode, program, arrays, bits, limit, entrywise)
    if mode.gauge.used:
        for pattern in (1, 2):
            mode.gauge = Gauge(pattern)
            other = _raised(mode, program, arrays, bits, limit, entrywise)
            if any((a.value != b.value).any() for a, b in zip(outcome, other, strict=True)):
                raise NotExact("", "its results depend on signs that LAPACK leaves open")
    return outcome


def _raised(
    mode: "Exact",
    program: Program,
    arrays: Sequence[Array],
    bits: int,
    limit: int,
    entrywise: bool,
) -> list[ExactArray]:
    """The results at the first precision, of those doubled from `START`, that suffices."""
    previous: list[Array] | None = None
    reason, precision = "", START
    while precision <= limit:
        try:
            with mode.number.precision(precision):
                results = mode.run(program, *arrays)
                done, outcome = _settled(results, previous, program, bits, entrywise)
            if done:
                return outcome
            reason = "the result is not accurate enough"
            previous = list(results)
        except Undecided as error:
            reason = error.what
        except NoRule as error:
            raise NotExact("", str(error)) from None
        precision *= 2
    raise NotExact("", f"{reason} ({limit} bits)")


def exact_kinds() -> tuple[str, ...]:
    """Kinds of the ops that have exact evaluation: composites, and primitives with a rule."""
    return tuple(sorted(k for k, op in OPS.items() if _evaluable(op)))


def missing_exact() -> tuple[str, ...]:
    """Kinds of the primitives that have no exact rule."""
    return tuple(sorted(k for k, op in OPS.items() if not _evaluable(op)))


def _evaluable(op: Op) -> bool:
    return op.body is not None or op.control or op.kind == "GUARD" or rule_of(op) is not None


def rule_of(op: Op) -> Callable[..., Any] | None:
    """`rule(call, *arrays, **params)` of a primitive on object arrays, or None.

    `Op.exact` names the op kind whose rule is used, or is "impl" where the op's own NumPy code is
    exact on numbers of any precision.
    """
    name = op.exact or op.kind
    if name in ARRAYS:
        return ARRAYS[name]
    if name in FUNCTIONS:
        return _elementwise(FUNCTIONS[name])
    if op.impl is None or name in INEXACT:
        return None
    from_numpy = getattr(np, getattr(op.impl, "__name__", ""), None) is op.impl
    if from_numpy or name == "impl" or name in STRUCTURAL:
        return _through(op.impl)
    return None


def _elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(call: Call, *arrays: Array, **params: Any) -> Array:
        numbers = [numbered(call.number, a) for a in arrays]
        return each(functools.partial(function, **params) if params else function, *numbers)

    return apply


def _through(impl: Callable[..., Any]) -> Callable[..., Any]:
    def apply(call: Call, *arrays: Array, **params: Any) -> Any:
        del call
        return impl(*arrays, **params)

    return apply


class Exact:
    """One mode of exact evaluation: the dtypes of values, and the class of numbers."""

    def __init__(self, program: Program, precision: str, number: type[Number]) -> None:
        width = base_width(program)
        self.to = Reference(width, np.dtype(precision), "ieee", False).dtype
        self.number, self.gauge = number, Gauge()

    def argument(self, value: Any, spec: Spec) -> Array:
        """An input at this precision; real arithmetic has no NaN, infinity or -0."""
        array = np.asarray(value)
        if spec.dtype.kind in "fcV":
            array = np.asarray(cast(array, self.to(spec.dtype)))
            parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
            wide = [np.asarray(p, np.float64) for p in parts]
            if not all(np.isfinite(p).all() for p in wide):
                raise NotExact("", "an input is NaN or infinite")
            if any((np.signbit(p) & (p == 0)).any() for p in wide):
                raise NotExact("", "an input is -0.0")
        return array

    def numbers(self, array: Array, spec: Spec) -> Array:
        """An array as the rules see it: Numbers for floating values."""
        if spec.dtype.kind not in "fcV":
            return array
        wide = array if array.dtype.kind in "fc" else array.astype(np.float64)
        return each(self.number.of, wide)

    def read(self, atom: Var | Literal, env: Mapping[Var, Array]) -> Array:
        """The value of an operand."""
        if isinstance(atom, Var):
            return env[atom]
        dtype = self.to(atom.spec.dtype)
        same = dtype == atom.spec.dtype
        return self.numbers(atom.value if same else cast(atom.value, dtype), atom.spec)

    def run(self, program: Program, *args: Array) -> tuple[Array, ...]:
        """Evaluate a program at the current precision."""
        env = {
            v: self.numbers(a, v.spec) if a.dtype != object else a
            for v, a in zip(program.inputs, map(np.asarray, args), strict=True)
        }
        for eq in program.equations:
            values = [self.read(a, env) for a in eq.inputs]
            for var, value in zip(eq.outputs, self.apply(eq, values), strict=True):
                env[var] = self.fitted(value, var.spec, eq.op)
        return tuple(self.read(a, env) for a in program.outputs)

    def apply(self, eq: Any, values: list[Array]) -> tuple[Any, ...]:
        """Results of one equation."""
        op: Op = eq.op
        if op.body is not None:
            return self.run(body_program(op, tuple(a.spec for a in eq.inputs), eq.params), *values)
        params = dict(eq.params)
        if not op.control and all(v.spec.size == 0 for v in eq.outputs):
            return tuple(np.empty(v.spec.shape, object) for v in eq.outputs)  # GUARD, too
        if op.control:
            assert op.impl is not None
            result = op.impl(self.run, *values, **params)
        elif all(a.spec.dtype.kind in "biu" for a in (*eq.inputs, *eq.outputs)):
            assert op.impl is not None
            result = op.impl(*values, **params)
        else:
            found = rule_of(op)
            if found is None:
                raise NotExact(op.kind, "it has no exact rule")
            call = Call(
                self.number,
                tuple(self.to(a.spec.dtype) for a in eq.inputs),
                tuple(self.to(v.spec.dtype) for v in eq.outputs),
                self.gauge,
            )
            result = found(call, *values, **params)
        return tuple(result) if op.multiple else (result,)

    def fitted(self, value: Any, spec: Spec, op: Op) -> Array:
        """A result as an array of its spec's shape, of Numbers where it is floating."""
        array = np.asarray(value) if not isinstance(value, Number) else _scalar(value)
        if array.shape != spec.shape:
            raise NotExact(op.kind, f"its rule gave shape {array.shape} for {spec}")
        if spec.dtype.kind not in "fcV":
            return array if array.dtype == spec.dtype else array.astype(spec.dtype)
        return numbered(self.number, array)


def numbered(number: type[Number], array: Array) -> Array:
    """An array of Numbers for one of what rules and NumPy give."""
    if array.dtype == object and all([type(x) is number for x in array.flat]):
        return array
    return each(lambda x: number.of(_element(x)), array)


def _scalar(value: Number) -> Array:
    array = np.empty((), object)
    array[()] = value
    return array


def _element(x: Any) -> Any:
    """What NumPy leaves in object arrays: None for an empty sum, or a 0-d array it was given."""
    while isinstance(x, np.ndarray):
        x = x[()]
    return 0 if x is None else x


# --- results -------------------------------------------------------------------------------


def _settled(
    results: Sequence[Array],
    previous: Sequence[Array] | None,
    program: Program,
    bits: int,
    entrywise: bool,
) -> tuple[bool, list[ExactArray]]:
    """Whether all results are accurate enough, and them."""
    outcome = []
    for i, (array, atom) in enumerate(zip(results, program.outputs, strict=True)):
        if array.dtype != object:
            nothing = np.zeros(array.shape)
            outcome.append(ExactArray(array, nothing, nothing, np.full(array.shape, LIMIT)))
            continue
        before = None if previous is None else previous[i]
        rows = _rows(array, before, bits, Fraction(0))
        if not entrywise and None in rows:
            rows = _rows(array, before, bits, _largest(array) / 2 ** WANTED[bits])
        if any(r is None for r in rows):
            return False, []
        complex_ = atom.spec.dtype.kind == "c"
        outcome.append(_gathered([r for r in rows if r is not None], array.shape, complex_))
    return True, outcome


Row = tuple[complex, complex, float, int]


def _rows(array: Array, before: Array | None, bits: int, floor: Fraction) -> list[Row | None]:
    previous = [None] * array.size if before is None else before.flat
    return [_row(x, b, bits, floor) for x, b in zip(array.flat, previous, strict=True)]


def _largest(array: Array) -> Fraction:
    """The largest magnitude of a real or imaginary part; 0 where one is not finite."""
    parts = [part.midpoint() for x in array.flat for part, _ in _parts(x, None)]
    known = [abs(p) for p in parts if p is not None]
    return max(known, default=Fraction(0)) if len(known) == len(parts) else Fraction(0)


def _gathered(rows: list[Row], shape: tuple[int, ...], complex_: bool) -> ExactArray:
    kind = np.complex128 if complex_ else np.float64
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    dtypes = (kind, kind, np.float64, np.int64)
    arrays = [
        (np.asarray(c).real if d is np.float64 else np.asarray(c)).astype(d).reshape(shape)
        for c, d in zip(columns, dtypes, strict=True)
    ]
    return ExactArray(*arrays)


def _row(x: Number, before: Number | None, bits: int, floor: Fraction) -> Row | None:
    """Value, rest, radius and accuracy of one element; None where it is not accurate enough."""
    parts = [_part(p, b, bits, floor) for p, b in _parts(x, before)]
    if any(p is None for p in parts):
        return None
    known = [p for p in parts if p is not None]
    if len(known) == 1:
        return known[0]
    (a, b) = known
    return (
        complex(a[0].real, b[0].real),
        complex(a[1].real, b[1].real),
        max(a[2], b[2]),
        min(a[3], b[3]),
    )


def _parts(x: Number, before: Number | None) -> list[tuple[Number, Number | None]]:
    if not x.is_complex:
        return [(x, before)]
    return [
        (x.real, None if before is None else before.real),
        (x.imag, None if before is None else before.imag),
    ]


def _part(x: Number, before: Number | None, bits: int, floor: Fraction) -> Row | None:
    middle = x.midpoint()
    if middle is None:
        raise Undecided("a result that is not finite")
    form = FORMATS[PRECISIONS[bits]]
    value = nearest(middle, form)
    rest = float(middle - Fraction(value)) if np.isfinite(value) else 0.0
    if isinstance(x, Ball):
        gap, accuracy = x.radius(), min(x.accuracy(), LIMIT)
    elif before is None:
        return None
    else:
        other = before.midpoint()
        gap = abs(middle - other) if other is not None else abs(middle)
        accuracy = LIMIT if not gap else _bits(gap, middle)
    if accuracy >= WANTED[bits]:
        return value, rest, _upward(gap), accuracy
    if abs(middle) + gap < Fraction(form.quantum) / 4:
        return 0.0, rest, _upward(gap), 0
    return (value, rest, _upward(gap), 0) if gap < floor else None


def _upward(gap: Fraction) -> float:
    """A float not below a bound."""
    value = nearest(gap, FORMATS["float64"])
    if math.isinf(value) or Fraction(value) >= gap:
        return value
    return math.nextafter(value, math.inf)


def _bits(gap: Fraction, middle: Fraction) -> int:
    ratio = abs(middle) / gap
    return ratio.numerator.bit_length() - ratio.denominator.bit_length()


for _module in ("autodiff.ops", "autodiff.lower.exact_signal", "autodiff.lower.exact_special"):
    importlib.import_module(_module)  # the registry and the tables are filled before they are read
