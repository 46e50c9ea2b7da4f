"""The loop SCAN along the first axis of arrays, with a carried value."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.batch import batch_program, materialize
from autodiff.errors import ShapeError
from autodiff.expansion import expanded
from autodiff.families import whole
from autodiff.forward import is_inexact, jvp_eval
from autodiff.interpret import run
from autodiff.op import Op, define
from autodiff.program import Program, Spec
from autodiff.reverse import vjp_eval
from autodiff.strong import protection
from autodiff.subprogram import keeping_narrow, lift, same_specs, same_tree, with_consts, zeros
from autodiff.trace import as_value, bind, program_of, quoted, require_callable, spec_of, user_line

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
            zeros(s) if d is None else d for d, s in zip(out_dots, body.out_specs, strict=True)
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


def scan_residual(primals: Any, **params: Any) -> tuple[Any, Any]:
    """Outputs, and the carry at the start of every step."""
    body, consts, carry = params["body"], params["consts"], params["carry"]

    def step(*args: Any) -> tuple[Any, ...]:
        return (*run(body, args), *args[consts : consts + carry])

    results = bind(
        "SCAN", *primals, **{**params, "body": program_of(step, body.in_specs, body.name)}
    )
    split = len(results) - carry
    return results[:split], results[split:]


def scan_vjp(
    cts: Any,
    primals: Any,
    outputs: Any,
    *,
    wanted: Any,
    strong: Any,
    residuals: Any,
    **params: Any,
) -> Any:
    del outputs
    body, consts, carry = expanded(params["body"]), params["consts"], params["carry"]
    strong = _protected_outputs(body, consts, carry, strong)
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
        _, pullback = vjp_eval(body, (*fixed, *state, *xs), wanted=mask, strong=strong)
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


def _protected_outputs(
    body: Program, consts: int, carry: int, strong: Sequence[bool]
) -> tuple[bool, ...]:
    """Outputs of a step that reach a select: after the loop, or in a later step by the carry."""
    flags = tuple(strong)
    while True:
        reach = protection(body, flags)
        later = [v in reach for v in body.inputs[consts : consts + carry]]
        new = (*(f or g for f, g in zip(flags[:carry], later, strict=True)), *flags[carry:])
        if new == flags:
            return flags
        flags = new


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
        np.moveaxis(y, 1, 0) if f else y for y, f in zip(results[carry:], out[carry:], strict=True)
    ]
    return (*results[:carry], *ys), force


define(
    Op(
        "SCAN",
        _scan_spec,
        impl=_scan,
        jvp=_scan_jvp,
        vjp=scan_vjp,
        residual=scan_residual,
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
    require_callable(f, "scan")
    carry_leaves, carry_tree = tree.flatten(init)
    x_leaves, _ = tree.flatten(xs)
    state = [as_value(leaf, "initial carry") for leaf in carry_leaves]
    rows = [as_value(leaf, "scanned value") for leaf in x_leaves]
    count = _scan_length(rows, length)
    row_specs = [Spec(tuple(r.shape[1:]), r.dtype) for r in rows]
    f = keeping_narrow(f, init, _carry)
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


def _carry(result: Any) -> Any:
    """The carry of a pair (carry, y); what is no pair as it is."""
    return result[0] if isinstance(result, tuple | list) and len(result) == 2 else result


def _scan_length(rows: list[Any], length: int | None) -> int:
    extents = {int(r.shape[0]) if r.ndim else -1 for r in rows}
    if length is not None:
        extents.add(whole(length, "length of scan"))
    if len(extents) != 1 or -1 in extents:
        raise ShapeError(
            f"scan over extents {sorted(extents) or 'unknown'}",
            quoted(user_line()),
            "scanned arrays share the extent of their first axis; without arrays pass length=n",
        )
    return extents.pop()


__all__ = ["scan"]
