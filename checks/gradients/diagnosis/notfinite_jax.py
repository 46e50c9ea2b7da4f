"""The backward of a JAX function, run equation by equation."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from checks.gradients.diagnosis.culprit_jax import LOOPS, evaluate, inner_of, source_line
from checks.gradients.diagnosis.notfinite import Backward, Step, origin_of
from checks.gradients.target import Target, wide

Array = np.ndarray[Any, Any]
PRODUCTS = ("mul", "div")
FIRST = 1 << 20  # after the numbers of arguments
STEEP = ("sqrt", "rsqrt", "cbrt", "log", "log1p", "pow", "atan2", "asin", "acos", "acosh", "atanh")


def backward(target: Target, cotangents: Sequence[Array]) -> Backward | None:
    """Its origin of what is not finite, and the gradients if a cotangent of 0 stays 0."""
    import jax

    natives = target.native(target.points)
    like = target.originals[target.positions[0]]
    cts = [
        target.framework.native(np.asarray(u, y.dtype), like)
        for u, y in zip(cotangents, target.centre, strict=True)
    ]
    count = len(natives)

    def pulled(*given: Any) -> Any:
        _, pull = jax.vjp(lambda *arrays: target.flat(arrays), *given[:count])
        return list(pull(list(given[count:])))

    try:
        closed = jax.make_jaxpr(pulled)(*natives, *cts)
        forward = jax.make_jaxpr(lambda *arrays: target.flat(arrays))(*natives)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):  # Python looks at its values
        return None
    steep: dict[str | None, set[str]] = {}
    for eqn, line in _equations(forward.jaxpr, None):
        if eqn.primitive.name in STEEP:
            steep.setdefault(line, set()).add(eqn.primitive.name)
    names = [Name(n, n >= count) for n in range(count + len(cts))]
    plain, strong = _Run(False, steep), _Run(True, steep)
    finals = plain.run(closed.jaxpr, closed.consts, [*natives, *cts], names)
    mended = strong.run(closed.jaxpr, closed.consts, [*natives, *cts], names)
    values = [wide(np.asarray(target.framework.numpy(v))) for v, _ in mended]
    return Backward(origin_of(plain.steps, [name for _, name in finals]), values, strong.selects)


@dataclasses.dataclass(frozen=True)
class Name:
    """A value of a run: its number, whether cotangents are in it, whether they passed a select."""

    number: int
    linear: bool = False
    selected: bool = False


Named = tuple[Any, Name]
CONSTANT = Name(-1)


def _equations(jaxpr: Any, outer: str | None) -> Iterator[tuple[Any, str | None]]:
    """Equations with their lines, those of inner jaxprs included."""
    for eqn in jaxpr.eqns:
        line = source_line(eqn) or outer
        yield eqn, line
        for value in eqn.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from _equations(inner, line)


class _Run:
    """One evaluation; a `strong` one makes 0 of a cotangent of 0 times anything."""

    def __init__(self, strong: bool, steep: dict[str | None, set[str]]) -> None:
        self.strong, self.steep = strong, steep
        self.steps: list[Step] = []
        self.selects = False
        self.numbers = itertools.count(FIRST)

    def run(
        self,
        jaxpr: Any,
        consts: Sequence[Any],
        args: Sequence[Any],
        names: Sequence[Name],
        line: str | None = None,
    ) -> list[Named]:
        """The results with their names; `line` stands for equations that have none."""
        env: dict[Any, Named] = {
            v: (c, CONSTANT) for v, c in zip(jaxpr.constvars, consts, strict=True)
        }
        env.update({v: (a, n) for v, a, n in zip(jaxpr.invars, args, names, strict=True)})

        def read(atom: Any) -> Named:
            return (atom.val, CONSTANT) if hasattr(atom, "val") else env[atom]

        for eqn in jaxpr.eqns:
            given = [read(a) for a in eqn.invars]
            made = self._equation(eqn, given, source_line(eqn) or line)
            env.update(zip(eqn.outvars, made, strict=True))
        return [read(a) for a in jaxpr.outvars]

    def _equation(self, eqn: Any, given: list[Named], line: str | None) -> list[Named]:
        values, names = [v for v, _ in given], [n for _, n in given]
        inner = None if eqn.primitive.name in LOOPS else inner_of(eqn, values, customs=True)
        if inner is not None:
            return self.run(*inner, names[len(names) - len(inner[2]) :], line)
        outs = evaluate(eqn, values)
        if self.strong and eqn.primitive.name in PRODUCTS:
            outs = [self._strong(outs[0], given)]
        linear = any(n.linear for n in names)
        selected = linear and (
            eqn.primitive.name == "select_n" or any(n.selected for n in names if n.linear)
        )
        made = [(y, Name(next(self.numbers), linear, selected)) for y in outs]
        if not self.strong:
            known = self.steep.get(line, set())
            name = next(iter(known)) if len(known) == 1 and line is not None else ""
            numbers = tuple(np.asarray(y) if hasattr(y, "shape") else np.zeros(0) for y in outs)
            self.steps.append(Step(tuple(names), tuple(n for _, n in made), numbers, name, line))
        return made

    def _strong(self, out: Any, given: Sequence[Named]) -> Any:
        """A product or quotient that is 0 where its cotangent is."""
        import jax.numpy as jnp

        for value, name in given:
            if name.linear:
                mended = (value == 0) & ~jnp.isfinite(out)
                self.selects |= name.selected and bool(jnp.any(mended))
                out = jnp.where(mended, 0, out)
        return out
