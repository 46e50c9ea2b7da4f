"""A Hypothesis strategy of small random programs over the catalogue's ops.

A program is Python text, one assignment a step, so a failing one is printed as it can be run.
Steps that the result does not need are dropped, and every choice shrinks towards the first entry
of its list: few steps, small shapes, the latest value as operand.
"""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import autodiff as ad
from autodiff.op import OPS
from catalogue import ENTRIES
from catalogue.domain import Domain
from catalogue.entry import Entry

Array = np.ndarray[Any, Any]
Draw = Callable[[Any], Any]

MAX_SIZE = 36
MAX_NDIM = 4
LARGEST = 1e4
HEADER = "import numpy as np\nimport autodiff as ad\nfrom autodiff import ops\n"


@dataclasses.dataclass(frozen=True)
class Step:
    """`name = text`; `uses` are the names read."""

    name: str
    text: str

    @property
    def uses(self) -> tuple[str, ...]:
        return tuple(re.findall(r"\b[xv]\d+\b", self.text))


@dataclasses.dataclass(frozen=True, repr=False)
class RandomProgram:
    """A function of `len(shapes)` arrays, and the arguments it is checked at."""

    shapes: tuple[tuple[int, ...], ...]
    seed: int
    steps: tuple[Step, ...]
    results: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<{len(self.steps)} steps on {self.shapes}, printed below>"

    def source(self, name: str = "f") -> str:
        """The function as Python text."""
        names = ", ".join(f"x{i}" for i in range(len(self.shapes)))
        lines = [f"def {name}({names}):"]
        lines += [f"    {s.name} = {s.text}" for s in self.steps]
        returned = self.results[0] if len(self.results) == 1 else f"({', '.join(self.results)})"
        return "\n".join([*lines, f"    return {returned}"]) + "\n"

    def listing(self) -> str:
        """The function and its arguments as text that runs by itself."""
        draws = ", ".join(f"np.asarray(rng.uniform(-2, 2, {s}))" for s in self.shapes)
        return (
            f"{HEADER}\n{self.source()}\nrng = np.random.default_rng({self.seed})\n"
            f"args = [{draws}]\nprint(f(*args))\n"
        )

    @functools.cached_property
    def function(self) -> Callable[..., Any]:
        """The function itself."""
        namespace: dict[str, Any] = {}
        exec(compile(f"{HEADER}\n{self.source()}", "<random program>", "exec"), namespace)
        function: Callable[..., Any] = namespace["f"]
        return function

    def flat(self, *args: Any) -> list[Any]:
        """The function with its results as a list."""
        out = self.function(*args)
        return list(out) if isinstance(out, tuple) else [out]

    @property
    def args(self) -> list[Array]:
        """The arguments, float64."""
        rng = np.random.default_rng(self.seed)
        return [np.asarray(rng.uniform(-2, 2, s)) for s in self.shapes]


@dataclasses.dataclass(frozen=True)
class Value:
    """A value computed so far."""

    name: str
    array: Array

    @property
    def ndim(self) -> int:
        return int(self.array.ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)


Values = Sequence[Value]

# --- the catalogue's elementwise functions -----------------------------------------------------


@functools.cache
def elementwise_names(smooth: bool) -> dict[str, tuple[str, ...]]:
    """Public names of the ops that may be a step, with their operands brought into the domain.

    `smooth` leaves out steps, kinks and ties.
    """
    found = {}
    for kind, entry in ENTRIES.items():
        name = entry.function.__name__
        usable = entry.composable or (OPS[kind].elementwise and OPS[kind].derivative != "none")
        real = entry.domains and all(d.kind in ("real", "distinct") for d in entry.domains)
        if not usable or not real or getattr(ad.ops, name, None) is not entry.function:
            continue
        if not _takes(entry) or kind == "COMPLEX" or (smooth and not _is_smooth(kind, entry)):
            continue
        found[name] = tuple(_squash(d) for d in entry.domains)
    return found


def _takes(entry: Entry) -> bool:
    """Whether the function can be called with operands of its domains alone."""
    try:
        inspect.signature(entry.function).bind(*entry.domains)
    except TypeError:
        return False
    return True


def _is_smooth(kind: str, entry: Entry) -> bool:
    tags = {tag for sample in entry.all_samples() for tag in sample.tags}
    return OPS[kind].derivative == "rule" and not tags & {"kink", "tie"}


def _squash(domain: Domain) -> str:
    """Text that maps any real `{}` into the widest part of a domain without points to avoid."""
    cuts = [domain.low, *sorted(p for p in domain.avoid if domain.low < p < domain.high)]
    gaps = list(zip(cuts, [*cuts[1:], domain.high], strict=True))
    low, high = max(gaps, key=lambda gap: gap[1] - gap[0])
    margin = domain.margin if domain.avoid else 0.02 * (high - low)
    centre, half = (low + high) / 2, (high - low) / 2 - margin
    scaled = f"{half:.4g} * np.tanh({{}})"
    return f"{centre:.4g} + {scaled}" if centre else scaled


