"""What a surface looks at: one call of one function, from the catalogue or from a user."""

import dataclasses
import functools
import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import autodiff as ad
from autodiff import tree
from autodiff.errors import MissingRuleError
from autodiff.forward import is_inexact
from autodiff.native import replay
from autodiff.plan import plan
from autodiff.program import Program
from autodiff.simplify import simplify
from catalogue.entry import Entry, Sample, Special
from checks.modes import joined, pulled, pushed

Array = np.ndarray[Any, Any]
SMALLEST_STEP = 2.0**-1015


@dataclasses.dataclass(frozen=True, eq=False)
class Subject:
    """One call `function(*args, **kwargs)` and how it may be judged; fields as in Entry, Sample.

    Arrays inside `args` are flat `leaves`; those at `positions` are differentiated.
    """

    name: str
    sample: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    argnums: tuple[int, ...] | None = None
    gauge: Callable[[Any], Any] | None = None
    symmetric: tuple[int, ...] = ()
    contracts: bool = True
    condition: float = 1.0
    second: bool = True
    thorough: bool = True
    first: bool = True
    special: Special | None = None
    user: bool = False
    offset: int = 0

    @functools.cached_property
    def notes(self) -> dict[str, Any]:
        """What a check of this subject keeps for the next: a loop over rows, say."""
        return {}

    @functools.cached_property
    def _flat(self) -> tuple[list[Array], Any]:
        leaves, treedef = tree.flatten(self.args)
        return [np.asarray(leaf) for leaf in leaves], treedef

    @property
    def leaves(self) -> list[Array]:
        """All arrays of the arguments."""
        return self._flat[0]

    @functools.cached_property
    def positions(self) -> tuple[int, ...]:
        """Indices of the leaves that are differentiated."""
        chosen: list[int] = []
        start = 0
        for i, arg in enumerate(self.args):
            count = len(tree.flatten(arg)[0])
            if self.argnums is None or i in self.argnums:
                chosen.extend(range(start, start + count))
            start += count
        return tuple(i for i in chosen if is_inexact(self.leaves[i].dtype))

    @functools.cached_property
    def symmetric_leaves(self) -> frozenset[int]:
        """Indices of leaves read as one triangle."""
        found: set[int] = set()
        start = 0
        for i, arg in enumerate(self.args):
            count = len(tree.flatten(arg)[0])
            if i in self.symmetric:
                found.update(range(start, start + count))
            start += count
        return frozenset(found)

    @functools.cached_property
    def points(self) -> list[Array]:
        """The differentiated leaves."""
        return [self.leaves[i] for i in self.positions]

    def call_leaves(self, *leaves: Any) -> Any:
        """The function on all leaves, in its own containers."""
        return self.function(*tree.unflatten(self._flat[1], list(leaves)), **self.kwargs)

    def flat(self, *leaves: Any) -> list[Any]:
        """The function on all leaves; its results as a list, brought to a fixed gauge."""
        out = self.call_leaves(*leaves)
        return list(tree.flatten(self.gauge(out) if self.gauge is not None else out)[0])

    def at(self, *points: Any) -> list[Any]:
        """`flat` as a function of the differentiated leaves alone."""
        full: list[Any] = list(self.leaves)
        for i, value in zip(self.positions, points, strict=True):
            full[i] = value
        return self.flat(*full)

    def smooth(self, *points: Any) -> list[Any]:
        """The results of `at` that have a tangent space."""
        return [out for out in self.at(*points) if is_inexact(ad.trace_spec(out).dtype)]

    @functools.cached_property
    def program(self) -> Program:
        """The function's own program on flat leaves."""
        return ad.trace(lambda *leaves: tree.flatten(self.call_leaves(*leaves))[0], *self.leaves)

    @functools.cached_property
    def outputs(self) -> list[Array]:
        """Values of the smooth results at the point."""
        return [np.asarray(out) for out in self.smooth(*self.points)]

    @functools.cached_property
    def whole(self) -> Program:
        """The program of `flat`: that of the function itself where no gauge is fixed."""
        return self.program if self.gauge is None else ad.trace(self.flat, *self.leaves)

    @functools.cached_property
    def smooth_program(self) -> Program:
        """The program of `smooth`: what surfaces of derivatives transform, traced once."""
        if len(self.positions) == len(self.leaves) and all(self._is_smooth):
            return self.whole  # nothing is left out
        return ad.trace(self.smooth, *self.points)

    @functools.cached_property
    def _is_smooth(self) -> list[bool]:
        return [is_inexact(spec.dtype) for spec in self.whole.out_specs]

    @functools.cached_property
    def branches(self) -> bool:
        """Whether a Python branch on a value was taken: the program holds near the point alone."""
        return any(eq.op.kind == "GUARD" for eq in self.program.equations)

    @functools.cached_property
    def repeated(self) -> Callable[..., Sequence[Any]]:
        """`smooth` for differences: the function itself where a user gave it or it branches, else
        its program, which `reverse` holds against the function at the point.
        """
        if self.user or self.branches:
            return self.smooth
        again = replay(plan(self.smooth_program).program)
        return lambda *points: again(points)

    @functools.cached_property
    def gradients(self) -> list[Array]:
        """Cotangents of the points for the default cotangents, by reverse mode."""
        return pulled(self.smooth_program, self.points, self.cotangents())

    @functools.cached_property
    def forward_mode(self) -> bool:
        """Whether the function has a forward mode (a custom_vjp function has none)."""
        try:
            self.pushing  # noqa: B018 - it is traced here or fails
        except MissingRuleError as error:
            if error.data.get("kind") == "CUSTOM_VJP":
                return False
            raise
        return True

    @functools.cached_property
    def narrowed(self) -> "Subject":
        """The same subject at float32 (complex64) arguments."""
        args = tree.map_leaves(lambda leaf: _narrow(np.asarray(leaf)), self.args)
        return dataclasses.replace(self, args=args)

    @functools.cached_property
    def seed(self) -> int:
        """The seed of this subject's random numbers, from its name (and `offset`, where not 0)."""
        label = f"{self.name}/{self.sample}" + (f"/{self.offset}" if self.offset else "")
        return zlib.crc32(label.encode())

    def rng(self, purpose: str = "") -> np.random.Generator:
        """A generator of its own for each purpose."""
        return np.random.default_rng([self.seed, zlib.crc32(purpose.encode())])

    def tangents(self, purpose: str = "tangents") -> list[Array]:
        """Random directions, sized like the points; symmetric where a triangle is read."""
        drawn: dict[str, list[Array]] = self.notes.setdefault("tangents", {})
        if purpose not in drawn:
            rng = self.rng(purpose)
            drawn[purpose] = [
                self._symmetrised(i, (_normal(rng, x) * size).astype(x.dtype))
                for i, x, size in zip(self.positions, self.points, self._sizes, strict=True)
            ]
        return list(drawn[purpose])

    @functools.cached_property
    def _sizes(self) -> list[Array]:
        return [_size(x) for x in self.points]

    def _symmetrised(self, leaf: int, t: Array) -> Array:
        return (t + np.swapaxes(t, -1, -2)) / 2 if leaf in self.symmetric_leaves else t

    def cotangents(self, purpose: str = "cotangents") -> list[Array]:
        """Random cotangents of the smooth results."""
        drawn: dict[str, list[Array]] = self.notes.setdefault("cotangents", {})
        if purpose not in drawn:
            rng = self.rng(purpose)
            drawn[purpose] = [_normal(rng, y).astype(y.dtype) for y in self.outputs]
        return list(drawn[purpose])

    @functools.cached_property
    def differentiable(self) -> bool:
        """Whether a derivative is judged here."""
        return bool(
            self.positions
            and not self.tags & {"nonfinite", "integer"}
            and self.outputs
            and any(is_inexact(y.dtype) for y in self.outputs)
        )

    @functools.cached_property
    def pushed(self) -> list[Array]:
        """Tangents of the smooth results for the default tangents, by forward mode."""
        return list(replay(self.pushing)([*self.leaves, *self.tangents()]))

    @functools.cached_property
    def pushing(self) -> Program:
        """Forward mode: all leaves and tangents of the points to tangents of the smooth results."""
        n, whole = len(self.leaves), self.whole

        def push(*flat: Any) -> list[Any]:
            dots = iter(flat[n:])
            given = [next(dots) if i in self.positions else None for i in range(n)]
            return list(itertools.compress(pushed(whole, flat[:n], given), self._is_smooth))

        return ad.trace(push, *self.leaves, *self.points)

    @functools.cached_property
    def pulling(self) -> Program:
        """Reverse mode: all leaves and cotangents of the smooth results to those of the points."""
        n, whole = len(self.leaves), self.whole
        wanted = [i in self.positions for i in range(n)]

        def pull(*flat: Any) -> list[Any]:
            cts = iter(flat[n:])
            given = [next(cts) if s else None for s in self._is_smooth]
            return list(itertools.compress(pulled(whole, flat[:n], given, wanted), wanted))

        results = itertools.compress(whole.out_specs, self._is_smooth)
        return ad.trace(pull, *self.leaves, *results)

    @functools.cached_property
    def shared(self) -> tuple[Program, list[Array]]:
        """As `closely`, equal computations done once: what takes long for each equation.

        The surfaces that print and compile are given the program as it was traced.
        """
        program, args = self.closely
        return simplify(program), args

    @property
    def closely(self) -> tuple[Program, list[Array]]:
        """As `road`, with derivatives at planted points too: what exact arithmetic is held to."""
        planted = not self.sample.startswith("shape_")
        return self.derivative if self.thorough or planted else self.road

    @property
    def road(self) -> tuple[Program, list[Array]]:
        """What is printed, compiled and sent to devices, with its arguments: values and derivatives
        for thorough subjects, values alone for the others.
        """
        return self.derivative if self.thorough else (self.program, list(self.leaves))

    @functools.cached_property
    def derivative(self) -> tuple[Program, list[Array]]:
        """One program of everything: values, tangents and cotangents, and its flat arguments.

        Arguments: all leaves, then tangents of the points, then cotangents of the smooth results.
        """
        if not self.differentiable:
            return self.program, list(self.leaves)
        n, k = len(self.leaves), len(self.positions)
        args = [*self.leaves, *self.tangents(), *self.cotangents()]
        leaves, dots, cts = range(n), range(n, n + k), range(n + k, len(args))
        parts = [(self.program, [*leaves]), (self.pulling, [*leaves, *cts])]
        if self.forward_mode:
            parts.insert(1, (self.pushing, [*leaves, *dots]))
        return joined(parts, args), args


