"""The loop WHILE: forward always, reverse by a masked scan where its steps are bounded."""

from collections.abc import Callable
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.batch import batch_eval, batch_program, materialize
from autodiff.errors import MissingRuleError, ShapeError
from autodiff.families import whole
from autodiff.forward import is_inexact, jvp_eval
from autodiff.interpret import run
from autodiff.op import Op, define
from autodiff.ops.scan import scan_residual, scan_vjp
from autodiff.program import Program, Spec
from autodiff.subprogram import (
    distinct,
    keeping_narrow,
    lift,
    same_specs,
    same_tree,
    select,
    with_consts,
    zeros,
)
from autodiff.trace import as_value, bind, program_of, quoted, require_callable, spec_of, user_line

# --- WHILE ---------------------------------------------------------------------------------


def _while_spec(*specs: Spec, cond: Program, body: Program, consts: int, max_steps: Any) -> Any:
    del max_steps
    same_specs("while_loop condition", cond.out_specs, (Spec((), np.dtype(np.bool_)),))
    same_specs("while_loop body", body.out_specs, specs[consts:])
    return body.out_specs


def _while(
    evaluate: Callable[..., Any],
    *args: Any,
    cond: Program,
    body: Program,
    consts: int,
    max_steps: int | None,
) -> Any:
    fixed, carry = args[:consts], args[consts:]
    steps = 0
    while (max_steps is None or steps < max_steps) and evaluate(cond, *fixed, *carry)[0]:
        carry = evaluate(body, *fixed, *carry)
        steps += 1
    return carry


def _while_jvp(primals: Any, tangents: Any, outputs: Any, **params: Any) -> Any:
    del outputs
    cond, body, consts = params["cond"], params["body"], params["consts"]
    n = len(primals)
    mask = tuple(t is not None for t in tangents[:consts])
    specs = body.in_specs
    active = tuple(is_inexact(s.dtype) for s in specs[consts:])
    k = sum(mask)

    def split(args: Any) -> tuple[Any, list[Any]]:
        fixed, fixed_dots = args[:consts], iter(args[consts : consts + k])
        carry = args[consts + k : n + k]
        carry_dots = iter(args[n + k :])
        dots = [next(fixed_dots) if m else None for m in mask]
        return (*fixed, *carry), dots + [next(carry_dots) if a else None for a in active]

    def step(*args: Any) -> tuple[Any, ...]:
        values, dots = split(args)
        outs, out_dots = jvp_eval(body, values, dots)
        filled = [
            zeros(s) if d is None else d
            for d, s, a in zip(out_dots, body.out_specs, active, strict=True)
            if a
        ]
        return (*outs, *filled)

    const_dots = [t for t in tangents[:consts] if t is not None]
    carry_dots = [
        zeros(s) if t is None else t
        for t, s, a in zip(tangents[consts:], specs[consts:], active, strict=True)
        if a
    ]
    operands = (*primals[:consts], *const_dots, *primals[consts:], *carry_dots)
    all_specs = [spec_of(o) for o in operands]
    results = bind(
        "WHILE",
        *operands,
        cond=program_of(lambda *a: run(cond, split(a)[0]), all_specs, cond.name),
        body=program_of(step, all_specs, f"jvp_{body.name}"),
        consts=consts + k,
        max_steps=params["max_steps"],
    )
    outs = results[: n - consts]
    dots = iter(results[n - consts :])
    return outs, tuple(next(dots) if a else None for a in active)


def _masked_scan(primals: Any, params: Any) -> tuple[Any, dict[str, Any]]:
    """A WHILE with a bound as a SCAN whose carry freezes once the condition fails."""
    cond, body, consts = params["cond"], params["body"], params["consts"]

    def step(*args: Any) -> tuple[Any, ...]:
        fixed, carry = args[:consts], args[consts:]
        (going,) = run(cond, args)
        new = run(body, (*fixed, *carry))
        return tuple(bind("WHERE", going, a, b) for a, b in zip(new, carry, strict=True))

    program = program_of(step, body.in_specs, body.name)
    scan_params = {
        "body": program,
        "consts": consts,
        "carry": len(primals) - consts,
        "length": params["max_steps"],
        "reverse": False,
    }
    return primals, scan_params


def _while_vjp(
    cts: Any, primals: Any, outputs: Any, *, wanted: Any, strong: Any, **params: Any
) -> Any:
    del outputs
    if params["max_steps"] is None:
        raise MissingRuleError(
            "reverse mode through a while_loop needs a bound on its steps",
            quoted(user_line()),
            "pass max_steps=n to autodiff.while_loop, use scan, or forward mode (jvp, jacfwd)",
            kind="WHILE",
            rule="vjp",
        )
    operands, scan_params = _masked_scan(primals, params)
    outs, residuals = scan_residual(operands, **scan_params)
    rules = {"wanted": wanted, "strong": strong, "residuals": residuals}
    return scan_vjp(cts, operands, outs, **rules, **scan_params)


