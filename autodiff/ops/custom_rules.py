"""What the custom-derivative ops share: their evaluation, rules for batches, checks."""

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from autodiff.batch import batch_program
from autodiff.errors import MissingRuleError, ShapeError, TreeError
from autodiff.program import Program, Spec
from autodiff.subprogram import Rule, zeros
from autodiff.trace import as_value, bind, function_name, quoted, spec_of, user_line

Tree = Any


def call_body(evaluate: Callable[..., Any], *args: Any, body: Program, **params: Any) -> Any:
    del params
    return evaluate(body, *args)


def refuse_captures(tangents: Any, consts: int, kind: str, body: Program) -> None:
    """A value closed over is held fixed; one that the rule alone reads has no say in the result."""
    used = {a for eq in body.equations for a in eq.inputs} | set(body.outputs)
    closed_over = zip(tangents[:consts], body.inputs, strict=False)
    if any(t is not None and v in used for t, v in closed_over):
        raise MissingRuleError(
            f"a {kind} function closes over a value that is being differentiated",
            quoted(user_line()),
            "pass that value as an argument of the function",
            kind=kind,
            rule="captures",
        )


def batched_rule(rule: Rule, size: int, flags: tuple[bool, ...]) -> Rule:
    """The rule for a whole batch: leading operands as flagged, the rest and all results mapped."""

    def build() -> Program:
        program = rule.program
        mapped = (*flags, *(True,) * (len(program.inputs) - len(flags)))
        return batch_program(program, size, mapped, (True,) * len(program.outputs))[0]

    return Rule(rule.label, build)


def positional(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> tuple[Any, ...]:
    """Arguments by place, those given by name included: rules take no names."""
    if not kwargs:
        return args
    bound = inspect.signature(f).bind(*args, **kwargs)
    if bound.kwargs:
        raise TreeError(
            f"'{function_name(f)}' takes {', '.join(bound.kwargs)} by name alone",
            quoted(user_line()),
            "let a function with rules of its own take every argument by place",
        )
    return bound.args


@contextlib.contextmanager
def tracing(function: Any) -> Iterator[None]:
    """Marks a function whose rules are being traced: calls of it inside stay lazy."""
    before = function.tracing
    function.tracing = True
    try:
        yield
    finally:
        function.tracing = before


def as_tangent(value: Any, spec: Spec) -> Any:
    value = zeros(spec) if value is None else as_value(value, "output tangent")
    found = spec_of(value)
    if found.shape != spec.shape:
        raise ShapeError(
            f"custom derivative rule returned {found} for a value of {spec}",
            quoted(user_line()),
            f"return an array of shape {spec.shape}",
        )
    return value if found.dtype == spec.dtype else bind("CAST", value, dtype=spec.dtype)


__all__: list[str] = []
