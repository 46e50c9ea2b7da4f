"""Plain NumPy functions, differentiated by `autodiff`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import autodiff as ad
from autodiff.errors import GuardError, MissingRuleError, TracerError
from autodiff.interpret import run
from checks.gradients.framework import Flat, Framework

Array = np.ndarray[Any, Any]


def _owns(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic | int | float | complex | bool)


def _native(values: Array, like: Any) -> Array:
    del like
    return np.array(values, order="C")


def _listed(flat: Flat) -> Callable[..., list[Any]]:
    def function(*arrays: Any) -> list[Any]:
        return list(flat(arrays))

    return function


def _vjp(
    flat: Flat, primals: Sequence[Any]
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    outs, pull = ad.vjp(_listed(flat), *primals)
    return outs, lambda cotangents: list(pull(list(cotangents)))


def _jvp(
    flat: Flat, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    outs, dots = ad.jvp(_listed(flat), tuple(primals), tuple(tangents))
    return list(outs), list(dots)


def _vmap(flat: Flat, in_axes: Sequence[int | None]) -> Flat:
    mapped = ad.vmap(_listed(flat), tuple(in_axes))
    return lambda arrays: list(mapped(*arrays))


def _replay(flat: Flat, arrays: Sequence[Any]) -> Flat:
    """The traced program run without tracing anew; a function with Python branches as it is."""
    program = ad.trace(_listed(flat), *arrays)
    if any(eq.op.kind == "GUARD" for eq in program.equations):
        return flat
    return lambda points: list(run(program, points))


def _hot(flat: Flat, arrays: Sequence[Any]) -> Flat:
    """The executor's program; a function with Python branches as it is."""
    if any(eq.op.kind == "GUARD" for eq in ad.trace(_listed(flat), *arrays).equations):
        return flat
    compiled = ad.compile(_listed(flat))
    return lambda points: list(compiled(*points))


def _inside(flat: Flat, arrays: Sequence[Any]) -> set[str]:
    """The dtypes of what a traced program computes."""
    equations = ad.trace(_listed(flat), *arrays).equations
    return {v.spec.dtype.name for eq in equations for v in eq.outputs}


FRAMEWORK = Framework(
    name="numpy",
    owns=_owns,
    native=_native,
    numpy=np.asarray,
    vjp=_vjp,
    jvp=_jvp,
    vmap=_vmap,
    replay=_replay,
    hot=_hot,
    inside=_inside,
    reentrant=True,
    undefined=(MissingRuleError, TracerError, GuardError),
)
