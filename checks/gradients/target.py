"""The function under check: its arrays, its modes, and a count of its calls."""

import dataclasses
import functools
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.errors import AutodiffError
from autodiff.forward import is_inexact
from checks.gradients.framework import Flat, Framework, Native
from checks.tolerances import constant

Array = np.ndarray[Any, Any]


class TargetError(AutodiffError, ValueError):
    """A call that cannot be checked: no arrays, or modes that contradict one another."""


REFUSALS = (ValueError, ArithmeticError, RuntimeError, AssertionError)


@dataclasses.dataclass
class Tally:
    """How often the function and its derivatives were called; `diagnosis` calls of the function
    apart, made after the verdict.
    """

    calls: int = 0
    derivatives: int = 0
    diagnosis: int = 0
    refused: str = ""  # what the function last raised at a moved point


@dataclasses.dataclass(frozen=True)
class Manual:
    """Hand-written derivatives of a function; None where there is none.

    Arguments:
        vjp: `vjp(*args, ct) -> tuple`, one gradient per positional argument (or None); `ct` has
            the output's containers.
        jvp: `jvp(args, tangents) -> tangent`, both tuples.
        gradient: `gradient(*args) -> array or tuple`: of a scalar function.
        jac: `jac(*args) -> array or tuple`: the Jacobian, output axes first.
    """

    vjp: Callable[..., Any] | None = None
    jvp: Callable[..., Any] | None = None
    gradient: Callable[..., Any] | None = None
    jac: Callable[..., Any] | None = None

    @property
    def given(self) -> bool:
        """Whether any of them is there."""
        return any(getattr(self, f.name) is not None for f in dataclasses.fields(self))


