"""The conditional IF: one of two sub-programs, differentiable and batchable."""

from collections.abc import Callable
from typing import Any

import numpy as np

from autodiff import tree
from autodiff.batch import batch_eval, batch_program, materialize
from autodiff.errors import ShapeError
from autodiff.forward import is_inexact, jvp_eval
from autodiff.op import Op, define
from autodiff.program import Program, Spec
from autodiff.reverse import vjp_eval
from autodiff.subprogram import distinct, lift, same_specs, same_tree, select, with_consts, zeros
from autodiff.trace import as_value, bind, find_trace, program_of, require_callable, spec_of

# --- IF ------------------------------------------------------------------------------------


def _if_predicate(predicate: Spec) -> None:
    if predicate.shape != () or predicate.dtype != np.bool_:
        raise ShapeError(
            f"the predicate of a cond is {predicate}, not a bool scalar",
            "in op IF",
            "reduce it with np.any or np.all",
        )


def _if_spec(predicate: Spec, *operands: Spec, branches: tuple[Program, Program]) -> Any:
    _if_predicate(predicate)
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


def _if_vjp(
    cts: Any, primals: Any, outputs: Any, *, branches: Any, wanted: Any, strong: Any
) -> Any:
    del outputs
    predicate, *operands = primals
    present = tuple(c is not None for c in cts)
    n, mask = len(operands), wanted[1:]

    def twin(branch: Program) -> Program:
        def f(*args: Any) -> tuple[Any, ...]:
            rest = iter(args[n:])
            _, pullback = vjp_eval(branch, args[:n], wanted=mask, strong=strong)
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
            [v if f else materialize(v, size) for v, f in zip(*side, strict=True)] for side in sides
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
    require_callable(true_fun, "cond")
    require_callable(false_fun, "cond")
    leaves, in_tree = tree.flatten(operands)
    values = [as_value(leaf, "operand") for leaf in leaves]
    predicate = as_value(predicate, "predicate")
    if predicate.dtype != np.bool_:
        predicate = predicate != 0
    _if_predicate(spec_of(predicate))
    programs = [lift(f, values, in_tree, concrete=False) for f in (true_fun, false_fun)]
    captured = distinct(*(c for _, c in programs))
    (yes, _), (no, _) = programs
    same_tree("cond branches", no.out_tree, yes.out_tree)
    same_specs("cond branches", no.out_specs, yes.out_specs)
    if find_trace((predicate, *captured, *values)) is None:
        return (true_fun if predicate else false_fun)(*operands)
    branches = tuple(with_consts(p, c, captured) for p, c in programs)
    outs = bind("IF", predicate, *captured, *values, branches=branches)
    return tree.unflatten(yes.out_tree, outs)


__all__ = ["cond"]
