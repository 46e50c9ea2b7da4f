"""CUSTOM_JVP: a function with a hand-written forward rule."""

import functools
from collections.abc import Callable
from typing import Any

from autodiff import tree
from autodiff.batch import batch_program, materialize
from autodiff.errors import MissingRuleError, TreeError
from autodiff.forward import is_inexact
from autodiff.interpret import run
from autodiff.op import Op, define
from autodiff.ops.custom_rules import (
    Tree,
    as_tangent,
    batched_rule,
    call_body,
    positional,
    refuse_captures,
    tracing,
)
from autodiff.program import Program, Spec
from autodiff.reverse import linear_expanded, transpose_eval
from autodiff.simplify import dead_code
from autodiff.strong import protection
from autodiff.subprogram import Rule, distinct, lift, same_specs, same_tree, with_consts, zeros
from autodiff.trace import (
    as_value,
    bind,
    find_trace,
    function_name,
    quoted,
    require_callable,
    spec_of,
    user_line,
)

# --- CUSTOM_JVP ----------------------------------------------------------------------------


def _jvp_spec(*specs: Spec, body: Program, rule: Program, consts: int) -> Any:
    del rule, consts
    same_specs("custom_jvp operands", body.in_specs, specs)
    return body.out_specs


def _custom_jvp_jvp(
    primals: Any, tangents: Any, outputs: Any, *, body: Any, rule: Any, consts: int
) -> Any:
    del outputs
    refuse_captures(tangents, consts, "custom_jvp", body)
    dots = [
        zeros(spec_of(p)) if t is None else t
        for p, t in zip(primals[consts:], tangents[consts:], strict=True)
        if is_inexact(spec_of(p).dtype)
    ]
    results = run(rule.program, (*primals, *dots))
    n = len(body.outputs)
    rest = iter(results[n:])
    return results[:n], tuple(next(rest) if is_inexact(s.dtype) else None for s in body.out_specs)


def _custom_jvp_vjp(
    cts: Any,
    primals: Any,
    outputs: Any,
    *,
    body: Any,
    rule: Any,
    consts: int,
    wanted: Any,
    strong: Any,
) -> Any:
    del outputs
    refuse_captures([w or None for w in wanted], consts, "custom_jvp", body)
    tangent_map = linear_expanded(_only_tangents(rule.program, len(body.outputs)), len(primals))
    inexact = [is_inexact(s.dtype) for s in body.out_specs]
    given = [c for c, a in zip(cts, inexact, strict=True) if a]
    protected = any(strong) or protection(tangent_map)
    pulled = iter(transpose_eval(tangent_map, primals, given, protected))
    ready = [None] * consts
    for p in primals[consts:]:
        ready.append(next(pulled) if is_inexact(spec_of(p).dtype) else None)
    return tuple(ready)


@functools.lru_cache(maxsize=256)
def _only_tangents(rule: Program, count: int) -> Program:
    import dataclasses

    return dead_code(dataclasses.replace(rule, outputs=rule.outputs[count:]))


def _custom_jvp_batch(
    size: int, args: Any, batched: Any, *, body: Any, rule: Any, consts: int
) -> Any:
    full = [
        a if b or i < consts else materialize(a, size)
        for i, (a, b) in enumerate(zip(args, batched, strict=True))
    ]
    flags = (*batched[:consts], *(True,) * (len(args) - consts))
    outs = bind(
        "CUSTOM_JVP",
        *full,
        body=batch_program(body, size, flags, (True,) * len(body.outputs))[0],
        rule=batched_rule(rule, size, tuple(flags)),
        consts=consts,
    )
    return outs, (True,) * len(outs)


define(
    Op(
        "CUSTOM_JVP",
        _jvp_spec,
        impl=call_body,
        jvp=_custom_jvp_jvp,
        vjp=_custom_jvp_vjp,
        batch=_custom_jvp_batch,
        outputs=0,
        control=True,
        doc="A sub-program with a user's jvp rule.",
    )
)


