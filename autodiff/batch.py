"""vmap: a program evaluated on values with a leading batch axis, without loops over it."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from autodiff.native import quiet
from autodiff.op import body_program, missing_rule
from autodiff.program import Literal, Program, Var
from autodiff.trace import bind, mark_as, program_of, sourced


def batch_eval(
    program: Program,
    size: int,
    args: Sequence[Any],
    batched: Sequence[bool],
    captures: Sequence[Any] = (),
) -> tuple[tuple[Any, ...], tuple[bool, ...]]:
    """Outputs of a program for a whole batch, and which outputs carry the batch axis (leading)."""
    env: dict[Var, Any] = dict(zip(program.captures, captures, strict=True))
    env.update(zip(program.inputs, args, strict=True))
    mapped = {v for v, b in zip(program.inputs, batched, strict=True) if b}
    with quiet():
        for eq in program.equations:
            values = [a.value if isinstance(a, Literal) else env[a] for a in eq.inputs]
            flags = tuple([isinstance(a, Var) and a in mapped for a in eq.inputs])
            with sourced(eq.source):
                outs, out_flags = _batch_equation(eq, size, values, flags)
            env.update(zip(eq.outputs, outs, strict=True))
            mark_as(eq.outputs, outs, env)
            mapped.update(v for v, b in zip(eq.outputs, out_flags, strict=True) if b)
    outputs = tuple(a.value if isinstance(a, Literal) else env[a] for a in program.outputs)
    return outputs, tuple(isinstance(a, Var) and a in mapped for a in program.outputs)


def _batch_equation(
    eq: Any, size: int, values: Sequence[Any], flags: tuple[bool, ...]
) -> tuple[tuple[Any, ...], tuple[bool, ...]]:
    op = eq.op
    if not any(flags):
        result = bind(op, *values, **eq.params)
        outs = tuple(result) if op.multiple else (result,)
        return outs, (False,) * len(outs)
    if op.batch is not None:
        result, out_flags = op.batch(size, tuple(values), flags, **eq.params)
        if op.multiple:
            return tuple(result), tuple(out_flags)
        return (result,), (out_flags,)
    if op.body is not None:
        body = body_program(op, tuple(a.spec for a in eq.inputs), eq.params)
        return batch_eval(body, size, values, flags)
    raise missing_rule(op, "batch", eq.source)


@functools.lru_cache(maxsize=1024)
def batch_program(
    program: Program, size: int, batched: tuple[bool, ...], force: tuple[bool, ...] | None = None
) -> tuple[Program, tuple[bool, ...]]:
    """The batched program and which outputs carry the batch axis; `force` broadcasts the outputs
    named there even if they do not depend on a batched input.
    """
    mask: list[bool] = []

    def f(*args: Any) -> tuple[Any, ...]:
        outs, flags = batch_eval(program, size, args, batched)
        wanted = force if force is not None else flags
        mask[:] = [a or b for a, b in zip(flags, wanted, strict=True)]
        return tuple(
            materialize(o, size) if w and not have else o
            for o, have, w in zip(outs, flags, wanted, strict=True)
        )

    specs = [
        s.with_shape((size, *s.shape)) if b else s
        for s, b in zip(program.in_specs, batched, strict=True)
    ]
    traced = program_of(f, specs, name=f"vmap_{program.name}")
    return traced, tuple(mask)


def materialize(value: Any, size: int) -> Any:
    """The same value for every row: a new leading axis of the batch size."""
    return np.broadcast_to(value, (size, *np.shape(value)))
