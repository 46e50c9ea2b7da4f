"""CUSTOM_VJP: a function with a hand-written reverse rule."""

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
from autodiff.strong import run_strong
from autodiff.subprogram import Rule, lift, same_specs, same_tree, with_consts, zeros
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

# --- CUSTOM_VJP ----------------------------------------------------------------------------


def _vjp_spec(*specs: Spec, body: Program, fwd: Program, bwd: Program, consts: int) -> Any:
    del fwd, bwd, consts
    same_specs("custom_vjp operands", body.in_specs, specs)
    return body.out_specs


def _custom_vjp_jvp(primals: Any, tangents: Any, outputs: Any, **params: Any) -> Any:
    del primals, tangents, outputs
    raise MissingRuleError(
        f"custom_vjp function '{params['body'].name}' has no forward-mode rule",
        quoted(user_line()),
        "use reverse mode (grad, vjp, jacrev), or give the function a custom_jvp rule",
        kind="CUSTOM_VJP",
        rule="jvp",
    )


def _custom_vjp_residual(primals: Any, *, body: Any, fwd: Any, bwd: Any, consts: int) -> Any:
    del bwd, consts
    results = run(fwd.program, primals)
    n = len(body.outputs)
    return results[:n], results[n:]


def _custom_vjp_vjp(
    cts: Any,
    primals: Any,
    outputs: Any,
    *,
    body: Any,
    fwd: Any,
    bwd: Any,
    consts: int,
    wanted: Any,
    strong: Any,
    residuals: Any,
) -> Any:
    del outputs, fwd
    refuse_captures([w or None for w in wanted], consts, "custom_vjp", body)
    given = [
        zeros(s) if c is None else c
        for c, s in zip(cts, body.out_specs, strict=True)
        if is_inexact(s.dtype)
    ]
    operands = (*primals[:consts], *residuals, *given)
    flags = (*(False,) * (len(operands) - len(given)), *(True,) * len(given))
    pulled = iter(
        run_strong(bwd.program, operands, flags) if any(strong) else run(bwd.program, operands)
    )
    rest = [next(pulled) if is_inexact(spec_of(p).dtype) else None for p in primals[consts:]]
    return (*(None,) * consts, *rest)


def _custom_vjp_batch(
    size: int, args: Any, batched: Any, *, body: Any, fwd: Any, bwd: Any, consts: int
) -> Any:
    full = [
        a if b or i < consts else materialize(a, size)
        for i, (a, b) in enumerate(zip(args, batched, strict=True))
    ]
    fixed = tuple(batched[:consts])
    flags = (*fixed, *(True,) * (len(args) - consts))
    outs = bind(
        "CUSTOM_VJP",
        *full,
        body=batch_program(body, size, flags, (True,) * len(body.outputs))[0],
        fwd=batched_rule(fwd, size, tuple(flags)),
        bwd=batched_rule(bwd, size, fixed),
        consts=consts,
    )
    return outs, (True,) * len(outs)


define(
    Op(
        "CUSTOM_VJP",
        _vjp_spec,
        impl=call_body,
        jvp=_custom_vjp_jvp,
        vjp=_custom_vjp_vjp,
        residual=_custom_vjp_residual,
        batch=_custom_vjp_batch,
        outputs=0,
        control=True,
        doc="A sub-program with a user's forward and backward passes.",
    )
)


