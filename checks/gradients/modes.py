"""The derivatives of a target in NumPy: by its framework, or written by hand."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.errors import AutodiffError, NotDifferentiableError
from checks.gradients.report import MUTATES_INPUT, NOT_DIFFERENTIABLE, WRONG_DTYPE, WRONG_SHAPE
from checks.gradients.target import Target, TargetError, equal, wide

Array = np.ndarray[Any, Any]
Pull = Callable[[Sequence[Array]], list[Array]]
Push = Callable[[Sequence[Array]], list[Array]]


class ModeError(Exception):
    """A derivative that fails before its numbers can be looked at; carries a verdict."""

    def __init__(self, verdict: str, text: str) -> None:
        self.verdict = verdict
        super().__init__(text)


class UndefinedModeError(Exception):
    """The function has no derivative of this mode."""


@dataclasses.dataclass(frozen=True)
class Modes:
    """Reverse and forward mode of a target at its point; None where it has none.

    `reverse(cotangents)` gives one gradient per point, `forward(direction)` one tangent per smooth
    result, in float64 or complex128, after their own shapes and dtypes were checked.
    """

    reverse: Pull | None
    forward: Push | None


def modes_of(target: Target, wanted: Sequence[str]) -> Modes:
    """The modes asked for, hand-written ones first.

    A target with hand-written derivatives has only those. Raises TargetError for unknown modes.
    """
    unknown = [m for m in wanted if m not in ("reverse", "forward")]
    if unknown or not wanted:
        raise TargetError(
            f"there is no mode {unknown[0]!r}" if unknown else "no mode was asked for",
            f"in check_gradients({target.name}, modes={tuple(wanted)!r})",
            "use 'forward', 'reverse' or both",
        )
    if target.manual.given:
        found = Modes(_manual_reverse(target), _manual_forward(target))
    else:
        found = Modes(_reverse(target), _forward(target))
    return Modes(
        found.reverse if "reverse" in wanted else None,
        found.forward if "forward" in wanted else None,
    )


# --- by the framework ----------------------------------------------------------------------


def _reverse(target: Target) -> Pull:
    def reverse(cotangents: Sequence[Array]) -> list[Array]:
        target.tally.derivatives += 1
        natives = target.native(target.points)
        cts = natives_like(target, cotangents, target.centre)
        with guarded(target):
            _, pull = target.framework.vjp(target.flat, natives)
            target.__dict__["custom"] = getattr(pull, "custom", False)
            # a copy: a backward that returns what it saved, written into, changes it when run again
            raw = [None if g is None else np.array(target.to_numpy(g)) for g in pull(cts)]
            again = None if target.framework.reentrant else pull(cts)
        _unchanged(target, cts, cotangents, "the cotangent")
        _unchanged(target, natives, target.points, "an argument")
        gradients = checked(target, raw)
        if again is not None:
            _same(gradients, checked(target, again))
        return gradients

    return reverse


def _forward(target: Target) -> Push:
    def forward(direction: Sequence[Array]) -> list[Array]:
        target.tally.derivatives += 1
        natives = target.native(target.points)
        with guarded(target):
            dots = target.native(direction)
            outs, raw = target.framework.jvp(target.flat, natives, dots)
        return checked_tangents(target, raw, outs)

    return forward


def natives_like(target: Target, values: Sequence[Array], like: Sequence[Array]) -> list[Any]:
    """Arrays of the framework holding cotangents, in the results' dtypes."""
    original = target.originals[target.positions[0]]
    return [
        target.framework.native(np.asarray(v, y.dtype), original)
        for v, y in zip(values, like, strict=True)
    ]


