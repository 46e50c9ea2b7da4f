"""The table of wrong rules: what is wrong, with which op, and the surfaces that must say so."""

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from autodiff import lowerings, strong
from autodiff.families import add_tangents, batch_leading, fit, unbroadcast
from autodiff.forward import is_inexact
from autodiff.op import OPS
from autodiff.program import Var
from autodiff.reverse import Cotangents, Undefined
from autodiff.trace import bind
from checks.power.inject import mutated, patched, patched_table

Mutation = Callable[[], AbstractContextManager[Any]]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A wrong rule; `op` is swept while it is in place, and each of `surfaces` must fail."""

    name: str
    op: str
    surfaces: tuple[str, ...]
    mutation: Mutation


# --- derivatives -------------------------------------------------------------------------------


def scaled_jvp(kind: str, factor: Any) -> Mutation:
    """The op's own jvp times a factor."""
    right = OPS[kind].jvp
    assert right is not None

    def jvp(primals: Any, tangents: Any, y: Any, **params: Any) -> Any:
        return right(primals, tangents, y, **params) * np.asarray(factor, np.float64)

    return lambda: mutated(kind, jvp=jvp)


def _swapped(primals: Any, tangents: Any, z: Any) -> Any:
    """Each operand's tangent times itself, not times the other."""
    parts = [
        fit(t * x, np.shape(z)) for x, t in zip(primals, tangents, strict=True) if t is not None
    ]
    return add_tangents(*parts)


def _lost(self: Cotangents, var: Any, ct: Any, kind: str = "output") -> None:
    """A value's last use overwrites the cotangents of the others: x * x counts once."""
    del kind
    if ct is not None and isinstance(var, Var) and is_inexact(var.spec.dtype):
        self.values[var] = ct


def _no_unbroadcast(ct: Any, inputs: Any, *, shape: tuple[int, ...]) -> tuple[Any, ...]:
    del inputs, shape
    return (ct,)