@dataclasses.dataclass(frozen=True, eq=False)
class Target:
    """One call `function(*args)` under check, seen as a function of flat arrays.

    Arrays inside `args` are flat `leaves`; those at `positions` are differentiated. `flat` takes
    and returns the framework's own arrays; `outputs` NumPy ones. `names` stand for the parameters'
    own; `replay` is a faster form of `flat` for values alone (a derivative's, never the user's
    f). `notes` gathers what is no failure but worth a line.
    """

    name: str
    framework: Framework
    function: Callable[..., Any]
    args: tuple[Any, ...]
    argnums: tuple[int, ...] | None = None
    symmetric: tuple[int, ...] = ()
    manual: Manual = Manual()
    seed: int | None = None
    tally: Tally = dataclasses.field(default_factory=Tally)
    names: tuple[str, ...] = ()
    replay: Flat | None = None
    notes: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.positions:
            kinds = sorted({str(getattr(a, "dtype", type(a).__name__)) for a in self.originals})
            raise TargetError(
                f"{self.name} has no argument to differentiate: it was given "
                f"{', '.join(kinds) or 'no arrays'}",
                f"in check_gradients({self.name}, ...)",
                "pass floating or complex arrays (x.astype(float)), or name them by argnums=",
            )

    # --- arguments ----------------------------------------------------------------------------

    @functools.cached_property
    def _flat(self) -> tuple[list[Any], Any]:
        return tree.flatten(self.args)

    @property
    def originals(self) -> list[Any]:
        """The user's own leaves."""
        return self._flat[0]

    @functools.cached_property
    def paths(self) -> list[str]:
        """A readable name of each leaf: `x`, `params['w']`, `args[0]`."""
        names = self.parameters
        return [p for n, a in zip(names, self.args, strict=True) for p in tree.paths(a, n)]

    @functools.cached_property
    def parameters(self) -> list[str]:
        """A name of each positional argument."""
        return list(self.names) or parameter_names(self.function, len(self.args))

    @functools.cached_property
    def leaves(self) -> list[Any]:
        """All numeric leaves as NumPy arrays of their own; others as they are."""
        return [
            np.array(self.framework.numpy(x), order="K") if self._numeric(x, n) else x
            for x, n in zip(self.originals, self._argument_of, strict=True)
        ]

    def _numeric(self, leaf: Any, argument: int) -> bool:
        if type(leaf) in (bool, int, float, complex) and self.argnums is not None:
            return argument in self.argnums  # held fixed, a number may have to stay a Python one
        return self.framework.owns(leaf) or isinstance(leaf, np.ndarray | np.generic)

    @functools.cached_property
    def _argument_of(self) -> list[int]:
        return [i for i, a in enumerate(self.args) for _ in tree.flatten(a)[0]]

    @functools.cached_property
    def positions(self) -> tuple[int, ...]:
        """Indices of the leaves that are differentiated."""
        return tuple(
            i
            for i, leaf in enumerate(self.leaves)
            if isinstance(leaf, np.ndarray)
            and is_inexact(leaf.dtype)
            and (self.argnums is None or self._argument_of[i] in self.argnums)
        )

    @functools.cached_property
    def points(self) -> list[Array]:
        """The differentiated leaves."""
        return [self.leaves[i] for i in self.positions]

    @functools.cached_property
    def symmetric_points(self) -> frozenset[int]:
        """Indices of points read as one triangle."""
        return frozenset(
            k for k, i in enumerate(self.positions) if self._argument_of[i] in self.symmetric
        )

    @property
    def point_paths(self) -> list[str]:
        """Names of the differentiated leaves."""
        return [self.paths[i] for i in self.positions]

    # --- the function -------------------------------------------------------------------------

    def native(self, values: Sequence[Array]) -> list[Native]:
        """New arrays of the framework holding the values of points, rounded to their dtypes."""
        return [
            self.framework.native(np.asarray(v, p.dtype), self.originals[i])
            for v, p, i in zip(values, self.points, self.positions, strict=True)
        ]

    @functools.cached_property
    def _fixed(self) -> list[Any]:
        """All leaves as the function gets them; points are replaced at each call."""
        return [
            self.framework.native(leaf, original) if isinstance(leaf, np.ndarray) else leaf
            for leaf, original in zip(self.leaves, self.originals, strict=True)
        ]

    def call(self, arrays: Sequence[Native]) -> Any:
        """The function at points, in its own containers."""
        if self.framework.alive is not None and any(map(self.framework.dead, self._fixed)):
            del self.__dict__["_fixed"]  # donated to the call before
        full = list(self._fixed)
        for i, value in zip(self.positions, arrays, strict=True):
            full[i] = value
        return self.function(*tree.unflatten(self._flat[1], full))

    def flat(self, arrays: Sequence[Native]) -> list[Native]:
        """The smooth results as a list of the framework's arrays."""
        leaves = tree.flatten(self.call(arrays))[0]
        return [leaves[i] for i in self.smooth]

    def outputs(self, values: Sequence[Array]) -> list[Array]:
        """The smooth results at points, in NumPy at their own dtypes; counted.

        A function that raises at a moved point has left its domain: NaN.
        """
        self.tally.calls += 1
        try:
            with np.errstate(all="ignore"):
                flat = self.replay or self.flat
                return [self.to_numpy(y) for y in flat(self.native(values))]
        except REFUSALS as error:
            self.tally.refused = f"{type(error).__name__}: {error}".splitlines()[0]
            return [np.full_like(y, np.nan) for y in self.centre]

    def to_numpy(self, value: Any) -> Array:
        """A result as a NumPy array."""
        return np.asarray(self.framework.numpy(value))

    @functools.cached_property
    def first(self) -> tuple[list[Array], Any]:
        """All results of a first call as NumPy arrays, and their containers; counted."""
        self.tally.calls += 1
        with np.errstate(all="ignore"):
            leaves, treedef = tree.flatten(self.call(self.native(self.points)))
        return [np.array(self.to_numpy(y)) for y in leaves], treedef

    @functools.cached_property
    def smooth(self) -> tuple[int, ...]:
        """Indices of the results that have a tangent space."""
        return tuple(i for i, y in enumerate(self.first[0]) if is_inexact(y.dtype))

    @functools.cached_property
    def centre(self) -> list[Array]:
        """The smooth results at the point."""
        return [self.first[0][i] for i in self.smooth]

    @functools.cached_property
    def unit(self) -> float:
        """The largest unit roundoff among the points' and the smooth results' dtypes."""
        return max(unit_of(a.dtype) for a in (*self.points, *self.centre))

    # --- random numbers -----------------------------------------------------------------------

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator of its own for each purpose, from the function's name and the seed."""
        name = zlib.crc32(self.name.encode())
        return np.random.default_rng([name, self.seed or 0, zlib.crc32(purpose.encode())])

    def cotangents(self, purpose: str = "cotangents") -> list[Array]:
        """Random cotangents of the smooth results, in their dtypes."""
        rng = self.rng(purpose)
        return [normal(rng, y).astype(y.dtype) for y in self.centre]

    def direction(self, purpose: str = "direction") -> list[Array]:
        """A random sign times about the size of each entry (a unit phase for complex ones).

        Signs alone would cancel where entries are equal: x0 - x1 is flat along (1, 1).
        """
        rng = self.rng(purpose)
        made = []
        for k, x in enumerate(self.points):
            t = signs(rng, x) * size_of(x) * rng.uniform(0.75, 1.25, x.shape)
            t = np.asarray(t).astype(x.dtype)  # exact in the arguments' own precision
            made.append((t + np.swapaxes(t, -1, -2)) / 2 if k in self.symmetric_points else t)
        return made

    @contextmanager
    def scope(self) -> Iterator[None]:
        """The framework's context and quiet floating-point errors."""
        with self.framework.scope(), np.errstate(all="ignore"):
            yield