class guarded:
    """Exceptions of a transform as what they mean: not differentiable, or no such mode."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, ModeError | UndefinedModeError):
            return
        if isinstance(error, self.target.framework.undefined):
            raise UndefinedModeError(first_line(error)) from error
        if isinstance(error, NotDifferentiableError) or _says_no_gradient(error):
            raise ModeError(NOT_DIFFERENTIABLE, first_line(error)) from error


def first_line(error: BaseException) -> str:
    """An exception's class and the first line of its text; all of the engine's own three."""
    if isinstance(error, AutodiffError):  # the line of the user's and the way out
        return f"{type(error).__name__}: {'; '.join(str(error).splitlines())}"
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def _says_no_gradient(error: BaseException) -> bool:
    text = str(error)
    return isinstance(error, RuntimeError) and "does not require grad" in text


# --- what comes back -----------------------------------------------------------------------


def checked(target: Target, raw: Sequence[Any]) -> list[Array]:
    """Gradients in float64, of the points' shapes and dtypes; None is zero.

    Raises ModeError for a wrong count, shape or dtype.
    """
    if len(raw) != len(target.points):
        text = f"{len(raw)} gradients for {len(target.points)} differentiated arguments"
        raise ModeError(WRONG_SHAPE, text)
    made = []
    for value, x, path in zip(raw, target.points, target.point_paths, strict=True):
        if value is None:
            made.append(wide(np.zeros_like(x)))
            continue
        made.append(_fitting(target.to_numpy(value), x, f"the gradient of {path}"))
    return made


def checked_tangents(
    target: Target, raw: Sequence[Any], outs: Sequence[Any] | None = None
) -> list[Array]:
    """Output tangents in float64, of the smooth results' shapes and dtypes; None is zero.

    Where a transform gave results of other dtypes (`outs`) than the function called alone does, as
    NumPy's bfloat16 may, theirs count.
    """
    if len(raw) != len(target.centre):
        text = f"{len(raw)} tangents for {len(target.centre)} results"
        raise ModeError(WRONG_SHAPE, text)
    made = []
    for i, (t, y) in enumerate(zip(raw, target.centre, strict=True)):
        if t is None:
            made.append(wide(np.zeros_like(y)))
            continue
        value = target.to_numpy(t)
        if outs is not None and value.dtype != y.dtype:
            y = _as_traced(target, target.to_numpy(outs[i]), i)
        made.append(_fitting(value, y, f"tangent {i}"))
    return made


def _as_traced(target: Target, out: Array, i: int) -> Array:
    like = target.centre[i]
    if out.dtype != like.dtype:
        text = f"result {i} is {like.dtype.name} by a plain call, {out.dtype.name} when traced"
        target.notes.append(text)
    return np.empty(like.shape, out.dtype)


def _fitting(value: Array, like: Array, what: str) -> Array:
    if value.shape != like.shape:
        raise ModeError(WRONG_SHAPE, f"{what} has shape {value.shape}, expected {like.shape}")
    if value.dtype != like.dtype:
        raise ModeError(WRONG_DTYPE, f"{what} is {value.dtype.name}, expected {like.dtype.name}")
    return np.array(wide(value))


def _unchanged(target: Target, natives: Sequence[Any], before: Sequence[Array], what: str) -> None:
    for native, old in zip(natives, before, strict=True):
        if target.framework.dead(native):
            continue
        now = target.to_numpy(native)
        if not equal(now, np.asarray(old, now.dtype)):
            raise ModeError(MUTATES_INPUT, f"the derivative writes into {what}")


def _same(first: Sequence[Array], second: Sequence[Array]) -> None:
    from checks.gradients.report import NONDETERMINISTIC

    for a, b in zip(first, second, strict=True):
        if not equal(a, b):
            worst = float(np.max(np.abs(a - b)))
            text = (
                f"two runs of the backward pass differ by up to {worst:.3g}: it is not re-entrant "
                "(it writes into what it saved), or random"
            )
            raise ModeError(NONDETERMINISTIC, text)


# --- written by hand -----------------------------------------------------------------------


def _arguments(target: Target, natives: Sequence[Any] | None = None) -> tuple[Any, ...]:
    full = list(target._fixed)
    natives = target.native(target.points) if natives is None else natives
    for i, value in zip(target.positions, natives, strict=True):
        full[i] = value
    return tuple(tree.unflatten(target._flat[1], full))


def _note_aliases(target: Target, raw: Sequence[Any], natives: Sequence[Any]) -> None:
    """Note gradients that share memory with an argument or with one another: whoever adds to one
    in place changes the other.
    """
    arrays = [g if isinstance(g, np.ndarray) else None for g in raw]
    for k, g in enumerate(arrays):
        if g is None or g.size == 0:
            continue
        path = f"the gradient of {target.point_paths[k]}"
        for x, name in zip(natives, target.point_paths, strict=True):
            if isinstance(x, np.ndarray) and np.shares_memory(g, x):
                target.notes.append(f"{path} shares memory with the argument {name}: return a copy")
        for other, name in zip(arrays[:k], target.point_paths, strict=False):
            if other is not None and np.shares_memory(g, other):
                target.notes.append(f"{path} shares memory with that of {name}: return a copy")


def _manual_reverse(target: Target) -> Pull | None:
    manual = target.manual
    if manual.vjp is not None:
        return _counted(target, lambda cts: _by_vjp(target, cts))
    if manual.gradient is not None:
        return _counted(target, lambda cts: _by_gradient(target, cts))
    if manual.jac is not None:
        return _counted(target, lambda cts: _by_jac(target, cts))
    return None


def _counted(target: Target, pull: Pull) -> Pull:
    def reverse(cotangents: Sequence[Array]) -> list[Array]:
        target.tally.derivatives += 1
        return pull(cotangents)

    return reverse


def _leaf_gradients(target: Target, result: Any, what: str) -> list[Any]:
    """One entry per point out of what a hand-written derivative returned for the arguments."""
    count = len(target.args)
    per_argument = result if isinstance(result, tuple) else (result,)
    chosen = target.argnums or tuple(range(count))
    if len(per_argument) == len(chosen) != count:
        full: list[Any] = [None] * count
        for n, g in zip(chosen, per_argument, strict=True):
            full[n] = g
        per_argument = tuple(full)
    if len(per_argument) != count:
        text = f"{what} returned {len(per_argument)} gradients for {count} arguments"
        raise ModeError(WRONG_SHAPE, text)
    leaves: list[Any] = []
    for argument, g in zip(target.args, per_argument, strict=True):
        n = len(tree.flatten(argument)[0])
        found = [None] * n if g is None else tree.flatten(g)[0]
        if len(found) != n:
            raise ModeError(WRONG_SHAPE, f"{what} returned {len(found)} arrays for {n}")
        leaves += found
    return [leaves[i] for i in target.positions]


def _by_vjp(target: Target, cotangents: Sequence[Array]) -> list[Array]:
    assert target.manual.vjp is not None
    values, treedef = target.first
    filled: list[Any] = [None] * len(values)
    cts = natives_like(target, cotangents, target.centre)
    for i, ct in zip(target.smooth, cts, strict=True):
        filled[i] = ct
    natives = target.native(target.points)
    arguments = _arguments(target, natives)
    result = target.manual.vjp(*arguments, tree.unflatten(treedef, filled))
    _unchanged(target, cts, cotangents, "the cotangent")
    _unchanged(target, natives, target.points, "an argument")
    raw = _leaf_gradients(target, result, "vjp")
    _note_aliases(target, raw, natives)
    gradients = checked(target, raw)
    again = target.manual.vjp(*arguments, tree.unflatten(treedef, filled))
    _same(gradients, checked(target, _leaf_gradients(target, again, "vjp")))
    return gradients


def _by_gradient(target: Target, cotangents: Sequence[Array]) -> list[Array]:
    assert target.manual.gradient is not None
    if [y.size for y in target.centre] != [1]:
        raise TargetError(
            f"gradient= is for a scalar function; {target.name} returns "
            f"{', '.join(str(y.shape) for y in target.centre)}",
            f"in check_gradients({target.name}, gradient=...)",
            "pass jac= (a Jacobian) or vjp= instead",
        )
    natives = target.native(target.points)
    result = target.manual.gradient(*_arguments(target, natives))
    _unchanged(target, natives, target.points, "an argument")
    leaves = _leaf_gradients(target, result, "gradient")
    _note_aliases(target, leaves, natives)
    raw = checked(target, leaves)
    return [g * wide(cotangents[0]).ravel()[0] for g in raw]


def _jacobians(target: Target) -> list[Array | None]:
    assert target.manual.jac is not None
    if len(target.centre) != 1:
        raise TargetError(
            f"jac= is for a function with one result; {target.name} returns {len(target.centre)}",
            f"in check_gradients({target.name}, jac=...)",
            "pass vjp= or jvp= instead",
        )
    result = target.manual.jac(*_arguments(target))
    made: list[Array | None] = []
    for value, x in zip(_leaf_gradients(target, result, "jac"), target.points, strict=True):
        shape = target.centre[0].shape + x.shape
        found = None if value is None else target.to_numpy(value)
        if found is not None and found.shape != shape:
            raise ModeError(WRONG_SHAPE, f"the Jacobian has shape {found.shape}, expected {shape}")
        made.append(None if found is None else wide(found))
    return made


def _by_jac(target: Target, cotangents: Sequence[Array]) -> list[Array]:
    u = wide(cotangents[0])
    return [
        wide(np.zeros_like(x)) if j is None else np.asarray(np.tensordot(u, j, u.ndim))
        for j, x in zip(_jacobians(target), target.points, strict=True)
    ]


def _manual_forward(target: Target) -> Push | None:
    if target.manual.jvp is None and target.manual.jac is None:
        return None

    def forward(direction: Sequence[Array]) -> list[Array]:
        target.tally.derivatives += 1
        if target.manual.jvp is None:
            found = [
                np.tensordot(j, d, d.ndim)
                for j, d in zip(_jacobians(target), direction, strict=True)
                if j is not None
            ]
            return [np.asarray(sum(found, np.zeros(target.centre[0].shape)))]
        full: list[Any] = [None] * len(target.leaves)
        for i, t in zip(target.positions, target.native(direction), strict=True):
            full[i] = t
        dots = tuple(tree.unflatten(target._flat[1], full))
        result = target.manual.jvp(_arguments(target), dots)
        leaves = tree.flatten_up_to(result, target.first[1], "the tangent")
        return checked_tangents(target, [leaves[i] for i in target.smooth])

    return forward
