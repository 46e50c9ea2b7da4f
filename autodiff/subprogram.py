"""Sub-programs of control ops: traced bodies whose outside values become explicit operands."""

import dataclasses
import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.errors import ShapeError, TracerError, TreeError
from autodiff.program import Program, Spec, verify
from autodiff.simplify import dead_code
from autodiff.trace import bind, concrete_of, program_of, quoted, spec_of, trace_flat, user_line
from autodiff.tracer import Tracer
from autodiff.widen import is_narrow


def lift(
    f: Callable[..., Any], values: Sequence[Any], in_tree: Any, concrete: bool = True
) -> tuple[Program, tuple[Tracer, ...]]:
    """Trace a body at the values' specs; `concrete` lets Python branches see their values."""
    known = [concrete_of(v) if concrete and not isinstance(v, Spec) else None for v in values]
    specs = [v if isinstance(v, Spec) else spec_of(v) for v in values]
    return trace_flat(f, specs, in_tree, known)


def keeping_narrow(f: Callable[..., Any], init: Any, carried: Callable[[Any], Any]) -> Any:
    """The function, whose carried results stay in 16 bits where the initial values are.

    NumPy makes a bfloat16 scalar times a Python number a float64, which a loop cannot carry.
    """
    leaves, init_tree = tree.flatten(init)
    specs = [spec_of(leaf) for leaf in leaves]
    if not any(s.shape == () and is_narrow(s.dtype) for s in specs):
        return f

    @functools.wraps(f)
    def fitted(*args: Any) -> Any:
        result = f(*args)
        values, out_tree = tree.flatten(carried(result))
        if out_tree != init_tree:
            return result
        kept = [
            bind("CAST", v, dtype=s.dtype)
            if is_narrow(s.dtype) and s.shape == np.shape(v) == () and spec_of(v).dtype.kind == "f"
            else v
            for v, s in zip(values, specs, strict=True)
        ]
        value = tree.unflatten(out_tree, kept)
        return value if carried(result) is result else (value, *result[1:])

    return fitted


def closed(program: Program) -> Program:
    """The program with its captures as leading inputs, so that it can be a parameter."""
    return verify(
        dead_code(
            dataclasses.replace(
                program,
                inputs=(*program.captures, *program.inputs),
                captures=(),
                in_tree=None,
                out_tree=None,
            )
        )
    )


class Rule:
    """A user's derivative rule as a program, traced when it is first needed.

    A rule may call its own function; that inner call carries a rule too, which only a higher
    derivative traces. Rules are compared by identity and written in text by their label.
    """

    def __init__(self, name: str, build: Callable[[], Program]) -> None:
        self.label = f"{name}#{next(_numbers)}"
        self._build = build
        LIVE_RULES[self.label] = self

    @functools.cached_property
    def program(self) -> Program:
        """The traced rule."""
        return self._build()

    def __repr__(self) -> str:
        return f"rule {self.label}"


_numbers = itertools.count()
LIVE_RULES: "weakref.WeakValueDictionary[str, Rule]" = weakref.WeakValueDictionary()


def with_consts(program: Program, captured: Sequence[Any], all_captured: Sequence[Any]) -> Program:
    """A closed program taking the operands `all_captured`, of which `captured` are its own."""
    names = {c.ref: i for i, c in enumerate(all_captured)}
    for value in captured:
        if value.ref not in names:
            raise TracerError(
                f"the rule of '{program.name}' closes over a traced value ({value.spec}) that the "
                "function itself does not use",
                quoted(user_line()),
                "pass that value as an argument of the function",
            )
    body = closed(program)
    k = len(captured)

    def f(*args: Any) -> tuple[Any, ...]:
        from autodiff.interpret import run

        own = [args[names[c.ref]] for c in captured]
        return run(body, (*own, *args[len(all_captured) :]))

    specs = (*(spec_of(c) for c in all_captured), *body.in_specs[k:])
    return program_of(f, specs, program.name)


def same_specs(what: str, found: Sequence[Spec], expected: Sequence[Spec]) -> None:
    """Raise where a body's results do not have the specs its carry or its twin has."""
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        if a != b:
            raise ShapeError(
                f"{what}: result {i} is {a}, expected {b}",
                quoted(user_line()),
                "make both sides return the same shapes and dtypes (astype, reshape)",
            )


def same_tree(what: str, found: Any, expected: Any) -> None:
    """Raise where two structures differ."""
    if found != expected:
        raise TreeError(
            f"{what}: structure {tree.describe(found)}, expected {tree.describe(expected)}",
            quoted(user_line()),
            "return the same containers on both sides",
        )


def zeros(spec: Spec) -> Any:
    """A zero constant that takes no memory."""
    return np.broadcast_to(np.zeros((), spec.dtype), spec.shape)


def select(mask: Any, new: Any, old: Any) -> Any:
    """`where` over a mask of leading axes only."""
    shape = (*np.shape(mask), *(1,) * (np.ndim(new) - np.ndim(mask)))
    return bind("WHERE", np.reshape(mask, shape), new, old)


def distinct(*groups: Any) -> list[Any]:
    """Captured values of several bodies, each once."""
    return list({c.ref: c for group in groups for c in group}.values())