@functools.cache
def unit_of(dtype: np.dtype[Any]) -> float:
    """The unit roundoff of a floating dtype: half the distance from 1 to the next number."""
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).eps) / 2  # type: ignore[no-untyped-call]


def normal(rng: np.random.Generator, like: Array) -> Array:
    """Normal random numbers of an array's shape, complex where it is."""
    values = np.asarray(rng.normal(size=like.shape))
    return values + 1j * rng.normal(size=like.shape) if like.dtype.kind == "c" else values


def signs(rng: np.random.Generator, like: Array) -> Array:
    """Random signs, or random unit phases for complex arrays."""
    if like.dtype.kind == "c":
        return np.asarray(np.exp(2j * np.pi * rng.random(like.shape)))
    return np.asarray(rng.integers(0, 2, like.shape) * 2.0 - 1.0)


def size_of(x: Array) -> Array:
    """The size a relative step is measured in: |x|; for zeros the median nonzero |x| of the
    array, else 1. At least the smallest normal number of the dtype over its unit roundoff.
    """
    size = np.abs(x).astype(np.float64)
    smallest = _smallest(x.dtype)
    known = (size > 0) & np.isfinite(size)
    if known.all():
        return np.asarray(np.maximum(size, smallest))
    fallback = float(np.median(size[known])) if known.any() else 1.0
    return np.where(known, np.maximum(size, smallest), fallback)


@functools.cache
def _smallest(dtype: np.dtype[Any]) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).tiny) / unit_of(dtype)  # type: ignore[no-untyped-call]


def equal(a: Array, b: Array) -> bool:
    """Whether two arrays hold the same numbers, NaN in the same places."""
    if np.array_equal(a, b):
        return True
    return a.dtype.kind in "fcV" and bool(np.array_equal(a, b, equal_nan=True))


def _spread(x: Array) -> float:
    """The largest minus the smallest entry (0 for complex arrays)."""
    if not x.size or x.dtype.kind == "c":
        return 0.0
    return float(np.max(wide(x)) - np.min(wide(x)))


def closer(target: "Target", direction: Sequence[Array]) -> list[Array] | None:
    """A direction sized like the spread of each array instead of its entries, where these lie close
    together far from 0; None where nothing changes.
    """
    made, changed = [], False
    for x, d in zip(target.points, direction, strict=True):
        size, spread = np.abs(wide(x)), _spread(x)
        largest = float(np.max(size, initial=0.0))
        rounding = constant("clustered") * unit_of(x.dtype) * largest
        near = rounding < spread < largest / constant("clustered")
        changed |= near
        made.append(d * np.minimum(spread / np.maximum(size, spread), 1.0) if near else d)
    return made if changed else None


def tiny_direction(target: "Target", direction: Sequence[Array]) -> list[Array] | None:
    """A direction of the entries that are far smaller than others of their array alone, moved far
    enough to be told from round-off; None where there are none.
    """
    made, found = [], False
    for x, d in zip(target.points, direction, strict=True):
        size = np.abs(x)
        typical = float(np.mean(size)) if x.size > 1 else 0.0
        least = float(np.min(size)) if x.size > 1 else 0.0
        if not least < constant("tiny_entry") * typical < np.inf:
            made.append(np.zeros_like(d))
            continue
        tiny = (size > 0) & (size < constant("tiny_entry") * typical)
        found |= bool(np.any(tiny))
        moved = np.maximum(size, constant("tiny_moved") * typical)
        made.append(np.where(tiny, np.sign(d) * moved, 0.0).astype(x.dtype))
    return made if found else None


def wide(y: Array) -> Array:
    """An array in float64 or complex128."""
    return np.asarray(y, np.complex128 if y.dtype.kind == "c" else np.float64)


def pair(us: Sequence[Any], vs: Sequence[Any]) -> float:
    """`Re sum(u * v)` over lists of arrays; None counts as zero."""
    total = 0.0
    for u, v in zip(us, vs, strict=True):
        if u is None or v is None:
            continue
        a, b = wide(u).ravel(), wide(v).ravel()
        total += float(np.real(np.dot(a, b)))
    return total


def parameter_names(function: Any, count: int) -> list[str]:
    """Names of the first positional parameters; `args[i]` for those without one."""
    import inspect

    if hasattr(function, "argument_names"):  # a module: its parameters are arguments too
        return list(function.argument_names)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = names[:count]
    return names + [f"args[{i}]" for i in range(len(names), count)]
