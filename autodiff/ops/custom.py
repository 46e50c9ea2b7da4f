"""User-defined derivatives: CUSTOM_JVP and CUSTOM_VJP."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from autodiff import tree
from autodiff.batch import batch_program, materialize
from autodiff.errors import MissingRuleError, ShapeError, TreeError
from autodiff.forward import is_inexact
from autodiff.interpret import run
from autodiff.op import Op, define
from autodiff.program import Program, Spec
from autodiff.reverse import linear_expanded, transpose_eval
from autodiff.simplify import dead_code
from autodiff.subprogram import Rule, lift, same_specs, same_tree, with_consts, zeros
from autodiff.trace import as_value, bind, find_trace, function_name, quoted, spec_of, user_line

Tree = Any


def _call(evaluate: Callable[..., Any], *args: Any, body: Program, **params: Any) -> Any:
    del params
    return evaluate(body, *args)


def _refuse_captures(tangents: Any, consts: int, kind: str) -> None:
    if any(t is not None for t in tangents[:consts]):
        raise MissingRuleError(
            f"a {kind} function closes over a value that is being differentiated",
            quoted(user_line()),
            "pass that value as an argument of the function",
            kind=kind,
            rule="captures",
        )


# --- CUSTOM_JVP ----------------------------------------------------------------------------


def _jvp_spec(*specs: Spec, body: Program, rule: Program, consts: int) -> Any:
    del rule, consts
    same_specs("custom_jvp operands", body.in_specs, specs)
    return body.out_specs


def _custom_jvp_jvp(primals: Any, tangents: Any, outputs: Any, *, body: Any, rule: Any, consts: int) -> Any:
    del outputs
    _refuse_captures(tangents, consts, "custom_jvp")
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
    cts: Any, primals: Any, outputs: Any, *, body: Any, rule: Any, consts: int, wanted: Any
) -> Any:
    del outputs
    _refuse_captures([w or None for w in wanted], consts, "custom_jvp")
    tangent_map = linear_expanded(_only_tangents(rule.program, len(body.outputs)), len(primals))
    inexact = [is_inexact(s.dtype) for s in body.out_specs]
    given = [c for c, a in zip(cts, inexact, strict=True) if a]
    pulled = iter(transpose_eval(tangent_map, primals, given))
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
        rule=_batched(rule, size, tuple(flags)),
        consts=consts,
    )
    return outs, (True,) * len(outs)


def _batched(rule: Rule, size: int, flags: tuple[bool, ...]) -> Rule:
    """The rule for a whole batch: leading operands as flagged, the rest and all results mapped."""

    def build() -> Program:
        program = rule.program
        mapped = (*flags, *(True,) * (len(program.inputs) - len(flags)))
        return batch_program(program, size, mapped, (True,) * len(program.outputs))[0]

    return Rule(rule.label, build)


define(
    Op(
        "CUSTOM_JVP",
        _jvp_spec,
        impl=_call,
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

    Use as a decorator, then give the rule: `@f.defjvp def rule(primals, tangents): return y, y_dot`.
    Tangents are arrays of the primals' shapes (zeros where nothing is perturbed). The rule is
    itself differentiable. Under plain arrays the function is called as it is.
    """

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun
        self.rule: Callable[..., Any] | None = None
        self.tracing = False
        functools.update_wrapper(self, fun)

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set `rule(primals, tangents) -> (y, y_dot)`."""
        self.rule = rule
        return rule

    def __call__(self, *args: Tree) -> Tree:
        leaves, in_tree = tree.flatten(args)
        values = [as_value(leaf, "argument") for leaf in leaves]
        body, body_captured = lift(self.fun, values, in_tree)
        if find_trace((*body_captured, *values)) is None:
            return self.fun(*args)
        if self.rule is None:
            raise MissingRuleError(
                f"custom_jvp function '{function_name(self.fun)}' has no jvp rule",
                quoted(user_line()),
                "@f.defjvp\ndef rule(primals, tangents): ...",
                kind="CUSTOM_JVP",
                rule="jvp",
            )

        def build() -> Program:
            with _tracing(self):
                program, captured = self._rule_program(values, in_tree, body)
            return with_consts(program, captured, body_captured)

        rule = Rule(function_name(self.fun), build)
        if not self.tracing:
            rule.program  # noqa: B018 - traced now, while values closed over are alive
        outs = bind(
            "CUSTOM_JVP",
            *body_captured,
            *values,
            body=with_consts(body, body_captured, body_captured),
            rule=rule,
            consts=len(body_captured),
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
                in_tree, [next(rest) if a else zeros(spec_of(v)) for v, a in zip(leaves, inexact, strict=True)]
            )
            y, y_dot = rule(primals, tangents)
            same_tree("custom_jvp rule output", tree.flatten(y)[1], body.out_tree)
            dot_leaves = tree.flatten_up_to(y_dot, body.out_tree, "output tangent")
            kept = [
                _as_tangent(d, s)
                for d, s in zip(dot_leaves, body.out_specs, strict=True)
                if is_inexact(s.dtype)
            ]
            return (y, tuple(kept))

        dots = tuple(v for v, a in zip(values, inexact, strict=True) if a)
        primals = tree.unflatten(in_tree, values)
        flat, arg_tree = tree.flatten((primals, dots))
        return lift(flat_rule, flat, arg_tree)


@contextlib.contextmanager
def _tracing(function: Any) -> Iterator[None]:
    """Marks a function whose rules are being traced: calls of it inside stay lazy."""
    before = function.tracing
    function.tracing = True
    try:
        yield
    finally:
        function.tracing = before


def _as_tangent(value: Any, spec: Spec) -> Any:
    value = zeros(spec) if value is None else as_value(value, "output tangent")
    found = spec_of(value)
    if found.shape != spec.shape:
        raise ShapeError(
            f"custom derivative rule returned {found} for a value of {spec}",
            quoted(user_line()),
            f"return an array of shape {spec.shape}",
        )
    return value if found.dtype == spec.dtype else bind("CAST", value, dtype=spec.dtype)


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
    residuals: Any,
) -> Any:
    del outputs, fwd
    _refuse_captures([w or None for w in wanted], consts, "custom_vjp")
    given = [
        zeros(s) if c is None else c
        for c, s in zip(cts, body.out_specs, strict=True)
        if is_inexact(s.dtype)
    ]
    pulled = iter(run(bwd.program, (*primals[:consts], *residuals, *given)))
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
        fwd=_batched(fwd, size, tuple(flags)),
        bwd=_batched(bwd, size, fixed),
        consts=consts,
    )
    return outs, (True,) * len(outs)


define(
    Op(
        "CUSTOM_VJP",
        _vjp_spec,
        impl=_call,
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
        self.fun = fun
        self.rules: tuple[Callable[..., Any], Callable[..., Any]] | None = None
        self.tracing = False
        functools.update_wrapper(self, fun)

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set the forward pass with residuals and the backward pass."""
        self.rules = (fwd, bwd)

    def __call__(self, *args: Tree) -> Tree:
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
            with _tracing(self):
                program, captured, residual_tree = self._fwd(values, in_tree, body)
            found[:] = [program, residual_tree]
            return with_consts(program, captured, body_captured)

        fwd = Rule(function_name(self.fun), build_fwd)

        def build_bwd() -> Program:
            fwd.program  # noqa: B018 - fills `found`
            with _tracing(self):
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
                _as_tangent(g, spec_of(v))
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


__all__ = ["custom_jvp", "custom_vjp"]