# --- steps -------------------------------------------------------------------------------------
# Each takes (draw, values, smooth) and returns the text of an expression, or None.


def _pick(draw: Draw, values: Values, suits: Callable[[Value], bool] = lambda v: True) -> Any:
    """One of the values, the latest first and most often; None where none suits."""
    suited = [v for v in reversed(values) if suits(v)]
    return draw(st.sampled_from([*suited[:1] * len(suited), *suited])) if suited else None


def _elementwise(draw: Draw, values: Values, smooth: bool) -> str | None:
    names = elementwise_names(smooth)
    name = draw(st.sampled_from(sorted(names, key=lambda n: (len(names[n]), n))))
    first = _pick(draw, values)
    operands = [first]
    for _ in names[name][1:]:
        operands.append(_pick(draw, values, lambda v: _broadcasts(first, v)))
    inside = ", ".join(t.format(v.name) for t, v in zip(names[name], operands, strict=True))
    return f"ops.{name}({inside})"


def _broadcasts(a: Value, b: Value) -> bool:
    pairs = zip(reversed(a.shape), reversed(b.shape), strict=False)
    return all(m == n or 1 in (m, n) for m, n in pairs)


def _operator(draw: Draw, values: Values, smooth: bool) -> str | None:
    del smooth
    sign = draw(st.sampled_from("+-*"))
    first = _pick(draw, values)
    second = _pick(draw, values, lambda v: _broadcasts(first, v))
    return f"{first.name} {sign} {second.name}"


def _axis(draw: Draw, value: Value) -> int:
    return int(draw(st.integers(0, value.ndim - 1)))


REDUCTIONS = ("np.sum", "np.mean", "np.var", "np.prod", "ops.logsumexp", "np.linalg.norm")
ORDERED = ("np.max", "np.min", "np.ptp", "np.median")


def _reduction(draw: Draw, values: Values, smooth: bool) -> str | None:
    v = _pick(draw, values, lambda v: v.ndim > 0)
    if v is None:
        return None
    name = draw(st.sampled_from(REDUCTIONS if smooth else REDUCTIONS + ORDERED))
    axis = draw(st.sampled_from([0, -1, None] if name != "np.linalg.norm" else [0, -1]))
    kept = draw(st.booleans())
    operand = f"2.0 + np.tanh({v.name})" if name in ("np.prod", "np.linalg.norm") else v.name
    return f"{name}({operand}, axis={axis}{', keepdims=True' if kept else ''})"


ALONG = (
    "np.flip({v}, {a})",
    "np.cumsum({v}, {a})",
    "np.roll({v}, 1, {a})",
    "ops.softmax({v}, axis={a})",
    "ops.log_softmax({v}, axis={a})",
    "np.concatenate([{v}, {v}], {a})",
    "np.stack([{v}, np.sin({v})], {a})",
    "np.repeat({v}, 2, {a})",
    "np.diff({v}, axis={a}, prepend=0.0)",
    "np.cumprod(1.5 + 0.5 * np.tanh({v}), {a})",
    "np.take({v}, np.array([0, -1, 0]), {a})",
    "np.swapaxes({v}, 0, {a})",
    "np.moveaxis({v}, {a}, -1)",
    "np.expand_dims({v}, {a})",
)
ALONG_ORDERED = ("np.sort({v}, {a})", "np.take_along_axis({v}, np.argsort({v}, {a}), {a})")


def _along(draw: Draw, values: Values, smooth: bool) -> str | None:
    v = _pick(draw, values, lambda v: v.ndim > 0)
    if v is None:
        return None
    text = draw(st.sampled_from(ALONG if smooth else ALONG + ALONG_ORDERED))
    return str(text.format(v=v.name, a=_axis(draw, v)))


def _shaping(draw: Draw, values: Values, smooth: bool) -> str | None:
    del smooth
    v = _pick(draw, values)
    options = [
        f"np.reshape({v.name}, (-1,))",
        f"{v.name}[..., None]",
        f"np.broadcast_to({v.name}, {(2, *v.shape)})",
        f"np.transpose({v.name})",
        f"np.reshape({v.name}, {(*v.shape[::-1],)})",
    ]
    if v.ndim:
        options += [
            f"{v.name}[0]",
            f"{v.name}[::-1]",
            f"{v.name}[..., -1:]",
            f"{v.name}[np.array([0, 0, -1])]",
            f"np.pad({v.name}, 1)",
            f"ops.index_update({v.name}, 0, np.sin({v.name}[-1]))",
            f"np.tril(np.atleast_2d({v.name}))",
        ]
    return str(draw(st.sampled_from(options)))