class custom_jvp:
    """A function with a hand-written forward rule; reverse mode is its transpose.

    Use as a decorator, then give the rule: `@f.defjvp` on
    `def rule(primals, tangents): return y, y_dot`.
    Tangents are arrays of the primals' shapes (zeros where nothing is perturbed). The rule is
    itself differentiable. Under plain arrays the function is called as it is.
    """

    def __init__(self, fun: Callable[..., Any]) -> None:
        require_callable(fun, "custom_jvp")
        self.fun = fun
        self.rule: Callable[..., Any] | None = None
        self.tracing = False
        functools.update_wrapper(self, fun)

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set `rule(primals, tangents) -> (y, y_dot)`."""
        self.rule = rule
        return rule

    def __call__(self, *args: Tree, **kwargs: Tree) -> Tree:
        """Call the function; under a transform its rule is used, which takes arguments by place."""
        args = positional(self.fun, args, kwargs)
        leaves, in_tree = tree.flatten(args)
        values = [as_value(leaf, "argument") for leaf in leaves]
        body, body_captured = lift(self.fun, values, in_tree)
        if find_trace((*body_captured, *values)) is None:
            return self.fun(*args)
        if self.rule is None:
            raise MissingRuleError(
                f"custom_jvp function '{function_name(self.fun)}' has no jvp rule",
                quoted(user_line()),
                "@f.defjvp on `def rule(primals, tangents)`, which returns (y, y_dot)",
                kind="CUSTOM_JVP",
                rule="jvp",
            )

        def traced() -> tuple[Program, Any]:
            with tracing(self):
                program, own = self._rule_program(values, in_tree, body)
            return program, own

        # traced now, while values closed over are alive, unless the rule itself is calling
        found = None if self.tracing else traced()
        captured = distinct(body_captured, found[1] if found else ())

        def build() -> Program:
            program, own = found or traced()
            return with_consts(program, own, captured)

        rule = Rule(function_name(self.fun), build)
        if found:
            rule.program  # noqa: B018 - a pass looks for selects in it
        outs = bind(
            "CUSTOM_JVP",
            *captured,
            *values,
            body=with_consts(body, body_captured, captured),
            rule=rule,
            consts=len(captured),
        )
        return tree.unflatten(body.out_tree, outs)

    def _rule_program(self, values: Any, in_tree: Any, body: Program) -> Any:
        rule = self.rule
        assert rule is not None
        inexact = [is_inexact(spec_of(v).dtype) for v in values]

        def flat_rule(primals: Any, dots: Any) -> Any:
            rest = iter(dots)
            leaves = tree.flatten(primals)[0]
            tangents = tree.unflatten(
                in_tree,
                [
                    next(rest) if a else zeros(spec_of(v))
                    for v, a in zip(leaves, inexact, strict=True)
                ],
            )
            result = rule(primals, tangents)
            if not isinstance(result, tuple | list) or len(result) != 2:
                raise TreeError(
                    f"the jvp rule of '{function_name(self.fun)}' did not return (y, y_dot)",
                    quoted(user_line()),
                    "return a pair",
                )
            y, y_dot = result
            same_tree("custom_jvp rule output", tree.flatten(y)[1], body.out_tree)
            dot_leaves = tree.flatten_up_to(y_dot, body.out_tree, "output tangent")
            kept = [
                as_tangent(d, s)
                for d, s in zip(dot_leaves, body.out_specs, strict=True)
                if is_inexact(s.dtype)
            ]
            return (y, tuple(kept))

        dots = tuple(v for v, a in zip(values, inexact, strict=True) if a)
        primals = tree.unflatten(in_tree, values)
        flat, arg_tree = tree.flatten((primals, dots))
        return lift(flat_rule, flat, arg_tree)


__all__ = ["custom_jvp"]
