"""Surfaces of values: shapes, float32 against float64, exact arithmetic, stated conventions."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import autodiff as ad
from autodiff import tree
from autodiff.interpret import interpret_flat
from autodiff.program import Program, Spec, verify
from checks import kept
from checks.judge import CheckError, Judge
from checks.subject import Subject
from checks.surfaces.base import HOST, Surface, at_float32, define, ordinary, rounded

if TYPE_CHECKING:
    from autodiff.lower.exact import ExactArray

Array = np.ndarray[Any, Any]

# --- shapes --------------------------------------------------------------------------------


def _layouts(leaf: Array) -> list[tuple[str, Array]]:
    """The same values in other memory layouts."""
    found = [("read-only", _read_only(leaf))]
    if leaf.ndim and leaf.size:
        wide = np.zeros((*leaf.shape[:-1], 2 * leaf.shape[-1]), leaf.dtype)
        wide[..., ::2] = leaf
        found.append(("strided", wide[..., ::2]))
        found.append(("reversed", np.ascontiguousarray(leaf[..., ::-1])[..., ::-1]))
    if leaf.ndim > 1:
        found.append(("Fortran-ordered", np.asfortranarray(leaf)))
    return found


def _read_only(leaf: Array) -> Array:
    copy = leaf.copy()
    copy.flags.writeable = False
    return copy


def _check_shapes(subject: Subject, dtype: str, judge: Judge) -> None:
    del dtype
    verify(subject.program)
    before = [leaf.copy() for leaf in subject.leaves]
    values = _values(subject, subject.leaves)
    for i, (value, spec) in enumerate(zip(values, subject.program.out_specs, strict=True)):
        found = Spec(value.shape, value.dtype)
        if found != spec:
            raise CheckError(f"result {i} is {found}, the spec rule says {spec}")
    for name, old, leaf in zip(_names(subject), before, subject.leaves, strict=True):
        if not np.array_equal(old, leaf, equal_nan=old.dtype.kind in "fc"):
            raise CheckError(f"argument {name} was modified")
    for index, leaf in enumerate(subject.leaves):
        for layout, other in _layouts(leaf):
            leaves = list(subject.leaves)
            leaves[index] = other
            for i, (got, want) in enumerate(zip(_values(subject, leaves), values, strict=True)):
                judge.compare(
                    f"result {i} for a {layout} argument",
                    got,
                    want,
                    variant="layout",
                    equal_nan=True,
                )


def _values(subject: Subject, leaves: Any) -> list[Array]:
    return [np.asarray(v) for v in tree.flatten(subject.call_leaves(*leaves))[0]]


def _names(subject: Subject) -> list[str]:
    return tree.paths(subject.args, "args")


define(
    Surface(
        "shapes",
        "spec rule against the evaluated result, in several memory layouts",
        ("float64",),
        ordinary,
        _check_shapes,
        group=HOST,
    )
)

# --- f32 -----------------------------------------------------------------------------------


def _check_f32(subject: Subject, dtype: str, judge: Judge) -> None:
    same = subject.closely is subject.derivative
    program, args = subject.shared if same else subject.derivative
    args = rounded(args)
    expected = interpret_flat(program, *args)
    actual = interpret_flat(program, *args, precision=dtype)
    _compare_narrow(judge, "interpreter", actual, expected)
    narrow = subject.narrowed
    wide = _values(subject, rounded(subject.leaves))
    native = _values(narrow, narrow.leaves)
    size = max(
        (float(np.sum(np.abs(x))) for x in subject.leaves if x.dtype.kind in "fc"), default=0
    )
    for i, (got, spec) in enumerate(zip(native, narrow.program.out_specs, strict=True)):
        if got.dtype != spec.dtype:
            raise CheckError(f"native result {i} is {got.dtype.name}, the spec says {spec}")
    _compare_narrow(judge, "native", native, wide, size if subject.contracts else 0.0)


def _compare_narrow(
    judge: Judge, road: str, actual: Any, expected: Any, terms: float = 0.0
) -> None:
    for i, (got, want) in enumerate(zip(actual, expected, strict=True)):
        got, want = np.asarray(got), np.asarray(want)
        scale = None
        if want.dtype.kind in "fc":
            finite = np.abs(want[np.isfinite(want)])
            scale = max(1.0, float(finite.max(initial=0.0)), terms if terms < np.inf else 0.0)
        judge.compare(
            f"{road} result {i}", got, want, scale=scale, equal_nan=True, dtype=_judged(got.dtype)
        )


def _judged(dtype: Any) -> Any:
    """Float results of integer operands are float64 at any precision: judged as the others."""
    return np.dtype(np.float32) if dtype.kind in "fc" else dtype


define(
    Surface(
        "f32",
        "float32 against float64 on float32 arguments: values, tangents and cotangents",
        ("float32",),
        at_float32,
        _check_f32,
        group=HOST,
    )
)

# --- exact ---------------------------------------------------------------------------------


def _exact_claims(subject: Subject) -> bool:
    if not ordinary(subject) or subject.tags & {"nonfinite", "integer"}:
        return False
    kinds = {eq.op.kind for eq in subject.closely[0].equations}
    return kinds <= _exact_kinds()


@functools.cache
def _exact_kinds() -> frozenset[str]:
    from autodiff.lower.exact import exact_kinds

    return frozenset(exact_kinds())


def _check_exact(subject: Subject, dtype: str, judge: Judge) -> None:
    """Values in ulp; derivatives, whose terms may cancel, relative to their largest entry."""
    del dtype
    program, args = subject.shared
    expected = _reference(program, args)
    if expected is None:
        return  # comparisons that no precision settles, results that are not finite
    actual = interpret_flat(program, *args)
    for i, (got, want) in enumerate(zip(actual, expected, strict=True)):
        exact = want.value
        if got.dtype.kind not in "fc":
            judge.compare(f"result {i}", got, exact)
            continue
        # sums that cancel are held to their terms, of size 1, not to what is left of them
        floor = 1.0 if subject.contracts else 0.0
        largest = max(float(np.max(np.abs(exact), initial=0.0)), floor)
        judge.compare(
            f"result {i}",
            got,
            exact,
            variant="reducing",
            scale=largest or 1.0,
        )


def _reference(program: Program, args: Sequence[Array]) -> "list[ExactArray] | None":
    """What exact arithmetic gives, with its bounds, or None: kept by the program, its arguments and
    the sources of exact arithmetic, of which it is a function.
    """
    from autodiff.lower.exact import NotExact, evaluate_exact

    key = kept.entry_key([program], kept.arrays_digest(args), shelf=kept.EXACT)
    found = kept.load(key, kept.EXACT)
    if found is None:
        try:
            found = evaluate_exact(program, args, entrywise=False)
        except NotExact as error:
            found = error.reason
        kept.save(key, found, kept.EXACT)
    return found if isinstance(found, list) else None


define(
    Surface(
        "exact",
        "float64 against exact arithmetic",
        ("float64",),
        _exact_claims,
        _check_exact,
        needs=("mpmath",),
        group=HOST,
    )
)

# --- special -------------------------------------------------------------------------------


def _special_claims(subject: Subject) -> bool:
    return subject.special is not None


def _check_special(subject: Subject, dtype: str, judge: Judge) -> None:
    del dtype
    special = subject.special
    assert special is not None
    with np.errstate(all="ignore"):
        if special.value is not None:
            _compare_stated(
                judge,
                "value",
                subject.call_leaves(*subject.leaves),
                special.value,
                special.signed_zero,
            )
        if special.gradients is not None:
            points = [subject.leaves[i] for i in subject.positions]
            _, pullback = ad.vjp(lambda *p: _bare(subject.at(*p)), *points)
            _compare_stated(
                judge,
                "gradient",
                list(pullback(_arrays(special.cotangent))),
                tuple(g for g in special.gradients if g is not None),
            )
        if special.tangent is not None:
            points = [subject.leaves[i] for i in subject.positions]
            dots = [np.asarray(t) for t in special.tangents or () if t is not None]
            _, dot = ad.jvp(lambda *p: _bare(subject.at(*p)), tuple(points), tuple(dots))
            _compare_stated(judge, "tangent", dot, special.tangent)


def _bare(outputs: list[Any]) -> Any:
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _arrays(value: Any) -> Any:
    return tree.map_leaves(np.asarray, value) if isinstance(value, tuple) else np.asarray(value)


def _compare_stated(
    judge: Judge, label: str, actual: Any, stated: Any, signed_zero: bool = False
) -> None:
    expected = list(stated) if isinstance(stated, tuple) else [stated]
    found = list(tree.flatten(actual)[0])
    for i, (got, want) in enumerate(zip(found, expected, strict=True)):
        got = np.asarray(got)
        want = np.asarray(want).astype(got.dtype)
        if not signed_zero and got.dtype.kind in "fc":
            got, want = got + 0.0, want + 0.0  # the sign of zero is not stated
        judge.compare(f"{label} {i}", got, np.broadcast_to(want, got.shape), equal_nan=True)


define(
    Surface(
        "special",
        "values and derivatives at special points against the stated conventions",
        ("float64",),
        _special_claims,
        _check_special,
        group=HOST,
    )
)
