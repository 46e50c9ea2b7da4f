"""Conditionals and loops: IF, WHILE and SCAN, differentiable and batchable in both modes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.batch import batch_eval, batch_program, materialize
from autodiff.errors import MissingRuleError, ShapeError
from autodiff.forward import is_inexact, jvp_eval
from autodiff.interpret import run
from autodiff.op import Op, define
from autodiff.program import Program, Spec
from autodiff.reverse import vjp_eval
from autodiff.subprogram import lift, same_specs, same_tree, select, with_consts, zeros
from autodiff.trace import as_value, bind, find_trace, program_of, quoted, spec_of, user_line

# --- IF ------------------------------------------------------------------------------------


def _if_spec(predicate: Spec, *operands: Spec, branches: tuple[Program, Program]) -> Any:
    if predicate.shape != () or predicate.dtype != np.bool_:
        raise ShapeError(
            f"the predicate of a cond is {predicate}, not a bool scalar",
            "in op IF",
            "reduce it with np.any or np.all",
        )
    for branch in branches:
        same_specs("cond operands", branch.in_specs, operands)
    same_specs("cond branches", branches[1].out_specs, branches[0].out_specs)
    return branches[0].out_specs


def _if(evaluate: Callable[..., Any], predicate: Any, *operands: Any, branches: Any) -> Any:
    return evaluate(branches[0] if predicate else branches[1], *operands)


def _if_jvp(primals: Any, tangents: Any, outputs: Any, *, branches: Any) -> Any:
    del outputs
    predicate, *operands = primals
    mask = tuple(t is not None for t in tangents[1:])
    n, outs = len(operands), branches[0].out_specs

    def twin(branch: Program) -> Program:
        def f(*args: Any) -> tuple[Any, ...]:
            rest = iter(args[n:])
            dots = [next(rest) if m else None for m in mask]
            values, out_dots = jvp_eval(branch, args[:n], dots)
            return (
                *values,
                *(
                    zeros(s) if d is None else d
                    for d, s in zip(out_dots, outs, strict=True)
                    if is_inexact(s.dtype)
                ),
            )

        dot_specs = [s for s, m in zip(branch.in_specs, mask, strict=True) if m]
        return program_of(f, (*branch.in_specs, *dot_specs), f"jvp_{branch.name}")

    present = [t for t in tangents[1:] if t is not None]
    twins = (twin(branches[0]), twin(branches[1]))
    results = bind("IF", predicate, *operands, *present, branches=twins)
    dots = iter(results[len(outs) :])
    return results[: len(outs)], tuple(next(dots) if is_inexact(s.dtype) else None for s in outs)


def _if_vjp(cts: Any, primals: Any, outputs: Any, *, branches: Any, wanted: Any) -> Any:
    del outputs
    predicate, *operands = primals
    present = tuple(c is not None for c in cts)
    n, mask = len(operands), wanted[1:]

    def twin(branch: Program) -> Program:
        def f(*args: Any) -> tuple[Any, ...]:
            rest = iter(args[n:])
            _, pullback = vjp_eval(branch, args[:n], wanted=mask)
            pulled = pullback([next(rest) if p else None for p in present])
            return tuple(
                zeros(s) if g is None else g
                for g, s, m in zip(pulled, branch.in_specs, mask, strict=True)
                if m
            )

        ct_specs = [s for s, p in zip(branch.out_specs, present, strict=True) if p]
        return program_of(f, (*branch.in_specs, *ct_specs), f"vjp_{branch.name}")

    twins = (twin(branches[0]), twin(branches[1]))
    given = [c for c in cts if c is not None]
    pulled = iter(bind("IF", predicate, *operands, *given, branches=twins))
    return (None, *(next(pulled) if m else None for m in mask))


def _if_batch(size: int, args: Any, batched: Any, *, branches: Any) -> Any:
    predicate, *operands = args
    flags = tuple(batched[1:])
    if batched[0]:
        sides = [batch_eval(b, size, operands, flags) for b in branches]
        full = [
            [v if f else materialize(v, size) for v, f in zip(*side, strict=True)]
            for side in sides
        ]
        chosen = [select(predicate, a, b) for a, b in zip(*full, strict=True)]
        return chosen, (True,) * len(chosen)
    masks = [batch_program(b, size, flags)[1] for b in branches]
    force = tuple(a or b for a, b in zip(*masks, strict=True))
    twins = tuple(batch_program(b, size, flags, force)[0] for b in branches)
    return bind("IF", predicate, *operands, branches=twins), force


define(
    Op(
        "IF",
        _if_spec,
        impl=_if,
        jvp=_if_jvp,
        vjp=_if_vjp,
        batch=_if_batch,
        outputs=0,
        control=True,
        doc="One of two sub-programs, chosen by a bool scalar.",
    )
)


def cond(predicate: Any, true_fun: Any, false_fun: Any, *operands: Any) -> Any:
    """`true_fun(*operands)` where the predicate holds, else `false_fun(*operands)`.

    Arguments: a bool scalar, two functions returning the same containers, shapes and dtypes, and
    their operands. Only the chosen branch runs; under vmap with a batched predicate both run and
    the results are selected, and the branch not chosen contributes no derivative.
    Raises ShapeError, TreeError where the branches' results differ.
    """
    leaves, in_tree = tree.flatten(operands)
    values = [as_value(leaf, "operand") for leaf in leaves]
    predicate = as_value(predicate, "predicate")
    if predicate.dtype != np.bool_:
        predicate = predicate != 0
    programs = [lift(f, values, in_tree, concrete=False) for f in (true_fun, false_fun)]
    captured = _distinct(*(c for _, c in programs))
    if find_trace((predicate, *captured, *values)) is None:
        return (true_fun if predicate else false_fun)(*operands)
    (yes, _), (no, _) = programs
    same_tree("cond branches", no.out_tree, yes.out_tree)
    branches = tuple(with_consts(p, c, captured) for p, c in programs)
    outs = bind("IF", predicate, *captured, *values, branches=branches)
    return tree.unflatten(yes.out_tree, outs)


def _distinct(*groups: Any) -> list[Any]:
    return list({id(c): c for group in groups for c in group}.values())


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


def _while_vjp(cts: Any, primals: Any, outputs: Any, *, wanted: Any, **params: Any) -> Any:
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
    outs, residuals = _scan_residual(operands, **scan_params)
    return _scan_vjp(cts, operands, outs, wanted=wanted, residuals=residuals, **scan_params)


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
    leaves, in_tree = tree.flatten(init_val)
    values = [as_value(leaf, "initial value") for leaf in leaves]
    arg_tree = tree.flatten((init_val,))[1]
    body, body_captured = lift(body_fun, values, arg_tree, concrete=False)
    same_tree("while_loop body", body.out_tree, in_tree)
    values = _promoted(values, body.out_specs)
    if [spec_of(v) for v in values] != list(body.in_specs):
        body, body_captured = lift(body_fun, values, arg_tree, concrete=False)
    test, test_captured = lift(
        lambda v: as_bool(cond_fun(v)), values, arg_tree, concrete=False
    )
    captured = _distinct(test_captured, body_captured)
    outs = bind(
        "WHILE",
        *captured,
        *values,
        cond=with_consts(test, test_captured, captured),
        body=with_consts(body, body_captured, captured),
        consts=len(captured),
        max_steps=None if max_steps is None else int(max_steps),
    )
    return tree.unflatten(in_tree, outs)


def _promoted(values: Any, specs: Any) -> list[Any]:
    """Python-scalar initial values take the dtype the body gives them."""
    return [
        v if spec_of(v) == s or np.shape(v) != s.shape or not isinstance(v, np.ndarray) or v.ndim
        else v.astype(np.result_type(v.dtype, s.dtype))
        for v, s in zip(values, specs, strict=True)
    ]


def as_bool(value: Any) -> Any:
    """A predicate as a bool value."""
    value = as_value(value, "predicate")
    return value if value.dtype == np.bool_ else value != 0


# --- SCAN ----------------------------------------------------------------------------------


def _scan_spec(
    *specs: Spec, body: Program, consts: int, carry: int, length: int, reverse: bool
) -> Any:
    del reverse
    same_specs("scan carry", body.out_specs[:carry], specs[consts : consts + carry])
    for i, s in enumerate(specs[consts + carry :]):
        if not s.shape or s.shape[0] != length:
            raise ShapeError(
                f"scanned array {i} is {s}, the scan has length {length}",
                "in op SCAN",
                "scanned arrays share the extent of their first axis",
            )
    ys = tuple(s.with_shape((length, *s.shape)) for s in body.out_specs[carry:])
    return (*body.out_specs[:carry], *ys)


def _scan(
    evaluate: Callable[..., Any],
    *args: Any,
    body: Program,
    consts: int,
    carry: int,
    length: int,
    reverse: bool,
) -> Any:
    fixed, state, xs = args[:consts], args[consts : consts + carry], args[consts + carry :]
    rows: list[Any] = [None] * length
    for i in range(length)[:: -1 if reverse else 1]:
        outs = evaluate(body, *fixed, *state, *(x[i] for x in xs))
        state, rows[i] = outs[:carry], outs[carry:]
    specs = body.out_specs[carry:]
    if not length:
        return (*state, *(np.zeros((0, *s.shape), s.dtype) for s in specs))
    return (*state, *(np.stack([r[j] for r in rows]) for j in range(len(specs))))


def _scan_jvp(primals: Any, tangents: Any, outputs: Any, **params: Any) -> Any:
    del outputs
    body, consts, carry = params["body"], params["consts"], params["carry"]
    specs = body.in_specs
    end = consts + carry
    mask = [t is not None for t in tangents]
    mask[consts:end] = [is_inexact(s.dtype) for s in specs[consts:end]]
    n, groups = len(primals), (slice(0, consts), slice(consts, end), slice(end, len(primals)))
    counts = [sum(mask[g]) for g in groups]
    outs_inexact = [is_inexact(s.dtype) for s in body.out_specs]

    def step(*args: Any) -> tuple[Any, ...]:
        values: list[Any] = []
        dots: list[Any] = []
        at = 0
        for g, k in zip(groups, counts, strict=True):
            width = g.stop - g.start
            values += args[at : at + width]
            rest = iter(args[at + width : at + width + k])
            dots += [next(rest) if m else None for m in mask[g]]
            at += width + k
        outs, out_dots = jvp_eval(body, values, dots)
        filled = [
            zeros(s) if d is None else d
            for d, s in zip(out_dots, body.out_specs, strict=True)
        ]
        first = [d for d, a in zip(filled[:carry], outs_inexact[:carry], strict=True) if a]
        last = [d for d, a in zip(filled[carry:], outs_inexact[carry:], strict=True) if a]
        return (*outs[:carry], *first, *outs[carry:], *last)

    operands: list[Any] = []
    in_specs: list[Spec] = []
    for g in groups:
        given = [
            zeros(spec_of(p)) if t is None else t
            for p, t, m in zip(primals[g], tangents[g], mask[g], strict=True)
            if m
        ]
        operands += [*primals[g], *given]
        in_specs += [*specs[g], *(s for s, m in zip(specs[g], mask[g], strict=True) if m)]
    del n
    results = bind(
        "SCAN",
        *operands,
        body=program_of(step, in_specs, f"jvp_{body.name}"),
        consts=consts + counts[0],
        carry=carry + counts[1],
        length=params["length"],
        reverse=params["reverse"],
    )
    total = carry + counts[1]
    ys = results[total:]
    many = len(body.out_specs) - carry
    dots = iter((*results[carry:total], *ys[many:]))
    outs = (*results[:carry], *ys[:many])
    return outs, tuple(next(dots) if a else None for a in outs_inexact)


def _scan_residual(primals: Any, **params: Any) -> tuple[Any, Any]:
    """Outputs, and the carry at the start of every step."""
    body, consts, carry = params["body"], params["consts"], params["carry"]

    def step(*args: Any) -> tuple[Any, ...]:
        return (*run(body, args), *args[consts : consts + carry])

    results = bind(
        "SCAN", *primals, **{**params, "body": program_of(step, body.in_specs, body.name)}
    )
    split = len(results) - carry
    return results[:split], results[split:]


def _scan_vjp(
    cts: Any, primals: Any, outputs: Any, *, wanted: Any, residuals: Any, **params: Any
) -> Any:
    del outputs
    body, consts, carry = params["body"], params["consts"], params["carry"]
    specs, outs = body.in_specs, body.out_specs
    end, n = consts + carry, len(primals)
    mask = list(wanted)
    mask[consts:end] = [is_inexact(s.dtype) for s in specs[consts:end]]
    mask = [m and is_inexact(s.dtype) for m, s in zip(mask, specs, strict=True)]
    const_specs = [s for s, m in zip(specs[:consts], mask[:consts], strict=True) if m]
    carry_specs = [s for s in outs[:carry] if is_inexact(s.dtype)]
    y_present = tuple(c is not None for c in cts[carry:])
    a, b = len(const_specs), len(carry_specs)

    def step(*args: Any) -> tuple[Any, ...]:
        fixed, rest = args[:consts], args[consts:]
        sums, carry_cts, rest = rest[:a], rest[a : a + b], rest[a + b :]
        state, xs, y_cts = rest[:carry], rest[carry : carry + n - end], rest[carry + n - end :]
        _, pullback = vjp_eval(body, (*fixed, *state, *xs), wanted=mask)
        c, y = iter(carry_cts), iter(y_cts)
        out_cts = [next(c) if is_inexact(s.dtype) else None for s in outs[:carry]]
        out_cts += [next(y) if p else None for p in y_present]
        pulled = [
            zeros(s) if g is None else g
            for g, s, m in zip(pullback(out_cts), specs, mask, strict=True)
            if m
        ]
        return (*(s + g for s, g in zip(sums, pulled[:a], strict=True)), *pulled[a:])

    carry_cts = [
        zeros(s) if c is None else c
        for c, s in zip(cts[:carry], outs[:carry], strict=True)
        if is_inexact(s.dtype)
    ]
    y_cts = [c for c in cts[carry:] if c is not None]
    y_specs = [s for s, p in zip(outs[carry:], y_present, strict=True) if p]
    step_specs = (
        *specs[:consts],
        *const_specs,
        *carry_specs,
        *specs[consts:end],
        *specs[end:],
        *y_specs,
    )
    results = bind(
        "SCAN",
        *primals[:consts],
        *(zeros(s) for s in const_specs),
        *carry_cts,
        *residuals,
        *primals[end:],
        *y_cts,
        body=program_of(step, step_specs, f"vjp_{body.name}"),
        consts=consts,
        carry=a + b,
        length=params["length"],
        reverse=not params["reverse"],
    )
    pulled = iter(results)
    return tuple(next(pulled) if m else None for m in mask)


def _scan_batch(size: int, args: Any, batched: Any, **params: Any) -> Any:
    body, consts, carry = params["body"], params["consts"], params["carry"]
    end = consts + carry
    fixed, flags, xs_flags = batched[:consts], tuple(batched[consts:end]), batched[end:]
    while True:
        out = batch_program(body, size, (*fixed, *flags, *xs_flags))[1]
        new = tuple(f or o for f, o in zip(flags, out[:carry], strict=True))
        if new == flags:
            break
        flags = new
    force = (*flags, *out[carry:])
    program = batch_program(body, size, (*fixed, *flags, *xs_flags), force)[0]
    state = [
        materialize(v, size) if want and not have else v
        for v, have, want in zip(args[consts:end], batched[consts:end], flags, strict=True)
    ]
    # the scanned axis leads inside SCAN, the batch axis leads outside
    xs = [np.moveaxis(x, 0, 1) if f else x for x, f in zip(args[end:], xs_flags, strict=True)]
    results = bind("SCAN", *args[:consts], *state, *xs, **{**params, "body": program})
    ys = [
        np.moveaxis(y, 1, 0) if f else y
        for y, f in zip(results[carry:], out[carry:], strict=True)
    ]
    return (*results[:carry], *ys), force


define(
    Op(
        "SCAN",
        _scan_spec,
        impl=_scan,
        jvp=_scan_jvp,
        vjp=_scan_vjp,
        residual=_scan_residual,
        batch=_scan_batch,
        outputs=0,
        control=True,
        doc="A sub-program applied along the first axis of arrays, with a carried value.",
    )
)


def scan(
    f: Any, init: Any, xs: Any = None, length: int | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    """Carry a value along the first axis: `carry, y = f(carry, x)` for each row of `xs`.

    Arguments: `f(carry, x) -> (carry, y)` with carries of one structure, shape and dtype; the
    initial carry; a container of arrays (or None, with `length`) scanned together; `reverse` goes
    from the last row to the first. Returns the last carry and the ys stacked along a first axis.
    Raises ShapeError where extents, or the carry's shapes and dtypes, disagree.
    """
    carry_leaves, carry_tree = tree.flatten(init)
    x_leaves, _ = tree.flatten(xs)
    state = [as_value(leaf, "initial carry") for leaf in carry_leaves]
    rows = [as_value(leaf, "scanned value") for leaf in x_leaves]
    count = _scan_length(rows, length)
    row_specs = [Spec(tuple(r.shape[1:]), r.dtype) for r in rows]
    in_tree = tree.flatten((init, xs))[1]
    body, captured = lift(f, [*map(spec_of, state), *row_specs], in_tree, concrete=False)
    parts = tree.unflatten(body.out_tree, [a.spec for a in body.outputs])
    if not isinstance(parts, tuple | list) or len(parts) != 2:
        raise ShapeError(
            "the function of a scan must return (carry, y)",
            quoted(user_line()),
            "return a pair; y may be None",
        )
    same_tree("scan carry", tree.flatten(parts[0])[1], carry_tree)
    operands = (*captured, *state, *rows)
    results = bind(
        "SCAN",
        *operands,
        body=with_consts(body, captured, captured),
        consts=len(captured),
        carry=len(state),
        length=count,
        reverse=bool(reverse),
    )
    y_tree = tree.flatten(parts[1])[1]
    return (
        tree.unflatten(carry_tree, results[: len(state)]),
        tree.unflatten(y_tree, results[len(state) :]),
    )


def _scan_length(rows: list[Any], length: int | None) -> int:
    extents = {int(r.shape[0]) if r.ndim else -1 for r in rows}
    if length is not None:
        extents.add(int(length))
    if len(extents) != 1 or -1 in extents:
        raise ShapeError(
            f"scan over extents {sorted(extents) or 'unknown'}",
            quoted(user_line()),
            "scanned arrays share the extent of their first axis; without arrays pass length=n",
        )
    return extents.pop()


__all__ = ["cond", "scan", "while_loop"]