def _while_batch(size: int, args: Any, batched: Any, **params: Any) -> Any:
    cond, body, consts = params["cond"], params["body"], params["consts"]
    fixed_flags = tuple(batched[:consts])
    flags = tuple(batched[consts:])
    while True:
        per_row = batch_program(cond, size, fixed_flags + flags)[1][0]
        out = batch_program(body, size, fixed_flags + flags)[1]
        new = tuple(a or b or per_row for a, b in zip(flags, out, strict=True))
        if new == flags:
            break
        flags = new
    all_flags = fixed_flags + flags

    def going(values: Any) -> Any:
        return batch_eval(cond, size, values, all_flags)[0][0]

    def predicate(*values: Any) -> Any:
        return np.any(going(values)) if per_row else going(values)

    def step(*values: Any) -> tuple[Any, ...]:
        outs, out_flags = batch_eval(body, size, values, all_flags)
        full = [
            materialize(o, size) if want and not have else o
            for o, have, want in zip(outs, out_flags, flags, strict=True)
        ]
        if not per_row:
            return tuple(full)
        mask = going(values)  # finished rows stay frozen
        return tuple(select(mask, a, b) for a, b in zip(full, values[consts:], strict=True))

    carry = [
        materialize(a, size) if want and not have else a
        for a, have, want in zip(args[consts:], batched[consts:], flags, strict=True)
    ]
    operands = (*args[:consts], *carry)
    specs = [spec_of(o) for o in operands]
    outs = bind(
        "WHILE",
        *operands,
        cond=program_of(predicate, specs, cond.name),
        body=program_of(step, specs, f"vmap_{body.name}"),
        consts=consts,
        max_steps=params["max_steps"],
    )
    return outs, flags


define(
    Op(
        "WHILE",
        _while_spec,
        impl=_while,
        jvp=_while_jvp,
        vjp=_while_vjp,
        batch=_while_batch,
        outputs=0,
        control=True,
        doc="Repeat a sub-program while a condition on its carry holds.",
    )
)


def while_loop(cond_fun: Any, body_fun: Any, init_val: Any, max_steps: int | None = None) -> Any:
    """Apply `body_fun` to the value while `cond_fun(value)` holds.

    Arguments: `cond_fun(value) -> bool scalar`, `body_fun(value) -> value` of the same containers,
    shapes and dtypes, the initial value, and a bound on the number of steps, after which the loop
    stops in any case. Returns the final value. Forward mode always works; reverse mode needs
    `max_steps` and runs a masked scan of that length. Under vmap the loop runs until every row is
    finished, finished rows frozen.
    Raises MissingRuleError in reverse mode without `max_steps`, ShapeError where the body changes
    shapes or dtypes.
    """
    require_callable(cond_fun, "while_loop")
    require_callable(body_fun, "while_loop")
    if max_steps is not None and whole(max_steps, "max_steps") < 0:
        where = quoted(user_line())
        raise ShapeError(f"max_steps is {max_steps}", where, "pass an int of 0 or more, or None")
    leaves, in_tree = tree.flatten(init_val)
    values = [as_value(leaf, "initial value") for leaf in leaves]
    arg_tree = tree.flatten((init_val,))[1]
    body_fun = keeping_narrow(body_fun, init_val, lambda result: result)
    body, body_captured = lift(body_fun, values, arg_tree, concrete=False)
    same_tree("while_loop body", body.out_tree, in_tree)
    values = _promoted(values, body.out_specs)
    if [spec_of(v) for v in values] != list(body.in_specs):
        body, body_captured = lift(body_fun, values, arg_tree, concrete=False)
    test, test_captured = lift(lambda v: as_bool(cond_fun(v)), values, arg_tree, concrete=False)
    captured = distinct(test_captured, body_captured)
    outs = bind(
        "WHILE",
        *captured,
        *values,
        cond=with_consts(test, test_captured, captured),
        body=with_consts(body, body_captured, captured),
        consts=len(captured),
        max_steps=None if max_steps is None else whole(max_steps, "max_steps"),
    )
    return tree.unflatten(in_tree, outs)


def _promoted(values: Any, specs: Any) -> list[Any]:
    """Python-scalar initial values take the dtype the body gives them."""
    return [
        v
        if spec_of(v) == s or np.shape(v) != s.shape or not isinstance(v, np.ndarray) or v.ndim
        else v.astype(np.result_type(v.dtype, s.dtype))
        for v, s in zip(values, specs, strict=True)
    ]


def as_bool(value: Any) -> Any:
    """A predicate as a bool value."""
    value = as_value(value, "predicate")
    return value if value.dtype == np.bool_ else value != 0


__all__ = ["while_loop"]
