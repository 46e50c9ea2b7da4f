"""A block's program with an equation computed otherwise, or all of it in narrower products."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import autodiff as ad
from autodiff.interpret import interpret
from autodiff.precision import DOT_MODES
from autodiff.program import Program, Var
from checks.gates.blocks.border import Runner
from checks.gates.causes.equations import Alternative, Compute, alternatives, computed
from checks.gates.formats.stored import Array

_NARROW = ("bfloat16", "float16")
# Products that keep what float32 has: a candidate in wider arithmetic gives the same result.
_AS_FLOAT32 = ("ieee", "bf16x6", "bf16x9")


@dataclass(frozen=True, slots=True)
class Edit:
    """A changed program; the fields are those of `Trial`."""

    name: str
    text: str
    value: Callable[[Sequence[Array]], Array]

    def run(self, runner: Runner, inputs: Sequence[Array]) -> Array:
        """Return the changed block's output."""
        del runner
        return self.value(inputs)


def program_of(runner: Runner, inputs: Sequence[Array]) -> Program | None:
    """Return a block's program; None where our engine cannot trace it."""
    if runner.framework.name != "numpy":
        return None
    block = runner.block
    try:
        return ad.trace(lambda *x: block.run(*x), *inputs)
    except Exception:  # whatever a function does with a traced value that it was not made for
        return None


def edits(program: Program) -> Iterator[Edit]:
    """Yield the program with one thing other: in all equations that have it, then in each."""
    alike: dict[tuple[str, str], dict[int, Alternative]] = {}
    for place, eq in enumerate(program.equations):
        for other in alternatives(eq):
            alike.setdefault((other.name, other.text), {})[place] = other
    for (name, text), found in alike.items():
        if len(found) > 1:
            changes = {place: other.compute for place, other in found.items()}
            yield Edit(name, f"{text} ({len(found)} times)", _runs(program, changes))
    for (name, text), found in alike.items():
        for place, other in found.items():
            source = program.equations[place].source
            where = f" ({source})" if source else ""
            yield Edit(name, text + where, _runs(program, {place: other.compute}))


def precisions(program: Program) -> Iterator[Edit]:
    """Yield the program with products, or everything, narrower; of float32 inputs alone."""
    widths = {v.spec.dtype for v in program.inputs if v.spec.dtype.kind in "fV"}
    if widths != {np.dtype(np.float32)}:
        return
    for mode in DOT_MODES:
        if mode not in _AS_FLOAT32:
            text = f"products in {mode}"
            yield Edit("narrow products", text, _interpreted(program, "float32", mode))
    for precision in _NARROW:
        value = _interpreted(program, precision, "ieee")
        yield Edit("narrow precision", f"everything in {precision}", value)


def _runs(program: Program, changes: Mapping[int, Compute]) -> Callable[[Sequence[Array]], Array]:
    def value(inputs: Sequence[Array]) -> Array:
        env: dict[Var, Any] = dict(zip(program.inputs, inputs, strict=True))
        for place, eq in enumerate(program.equations):
            values = [env[a] if isinstance(a, Var) else a.value for a in eq.inputs]
            compute = changes.get(place) or computed(eq.op, eq.params)
            env.update(zip(eq.outputs, compute(values), strict=True))
        (result,) = program.outputs
        return np.asarray(env[result] if isinstance(result, Var) else result.value)

    return value


def _interpreted(program: Program, precision: str, dot: str) -> Callable[[Sequence[Array]], Array]:
    def value(inputs: Sequence[Array]) -> Array:
        return np.asarray(interpret(program, *inputs, precision=precision, dot=dot))

    return value
