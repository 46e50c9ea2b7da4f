"""The records of the catalogue: Entry, Sample, Special and Exclusion, which check themselves."""

import dataclasses
import zlib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from autodiff.errors import nearest
from catalogue.domain import Domain
from catalogue.errors import CatalogueError, caller, written

TAGS = frozenset(
    {
        "kink",  # a point without a derivative: judged by `special`; `reverse` accepts the interval
        "nonfinite",  # operands or results hold NaN or inf: values are compared, derivatives not
        "edge",  # a domain end where the derivative is infinite or one-sided
        "tie",  # equal extrema
        "large",  # magnitudes near overflow
        "tiny",  # magnitudes near underflow
        "empty",
        "singular",  # a matrix or root where the derivative does not exist
        "integer",  # no inexact operand: value surfaces only
        "complex",
    }
)
EXCLUSION_KINDS = ("wrong", "unsupported")


@dataclasses.dataclass(frozen=True)
class Sample:
    """One call of an entry's function: `function(*args, **kwargs)`.

    `args` are float64, complex128, integer or bool arrays (or lists and tuples of them);
    differentiated are all inexact ones, or only the positions in `argnums`. `kwargs` are static.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    argnums: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", frozenset(self.tags))
        object.__setattr__(self, "kwargs", MappingProxyType(dict(self.kwargs)))
        unknown = self.tags - TAGS
        if unknown:
            raise CatalogueError(
                f"sample {self.name!r}: unknown tags {sorted(unknown)}",
                f"at {caller()}",
                nearest(min(unknown), TAGS) or f"the tags are {', '.join(sorted(TAGS))}",
            )
        if not self.name or any(c.isspace() for c in self.name):
            raise CatalogueError(
                f"sample name {self.name!r} is empty or holds blanks",
                f"at {caller()}",
                "join its words by underscores, e.g. 'large_values'",
            )


@dataclasses.dataclass(frozen=True)
class Special:
    """A stated convention at one point: the value there, and its derivative.

    `gradients` are the cotangents of the inexact args for the output cotangent `cotangent`;
    `tangent` is the output tangent for `tangents`. What is None is not stated. NaN is written
    as NaN; the sign of zero counts in `value` where `signed_zero` holds.
    """

    name: str
    args: tuple[Any, ...]
    value: Any = None
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    cotangent: Any = None
    gradients: tuple[Any, ...] | None = None
    tangents: tuple[Any, ...] | None = None
    tangent: Any = None
    signed_zero: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "kwargs", MappingProxyType(dict(self.kwargs)))
        if self.value is None and self.gradients is None and self.tangent is None:
            raise CatalogueError(
                f"special {self.name!r} states nothing",
                f"at {caller()}",
                "give its value, or cotangent and gradients, or tangents and tangent",
            )
        if (self.gradients is None) != (self.cotangent is None):
            raise CatalogueError(
                f"special {self.name!r}: gradients and cotangent come together",
                f"at {caller()}",
                "state the cotangent that the gradients belong to",
            )
        if (self.tangent is None) != (self.tangents is None):
            raise CatalogueError(
                f"special {self.name!r}: tangent and tangents come together",
                f"at {caller()}",
                "state the operand tangents that the output tangent belongs to",
            )


@dataclasses.dataclass(frozen=True)
class Entry:
    """What the sweep knows about one op.

    Attributes:
      kind: the op's kind; function: its public function in `autodiff.ops`.
      samples: generator function rng -> Samples, deterministic for a given rng; at least one.
      domains: domains of the leading array arguments, for Hypothesis (empty: not drawn).
      specials: stated conventions.
      gauge: maps outputs to gauge-free ones (eigenvectors up to sign) before derivatives are
        compared; the identity by default.
      symmetric: positions of arguments read as one triangle; perturbed along symmetric directions.
      contracts: whether the op sums or contracts (vmap is then not bit-equal but within
        1e-12 of the sum of terms).
      condition: factor on the dot-test tolerance of `forward` for ill-conditioned ops.
      composable: whether random programs may use `function` as an elementwise step on any shape.
      second: whether second derivatives are checked.
    """

    kind: str
    function: Callable[..., Any]
    samples: Callable[[np.random.Generator], Iterable[Sample]]
    domains: tuple[Domain, ...] = ()
    specials: tuple[Special, ...] = ()
    gauge: Callable[[Any], Any] | None = None
    symmetric: tuple[int, ...] = ()
    contracts: bool = False
    condition: float = 1.0
    composable: bool = False
    second: bool = True

    def all_samples(self) -> tuple[Sample, ...]:
        """The samples, drawn from a generator seeded by the kind; names are unique."""
        rng = np.random.default_rng(zlib.crc32(self.kind.encode()))
        drawn = tuple(self.samples(rng))
        names = [s.name for s in drawn]
        if not drawn:
            raise CatalogueError(
                f"entry {self.kind} has no samples",
                f"drawn by {written(self.samples)}",
                "yield one Sample at least",
            )
        if len(set(names)) != len(names):
            twice = sorted({n for n in names if names.count(n) > 1})
            raise CatalogueError(
                f"entry {self.kind}: sample names repeat: {', '.join(twice)}",
                f"drawn by {written(self.samples)}",
                "name each sample once",
            )
        return drawn


@dataclasses.dataclass(frozen=True)
class Exclusion:
    """A known failure: it still runs, and must fail for the stated reason.

    `samples` None means all; `dtypes` None means all; `error` is a regular expression that the
    failure's text must match.
    """

    op: str
    surface: str
    kind: str
    reason: str
    error: str
    link: str = ""
    samples: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.kind not in EXCLUSION_KINDS:
            raise CatalogueError(
                f"exclusion kind {self.kind!r} is not one of {EXCLUSION_KINDS}",
                f"of {self.op} on {self.surface}, at {caller()}",
                "write 'wrong' for a wrong value, 'unsupported' for an error",
            )
        if len(self.reason.split()) < 3 or not self.error:
            raise CatalogueError(
                f"exclusion of {self.op} on {self.surface} needs a reason and an error",
                f"at {caller()}",
                "say in three words or more why it fails, and give a pattern of the failure's text",
            )

    def covers(self, op: str, surface: str, sample: str, dtype: str) -> bool:
        """Whether this exclusion speaks about that check."""
        return (
            (op, surface) == (self.op, self.surface)
            and (self.samples is None or sample in self.samples)
            and (self.dtypes is None or dtype in self.dtypes)
        )


ENTRIES: dict[str, Entry] = {}
_PLACES: dict[str, str] = {}  # where each is defined


def define(entry: Entry) -> Entry:
    """Add an entry to the catalogue; a kind may be defined once."""
    if entry.kind in ENTRIES:
        raise CatalogueError(
            f"catalogue entry {entry.kind} is defined twice",
            f"at {caller()}, and before it at {_PLACES[entry.kind]}",
            "remove one of them: an op has one entry, with samples for all its arguments",
        )
    ENTRIES[entry.kind] = entry
    _PLACES[entry.kind] = caller()
    return entry


SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (5,), (2, 3), (2, 1, 4))


def elementwise_samples(
    *domains: Domain,
    points: Mapping[str, tuple[Any, ...]] | None = None,
    tags: Mapping[str, Iterable[str]] | None = None,
    **kwargs: Any,
) -> Callable[[np.random.Generator], Iterable[Sample]]:
    """Samples of an elementwise op: several ranks, empty and size-1, broadcasting for several
    operands, and planted points (name -> one value or array per operand, with optional tags).
    """

    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for shape in SHAPES:
            name = "x".join(map(str, shape)) or "scalar"
            marks = {"empty"} if 0 in shape else set()
            args = tuple(d.draw(rng, shape) for d in domains)
            yield Sample(f"shape_{name}", args, kwargs, frozenset(marks))
        if len(domains) > 1:
            rows = [(3, 1) if i % 2 == 0 else (1, 4) for i in range(len(domains))]
            args = tuple(d.draw(rng, s) for d, s in zip(domains, rows, strict=True))
            yield Sample("broadcast_outer", args, kwargs)
            shapes = [(2, 3) if i == 0 else ((3,) if i == 1 else ()) for i in range(len(domains))]
            args = tuple(d.draw(rng, s) for d, s in zip(domains, shapes, strict=True))
            yield Sample("broadcast_rank", args, kwargs)
        for name, values in (points or {}).items():
            arrays = tuple(np.asarray(v) for v in values)
            yield Sample(name, arrays, kwargs, frozenset((tags or {}).get(name, ())))

    return samples


def elementwise(
    kind: str,
    function: Callable[..., Any],
    *domains: Domain,
    points: Mapping[str, tuple[Any, ...]] | None = None,
    tags: Mapping[str, Iterable[str]] | None = None,
    params: Mapping[str, Any] | None = None,
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    argnums: Mapping[str, tuple[int, ...]] | None = None,
    **fields: Any,
) -> Entry:
    """Define the entry of an elementwise op: `elementwise_samples` of its domains and points.

    `params` are keyword arguments of every sample; `variants` (name -> keyword arguments) add one
    more sample each; `argnums` (sample name -> positions) says which operands of a planted point
    are differentiated; `fields` are fields of the Entry.
    """
    first = elementwise_samples(*domains, points=points, tags=tags, **(params or {}))

    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for sample in first(rng):
            yield dataclasses.replace(sample, argnums=(argnums or {}).get(sample.name))
        for name, kwargs in (variants or {}).items():
            args = tuple(d.draw(rng, (2, 3)) for d in domains)
            yield Sample(name, args, {**(params or {}), **kwargs})

    return define(Entry(kind, function, samples, domains=domains, **fields))