class custom_vjp:
    """A function with a hand-written reverse rule.

    Use as a decorator, then `f.defvjp(fwd, bwd)`: `fwd(*args) -> (y, residuals)` and
    `bwd(residuals, ct) -> tuple of cotangents`, one per argument (None for zero or integer ones).
    Forward mode through it is refused by name. `bwd` is itself differentiable.
    """

    def __init__(self, fun: Callable[..., Any]) -> None:
        require_callable(fun, "custom_vjp")
        self.fun = fun
        self.rules: tuple[Callable[..., Any], Callable[..., Any]] | None = None
        self.tracing = False
        functools.update_wrapper(self, fun)

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set the forward pass with residuals and the backward pass."""
        self.rules = (fwd, bwd)

    def __call__(self, *args: Tree, **kwargs: Tree) -> Tree:
        """Call the function; under a transform its rule is used, which takes arguments by place."""
        args = positional(self.fun, args, kwargs)
        leaves, in_tree = tree.flatten(args)
        values = [as_value(leaf, "argument") for leaf in leaves]
        body, body_captured = lift(self.fun, values, in_tree)
        if find_trace((*body_captured, *values)) is None:
            return self.fun(*args)
        if self.rules is None:
            raise MissingRuleError(
                f"custom_vjp function '{function_name(self.fun)}' has no rules",
                quoted(user_line()),
                "f.defvjp(fwd, bwd)",
                kind="CUSTOM_VJP",
                rule="vjp",
            )
        found: list[Any] = []

        def build_fwd() -> Program:
            with tracing(self):
                program, captured, residual_tree = self._fwd(values, in_tree, body)
            found[:] = [program, residual_tree]
            return with_consts(program, captured, body_captured)

        fwd = Rule(function_name(self.fun), build_fwd)

        def build_bwd() -> Program:
            fwd.program  # noqa: B018 - fills `found`
            with tracing(self):
                program, captured = self._bwd(found[0], found[1], values, in_tree, body)
            return with_consts(program, captured, body_captured)

        bwd = Rule(function_name(self.fun), build_bwd)
        if not self.tracing:
            bwd.program  # noqa: B018 - traced now, while values closed over are alive
        outs = bind(
            "CUSTOM_VJP",
            *body_captured,
            *values,
            body=with_consts(body, body_captured, body_captured),
            fwd=fwd,
            bwd=bwd,
            consts=len(body_captured),
        )
        return tree.unflatten(body.out_tree, outs)

    def _fwd(self, values: Any, in_tree: Any, body: Program) -> Any:
        assert self.rules is not None
        trees: list[Any] = []

        def flat_fwd(*args: Any) -> Any:
            assert self.rules is not None
            result = self.rules[0](*args)
            if not isinstance(result, tuple) or len(result) != 2:
                raise TreeError(
                    f"the fwd rule of '{function_name(self.fun)}' did not return (y, residuals)",
                    quoted(user_line()),
                    "return a pair",
                )
            y, residuals = result
            same_tree("custom_vjp fwd output", tree.flatten(y)[1], body.out_tree)
            leaves, residual_tree = tree.flatten(residuals)
            trees.append(residual_tree)
            return y, tuple(leaves)

        program, captured = lift(flat_fwd, values, in_tree)
        same_specs("custom_vjp fwd", program.out_specs[: len(body.outputs)], body.out_specs)
        return program, captured, trees[-1]

    def _bwd(
        self, fwd: Program, residual_tree: Any, values: Any, in_tree: Any, body: Program
    ) -> Any:
        assert self.rules is not None
        bwd = self.rules[1]
        inexact = [is_inexact(s.dtype) for s in body.out_specs]

        def flat_bwd(residuals: Any, cts: Any) -> Any:
            rest = iter(cts)
            ct = tree.unflatten(
                body.out_tree,
                [
                    next(rest) if a else zeros(s)
                    for a, s in zip(inexact, body.out_specs, strict=True)
                ],
            )
            pulled = bwd(tree.unflatten(residual_tree, residuals), ct)
            if isinstance(pulled, list):
                pulled = tuple(pulled)
            leaves = _pulled_leaves(pulled, in_tree, function_name(self.fun))
            return tuple(
                as_tangent(g, spec_of(v))
                for g, v in zip(leaves, values, strict=True)
                if is_inexact(spec_of(v).dtype)
            )

        n = len(body.outputs)
        residual_specs = fwd.out_specs[n:]
        ct_specs = [s for s, a in zip(body.out_specs, inexact, strict=True) if a]
        arg_tree = tree.flatten((tuple(residual_specs), tuple(ct_specs)))[1]
        return lift(flat_bwd, [*residual_specs, *ct_specs], arg_tree)


def _pulled_leaves(pulled: Any, in_tree: Any, name: str) -> list[Any]:
    """Cotangents per leaf; None stands for a whole argument's zero."""
    if not isinstance(pulled, tuple):
        raise TreeError(
            f"the bwd rule of '{name}' returned a {type(pulled).__name__}",
            quoted(user_line()),
            "return a tuple with one cotangent per argument",
        )
    children = in_tree.children()
    if len(children) != len(pulled):
        raise TreeError(
            f"the bwd rule of '{name}' returned {len(pulled)} cotangents for "
            f"{len(children)} arguments",
            quoted(user_line()),
            "return one per argument (None for zero)",
        )
    leaves: list[Any] = []
    for child, value in zip(children, pulled, strict=True):
        if value is None:
            leaves += [None] * child.num_leaves
        else:
            leaves += tree.flatten_up_to(value, child, "cotangent")
    return leaves


__all__ = ["custom_vjp"]