def _product(draw: Draw, values: Values, smooth: bool) -> str | None:
    del smooth
    a = _pick(draw, values, lambda v: v.ndim > 0)
    if a is None:
        return None
    b = _pick(draw, values, lambda v: v.ndim > 0 and v.shape[-1] == a.shape[-1])
    x, y = f"np.tanh({a.name})", f"np.tanh({b.name})"
    options = [f"np.tensordot({x}, {y}, (-1, -1))"]
    if a.ndim == b.ndim == 1:
        options += [f"{x} @ {y}", f"np.outer({x}, {y})"]
    if a.ndim >= 2 and b.ndim == 2:
        options += [f"{x} @ {y}.T"]
    if a.ndim == b.ndim == 2:
        options += [f'np.einsum("ij,kj->ki", {x}, {y})', f'np.einsum("ij,kj->i", {x}, {y})']
    if a.ndim == 2:
        eye = f"2.0 * np.eye({a.shape[-1]})"
        options += [
            f"np.linalg.solve({eye} + {x}.T @ {x}, {x}.T)",
            f"np.linalg.cholesky({eye} + {x}.T @ {x})",
        ]
    return str(draw(st.sampled_from(options)))


def _choice(draw: Draw, values: Values, smooth: bool) -> str | None:
    a = _pick(draw, values)
    b = _pick(draw, values, lambda v: v.shape == a.shape)
    if smooth:
        n = a.shape[-1] if a.ndim else 1
        return f"np.where(np.arange({n}) % 2 == 0, {a.name}, {b.name})" if a.ndim else None
    options = [
        f"np.where({a.name} > 0.1, {a.name}, {b.name})",
        # a branch that is not taken is NaN, and must not reach the derivative
        f"np.where({a.name} > 0.1, np.log({a.name}), {b.name})",
        f"np.where({a.name} > 0.1, np.sqrt({a.name}) * {a.name} ** 1.5, {b.name})",
        f"np.clip({a.name}, -0.7, 0.6)",
        f"ad.cond(np.sum({a.name}) > 0.1, np.sin, np.cos, {b.name})",
    ]
    return str(draw(st.sampled_from(options)))


NESTED = (
    "ad.grad(lambda t: np.sum(np.sin(t) * t))({v})",
    "ad.jvp(np.tanh, ({v},), (np.cos({v}),))[1]",
    "ad.checkpoint(lambda t: np.sin(t) * t)({v})",
    "ad.vjp(np.sin, {v})[1]({v})[0]",
    "ad.stop_gradient({v}) * {v}",
)
NESTED_ROWS = (
    "ad.vmap(lambda t: np.sin(t) * np.sum(t))({v})",
    "ad.vmap(lambda t: np.cumsum(t, axis=-1) if t.ndim else t * t, 0, -1)({v})",
    "ad.vmap(ad.grad(lambda t: np.sum(np.tanh(t))))({v})",
    "ad.scan(lambda c, t: (np.tanh(c + t), c * t), np.zeros_like({v}[0]), {v})[1]",
    "ad.scan(lambda c, t: (np.sin(c) + t, c), {v}[0], {v}, reverse=True)[0]",
)


def _nested(draw: Draw, values: Values, smooth: bool) -> str | None:
    v = _pick(draw, values)
    options = NESTED[:-1] if smooth else NESTED  # differences see through stop_gradient
    return str(draw(st.sampled_from(options + (NESTED_ROWS if v.ndim else ()))).format(v=v.name))


FAMILIES = (_elementwise, _operator, _reduction, _along, _shaping, _product, _choice, _nested)


# --- the strategy ------------------------------------------------------------------------------


def _evaluate(text: str, values: Values) -> Array | None:
    """The value of a step, or None where it is too large to go on with."""
    namespace = {"np": np, "ad": ad, "ops": ad.ops, **{v.name: v.array for v in values}}
    with np.errstate(all="ignore"):
        array = np.asarray(eval(text, namespace))
    small = array.size <= MAX_SIZE and array.ndim <= MAX_NDIM and array.dtype == np.float64
    fine = small and bool(np.all(np.isfinite(array))) and float(np.max(np.abs(array))) < LARGEST
    return array if fine else None


def _live(steps: Sequence[Step], results: Sequence[str]) -> tuple[Step, ...]:
    """The steps the results depend on."""
    needed, kept = set(results), []
    for step in reversed(steps):
        if step.name in needed:
            kept.append(step)
            needed.update(step.uses)
    return tuple(reversed(kept))


SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)


@st.composite
def programs(draw: Draw, *, smooth: bool = False, max_steps: int = 6) -> RandomProgram:
    """Random programs of one to three inputs and at most `max_steps` steps.

    `smooth`: the function has a continuous derivative at, and near, its arguments.
    """
    shapes = tuple(draw(st.lists(SHAPES, min_size=1, max_size=3)))
    bare = RandomProgram(shapes, draw(st.integers(0, 999)), (), ())
    values = [Value(f"x{i}", a) for i, a in enumerate(bare.args)]
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, max_steps))):
        text = draw(st.sampled_from(FAMILIES))(draw, values, smooth)
        array = None if text is None else _evaluate(text, values)
        if text is not None and array is not None:
            steps.append(Step(f"v{len(steps)}", text))
            values.append(Value(steps[-1].name, array))
    results = [values[-1].name]
    if draw(st.booleans()):
        results.append(_pick(draw, values).name)
    return dataclasses.replace(bare, steps=_live(steps, results), results=tuple(results))
