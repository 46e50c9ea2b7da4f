"""Guards, checkpoints, stopped gradients and taps."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from autodiff import taps, tree
from autodiff.batch import batch_program
from autodiff.errors import GuardError, TracerError
from autodiff.families import batch_broadcasting
from autodiff.forward import jvp_eval
from autodiff.op import Op, define
from autodiff.program import Program, Spec
from autodiff.subprogram import closed, lift
from autodiff.trace import as_value, bind, find_trace, quoted, require_callable, user_line

# --- GUARD ---------------------------------------------------------------------------------


def _guard_spec(value: Spec, expected: Spec, *, line: str) -> tuple[Spec, ...]:
    del value, expected, line
    return ()


def guard(value: Any, expected: Any, *, line: str) -> tuple[()]:
    """Raise GuardError where a value differs from the one a Python decision was traced with."""
    if not np.array_equal(value, expected):
        raise GuardError(
            f"a Python branch was traced for {_shown(expected)}, the value is now {_shown(value)}",
            f"at {line}",
            "trace again for these arguments (autodiff.compile does), or use np.where / "
            "autodiff.cond",
            value=value,
            expected=expected,
        )
    return ()


def _shown(value: Any) -> str:
    return np.array2string(np.asarray(value), threshold=8)


def _guard_batch(size: int, args: Any, batched: Any, *, line: str) -> Any:
    del size, args, batched
    raise TracerError(
        "a Python branch was traced for one example and cannot decide for a batch",
        f"at {line}",
        "use np.where or autodiff.cond in the function",
    )


define(
    Op(
        "GUARD",
        _guard_spec,
        impl=guard,
        batch=_guard_batch,
        derivative="none",
        outputs=0,
        effect=True,
        jax="rules:guard",
        doc="Raise where a traced Python decision would come out differently.",
    )
)

# --- STOP_GRADIENT -------------------------------------------------------------------------


def _same_spec(x: Spec) -> Spec:
    return x


define(
    Op(
        "STOP_GRADIENT",
        _same_spec,
        impl=np.array,
        batch=batch_broadcasting("STOP_GRADIENT"),
        derivative="zero",
        elementwise=True,
        jax="lax.stop_gradient",
        doc="The identity with derivative 0.",
    )
)


def stop_gradient(x: Any) -> Any:
    """The value with its derivative set to 0: `y = x`, `dy/dx = 0`, leaf by leaf.

    Arguments: any container of arrays. Returns the same container. Finite differences do not see
    the stop: a gradient check of such a function reports the difference.
    """
    return tree.map_leaves(
        lambda leaf: bind("STOP_GRADIENT", leaf) if find_trace((leaf,)) else np.array(leaf), x
    )


# --- TAP -----------------------------------------------------------------------------------


def _tap_spec(x: Spec, *, name: str) -> Spec:
    del name
    return x


def _tap(x: Any, *, name: str) -> Any:
    taps.emit(name, x)
    return np.array(x)


def _tap_jvp(primals: Any, tangents: Any, y: Any, *, name: str) -> Any:
    del primals, y, name
    return tangents[0]


def _tap_transpose(ct: Any, inputs: Any, *, name: str) -> tuple[Any, ...]:
    del inputs, name
    return (ct,)


def _tap_batch(size: int, args: Any, batched: Any, *, name: str) -> Any:
    del size, batched
    return bind("TAP", args[0], name=name), True


define(
    Op(
        "TAP",
        _tap_spec,
        impl=_tap,
        jvp=_tap_jvp,
        transpose=_tap_transpose,
        batch=_tap_batch,
        template="np.array({0})",
        effect=True,
        jax="rules:tap",
        doc="The identity; hands its value to open tap sinks under a name.",
    )
)


def tap(name: Any, x: Any) -> Any:
    """The identity, which shows an inner value by name to every open sink.

    Arguments: a dotted name such as "enc.block.0.out", and an array. Returns the array. Sinks are
    opened with `autodiff.taps.collect()`; with none open a tap costs nothing but an identity.
    """
    if not isinstance(name, str) or not name:
        raise TracerError(
            f"tap name {name!r} is not a non-empty string",
            quoted(user_line()),
            'name the value: autodiff.tap("name", x)',
        )
    return bind("TAP", as_value(x, "tapped value"), name=name)


# --- CHECKPOINT ----------------------------------------------------------------------------


def _body_spec(*specs: Spec, body: Program) -> tuple[Spec, ...]:
    del specs
    return body.out_specs


def _checkpoint(evaluate: Callable[..., Any], *args: Any, body: Program) -> Any:
    return evaluate(body, *args)


def _checkpoint_jvp(primals: Any, tangents: Any, outputs: Any, *, body: Program) -> Any:
    del outputs
    return jvp_eval(body, primals, tangents)


def _checkpoint_vjp(
    cts: Any, primals: Any, outputs: Any, *, body: Program, wanted: Any, strong: Any
) -> Any:
    from autodiff.reverse import vjp_eval

    del outputs
    return vjp_eval(body, primals, wanted=wanted, strong=strong)[1](cts)


def _checkpoint_batch(size: int, args: Any, batched: Any, *, body: Program) -> Any:
    mapped, flags = batch_program(body, size, tuple(batched))
    return bind("CHECKPOINT", *args, body=mapped), flags


define(
    Op(
        "CHECKPOINT",
        _body_spec,
        impl=_checkpoint,
        jvp=_checkpoint_jvp,
        vjp=_checkpoint_vjp,
        batch=_checkpoint_batch,
        outputs=0,
        control=True,
        doc="A sub-program whose intermediate values are recomputed in the backward pass.",
    )
)


def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose inner values are recomputed in reverse mode instead of stored.

    Arguments: a function of arrays in any containers. Returns a function with the same values and
    derivatives; memory for the backward pass falls to its inputs, time grows by one evaluation.
    """
    require_callable(f, "checkpoint")

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        leaves, in_tree = tree.flatten(args)
        values = [as_value(leaf, "argument") for leaf in leaves]
        function = functools.partial(f, **kwargs) if kwargs else f
        program, captured = lift(function, values, in_tree)
        if find_trace((*captured, *values)) is None:
            return function(*args)
        outs = bind("CHECKPOINT", *captured, *values, body=closed(program))
        return tree.unflatten(program.out_tree, outs)

    checkpointed.__name__ = getattr(f, "__name__", "checkpointed")
    checkpointed.__doc__ = f.__doc__
    return checkpointed


__all__ = ["checkpoint", "stop_gradient", "tap"]