def _narrow(leaf: Array) -> Array:
    if leaf.dtype == np.float64:
        return leaf.astype(np.float32)
    return leaf.astype(np.complex64) if leaf.dtype == np.complex128 else leaf


def _wide(leaf: Any) -> Any:
    """A floating or complex leaf of any width at double precision."""
    dtype = np.dtype(getattr(leaf, "dtype", np.float64))
    double = np.dtype(np.complex128 if dtype.kind == "c" else np.float64)
    return leaf if dtype == double or not is_inexact(dtype) else leaf.astype(double)


def _normal(rng: np.random.Generator, like: Array) -> Array:
    values = np.asarray(rng.normal(size=like.shape))
    if like.dtype.kind == "c":
        return values + 1j * rng.normal(size=like.shape)
    return values


def _size(x: Array) -> Array:
    """The magnitude a relative step is measured in: |x|, for zeros the median nonzero
    |x|, else 1.
    """
    size = np.abs(x).astype(np.float64)
    known = (size > 0) & np.isfinite(size)
    if known.all():
        return np.maximum(size, SMALLEST_STEP)
    nonzero = size[known]
    fallback = float(np.median(nonzero)) if nonzero.size else 1.0
    # a direction of subnormal size would have no digits of its own
    return np.where(known, np.maximum(size, SMALLEST_STEP), fallback)