def _mean_unbroadcast(ct: Any, inputs: Any, *, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The mean over the broadcast axes in place of the sum."""
    (x,) = inputs
    share = max(x.spec.size, 1) / max(int(np.prod(shape)), 1)
    return (unbroadcast(ct, x.shape) * share,)


def _untransposed_matmul(ct: Any, inputs: Any, *, algorithm: str) -> tuple[Any, ...]:
    """ct y in place of ct y^T: of the right shape for square y alone."""
    x, y = inputs
    if isinstance(x, Undefined):
        return unbroadcast(bind("MATMUL", ct, y, algorithm=algorithm), x.shape), None
    return None, unbroadcast(bind("MATMUL", x, ct, algorithm=algorithm), y.shape)


def _unflipped(ct: Any, inputs: Any, *, axis: Any) -> tuple[Any, ...]:
    del inputs, axis
    return (ct,)


def _first_axis(ct: Any, inputs: Any, *, axis: int, reverse: bool) -> tuple[Any, ...]:
    del inputs, axis
    return (bind("CUMSUM", ct, axis=0, reverse=not reverse),)


def _wrong_vjp() -> AbstractContextManager[Any]:
    """The reverse rule alone is wrong: the term with the sum is forgotten."""
    return mutated("SOFTMAX", vjp=lambda ct, primals, p, *, axis: (ct * p,))


def _detached(primals: Any, tangents: Any, y: Any, **params: Any) -> Any:
    """Right at first order; the derivative of the derivative is 0."""
    del primals, params
    return tangents[0] * bind("STOP_GRADIENT", y)


def _cancelling_sigmoid(primals: Any, tangents: Any, y: Any, **params: Any) -> Any:
    del primals, params
    return tangents[0] * (y * (1 - y))


def _tangent_at_kink(x: Any) -> Any:
    """The slope of RELU at 0 is 1 here."""
    return bind("WHERE", x < 0, np.zeros((), x.dtype), x)


def _tie_to_all(
    primals: Any, tangents: Any, y: Any, *, axis: tuple[int, ...], keepdims: bool
) -> Any:
    """Every one of the equal maxima gets the whole cotangent."""
    (x,), (t,) = primals, tangents
    full = y if keepdims else np.expand_dims(y, axis)
    hit = bind("WHERE", x == full, t, np.zeros((), t.dtype))
    return bind("SUM", hit, axis=axis, keepdims=keepdims)


# --- batching ----------------------------------------------------------------------------------


def _looping(size: int, args: Any, batched: Any) -> tuple[Any, bool]:
    del batched
    return np.stack([bind("SIN", args[0][b]) for b in range(size)]) if size else args[0], True


def _first_row(size: int, args: Any, batched: Any) -> tuple[Any, bool]:
    del batched
    first = bind("COS", args[0][0]) if size else args[0]
    return np.broadcast_to(first, np.shape(args[0])), True


def _unaligned(size: int, args: Any, batched: Any) -> tuple[Any, bool]:
    """The batch axis of one operand is broadcast against an axis of the other."""
    del size, batched
    return bind("MUL", *args), True


# --- values ------------------------------------------------------------------------------------


def _in_place(x: Any) -> Any:
    return np.negative(x, out=x)


def _nan_at_one_point(x: Any) -> Any:
    return np.where(x > 0.5, np.nan, np.exp(x))


def _overflowing_softmax(x: Any, *, axis: tuple[int, ...]) -> Any:
    e = np.exp(x)
    return e / bind("SUM", e, axis=axis, keepdims=True)


def executed_as(kind: str, other: str) -> AbstractContextManager[Any]:
    """The executor writes the NumPy calls of another op."""
    return patched_table(lowerings.LOWERINGS, kind, lowerings.LOWERINGS[other])


def _divided() -> AbstractContextManager[Any]:
    return executed_as("STRONG_MUL", "STRONG_DIV")


def _plain(*kinds: str) -> Mutation:
    """Products of these kinds without a strong twin: 0 * inf is NaN upstream of a select."""
    kept = {k: v for k, v in strong.STRONG.items() if k not in kinds}
    return lambda: patched(strong, "STRONG", kept)


def _unprotected(kind: str) -> Mutation:
    """A control op that does not tell its body that a select follows."""
    right = OPS[kind].vjp
    assert right is not None

    def vjp(cts: Any, primals: Any, outs: Any, *, strong: Any, **params: Any) -> Any:
        return right(cts, primals, outs, strong=(False,) * len(strong), **params)

    return lambda: mutated(kind, vjp=vjp)


MUTANTS: tuple[Mutant, ...] = (
    Mutant("gradient times 2", "EXP", ("reverse",), scaled_jvp("EXP", 2.0)),
    Mutant("gradient times 1.001", "EXP", ("reverse",), scaled_jvp("EXP", 1.001)),
    Mutant("wrong sign", "SIN", ("reverse",), scaled_jvp("SIN", -1.0)),
    Mutant("zero gradient", "TANH", ("reverse",), scaled_jvp("TANH", 0.0)),
    Mutant("NaN gradient", "ATAN", ("reverse", "forward"), scaled_jvp("ATAN", np.nan)),
    Mutant("swapped arguments", "MUL", ("reverse",), lambda: mutated("MUL", jvp=_swapped)),
    Mutant(
        "lost accumulation",
        "TAP",
        ("reverse", "forward"),
        lambda: patched(Cotangents, "add", _lost),
    ),
    Mutant(
        "missing unbroadcast",
        "ADD",
        ("reverse", "forward"),
        lambda: mutated("BROADCAST", transpose=_no_unbroadcast),
    ),
    Mutant(
        "mean in place of the sum of a broadcast",
        "ADD",
        ("reverse", "forward"),
        lambda: mutated("BROADCAST", transpose=_mean_unbroadcast),
    ),
    Mutant(
        "matmul gradient not transposed",
        "MATMUL",
        ("reverse", "forward"),
        lambda: mutated("MATMUL", transpose=_untransposed_matmul),
    ),
    Mutant(
        "flip pulled back by the identity",
        "REVERSE",
        ("reverse", "forward"),
        lambda: mutated("REVERSE", transpose=_unflipped),
    ),
    Mutant(
        "transpose along the wrong axis",
        "CUMSUM",
        ("reverse", "forward"),
        lambda: mutated("CUMSUM", transpose=_first_axis),
    ),
    Mutant("jvp right, vjp wrong", "SOFTMAX", ("reverse", "forward"), _wrong_vjp),
    Mutant(
        "second derivative alone wrong", "EXP", ("second",), lambda: mutated("EXP", jvp=_detached)
    ),
    Mutant(
        "stale batch axis",
        "SUM",
        ("vmap",),
        lambda: mutated("SUM", batch=batch_leading("SUM")),
    ),
    Mutant("batching rule loops", "SIN", ("vmap",), lambda: mutated("SIN", batch=_looping)),
    Mutant("batch repeats row 0", "COS", ("vmap",), lambda: mutated("COS", batch=_first_row)),
    Mutant("batch axes not aligned", "MUL", ("vmap",), lambda: mutated("MUL", batch=_unaligned)),
    Mutant(
        "sigmoid derivative y (1 - y)",
        "SIGMOID",
        ("exact",),
        lambda: mutated("SIGMOID", jvp=_cancelling_sigmoid),
    ),
    Mutant(
        "softmax without a shift",
        "SOFTMAX",
        ("f32", "exact"),
        lambda: mutated("SOFTMAX", body=_overflowing_softmax),
    ),
    Mutant(
        "spec rule widens",
        "TANH",
        ("f32",),
        lambda: mutated("TANH", spec=lambda x, **_: x.with_dtype(np.float64)),
    ),
    Mutant(
        "spec rule narrows",
        "TANH",
        ("exact",),
        lambda: mutated("TANH", spec=lambda x, **_: x.with_dtype(np.float32)),
    ),
    Mutant(
        "spec rule of a wrong shape",
        "TANH",
        ("shapes",),
        lambda: mutated("TANH", spec=lambda x, **_: x.with_shape((*x.shape, 1))),
    ),
    Mutant("argument modified", "NEG", ("shapes",), lambda: mutated("NEG", impl=_in_place)),
    Mutant(
        "NaN returned",
        "EXP",
        ("reverse", "forward"),
        lambda: mutated("EXP", impl=_nan_at_one_point),
    ),
    Mutant(
        "another convention at a kink",
        "RELU",
        ("special",),
        lambda: mutated("RELU", body=_tangent_at_kink),
    ),
    Mutant(
        "tie gradient not conserved",
        "MAX",
        ("special", "reverse"),
        lambda: mutated("MAX", jvp=_tie_to_all),
    ),
    Mutant(
        "lowered to another jax function",
        "COS",
        ("emit_f32", "emit_f64", "device_f32", "device_f64"),
        lambda: mutated("COS", jax="jnp.sin"),
    ),
    Mutant(
        "printed as another function",
        "TANH",
        ("render",),
        lambda: mutated("TANH", template="np.sin({0})"),
    ),
    *(
        Mutant(f"unselected pole behind {kind}", "WHERE", ("reverse", "forward"), _plain(kind))
        for kind in ("MUL", "DIV", "MATMUL", "DOT_GENERAL", "CONV", "CONVOLVE", "SOLVE")
    ),
    *(
        Mutant(f"unselected pole inside {kind}", "WHERE", ("reverse",), _unprotected(kind))
        for kind in ("SCAN", "IF", "CHECKPOINT")
    ),
    Mutant("executed as another reduction", "SUM", ("execute",), lambda: executed_as("SUM", "MAX")),
    Mutant("executed as a quotient", "STRONG_MUL", ("execute",), _divided),
)