def from_sample(entry: Entry, sample: Sample, thorough: bool) -> Subject:
    """The subject of a catalogue sample; `thorough` ones get every vmap combination."""
    return Subject(
        name=entry.kind,
        sample=sample.name,
        function=entry.function,
        args=sample.args,
        kwargs=sample.kwargs,
        tags=sample.tags,
        argnums=sample.argnums,
        gauge=entry.gauge,
        symmetric=entry.symmetric,
        contracts=entry.contracts,
        condition=entry.condition,
        second=entry.second,
        thorough=thorough,
    )


def from_special(entry: Entry, special: Special) -> Subject:
    """The subject of a stated convention."""
    return Subject(
        name=entry.kind,
        sample=f"special.{special.name}",
        function=entry.function,
        args=tuple(_stated(a) for a in special.args),
        kwargs=special.kwargs,
        special=special,
    )


def _stated(arg: Any) -> Any:
    """Nested lists of numbers in a stated convention stand for one array."""
    if isinstance(arg, list):
        array = np.asarray(arg)
        return array if array.dtype.kind in "biufc" and _numbers(arg) else arg
    return arg


def _numbers(arg: Any) -> bool:
    if isinstance(arg, list):
        return all(_numbers(a) for a in arg)
    return isinstance(arg, bool | int | float | complex)


THOROUGH, DEEP = 2, 6


def subjects_of(entry: Entry) -> list[Subject]:
    """All subjects of an entry: its samples, then its specials.

    Second derivatives are judged on at most DEEP samples, planted points before plain shapes.
    """
    thorough = 0
    samples = entry.all_samples()
    planted = [s for s in samples if not s.name.startswith(("shape_", "empty"))]
    plain_shapes = [s for s in samples if s.name.startswith("shape_") and "empty" not in s.tags]
    deep = {s.name for s in (plain_shapes[:1] + planted + plain_shapes[1:])[:DEEP]}
    found = []
    for sample in samples:
        plain = not sample.tags and any(np.ndim(a) for a in tree.flatten(sample.args)[0])
        made = from_sample(entry, sample, plain and thorough < THOROUGH)
        deepened = made.second and sample.name in deep
        leads = plain and thorough == 0
        found.append(dataclasses.replace(made, second=deepened, first=leads))
        thorough += plain
    return found + [from_special(entry, s) for s in entry.specials]


def from_function(
    function: Callable[..., Any], args: Sequence[Any], name: str | None = None, sample: str = "args"
) -> Subject:
    """The subject of a user's own function at its own arguments, in float64 (complex128).

    Narrow ones are widened: differences need the digits, and f32 surfaces narrow by themselves.
    """
    wide: tuple[Any, ...] = tree.map_leaves(_wide, tuple(args))
    label = name or str(getattr(function, "__name__", "function"))
    return Subject(label, sample, function, wide, user=True)
