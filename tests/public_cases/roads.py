"""The roads a value or a derivative can be had by; a case must hold on each of them."""

from collections.abc import Callable
from typing import Any

import numpy as np

import autodiff as ad
from tests.public_cases.cases import right

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
CT = 0.75  # a cotangent or tangent that is not one; exact to multiply and divide by


def wide(args: tuple[Any, ...]) -> list[Array]:
    """Arguments as new arrays; lists and floats become float64."""
    return [np.array(a, dtype=getattr(a, "dtype", np.float64)) for a in args]


def narrowed(args: list[Array]) -> list[Array]:
    """Arguments in float32."""
    return [a.astype(np.float32) if a.dtype == np.float64 else a for a in args]


def tripled(args: list[Array]) -> list[Array]:
    """A batch of three copies."""
    return [np.stack([a, a, a]) for a in args]


def values(f: Function, *given: Any, narrow: bool = True) -> dict[str, Any]:
    """The value of one array, by every road; those whose names hold "float32" are narrow."""
    args = wide(given)
    with np.errstate(all="ignore"):
        found = {
            "called": f(*args),
            "interpreted": ad.interpret(ad.trace(f, *args), *args),
            "compiled": ad.compile(f)(*args),
            "mapped": _same(ad.vmap(f)(*tripled(args))),
        }
        if narrow:
            found["float32"] = ad.interpret(ad.trace(f, *args), *args, precision="float32")
            found["float32, native"] = f(*narrowed(args))
    return found


def _pulled(f: Function, args: list[Array], argnum: int) -> Array:
    """Rows of the Jacobian, one pullback each."""
    y, pullback = ad.vjp(f, *args)
    rows = []
    for index in np.ndindex(np.shape(y)):
        ct = np.zeros_like(y)
        ct[index] = CT
        rows.append(pullback(ct)[argnum] / CT)
    return np.reshape(rows, (*np.shape(y), *args[argnum].shape))


def _pushed(f: Function, args: list[Array], argnum: int) -> Array:
    """Columns of the Jacobian, one jvp each; the other arguments are held fixed."""
    x = args[argnum]
    columns = []
    for index in np.ndindex(x.shape):
        tangents: list[Any] = [None] * len(args)
        tangents[argnum] = np.zeros_like(x)
        tangents[argnum][index] = CT
        columns.append(ad.jvp(f, tuple(args), tuple(tangents))[1] / CT)
    rows = np.stack(columns, axis=-1)
    return np.reshape(rows, (*rows.shape[:-1], *x.shape))


def slopes(f: Function, *given: Any, argnum: int = 0, narrow: bool = True) -> dict[str, Array]:
    """d f / d args[argnum] by every road, as jacrev shapes it."""
    args = wide(given)
    reverse, forward = ad.jacrev(f, argnum), ad.jacfwd(f, argnum)
    with np.errstate(all="ignore"):
        found = {
            "reverse": _pulled(f, args, argnum),
            "forward": _pushed(f, args, argnum),
            "reverse, mapped": _same(ad.vmap(reverse)(*tripled(args))),
            "forward, mapped": _same(ad.vmap(forward)(*tripled(args))),
            "reverse, compiled": ad.compile(reverse)(*args),
            "forward, compiled": ad.compile(forward)(*args),
        }
        if narrow:
            program = ad.trace(reverse, *args)
            found["reverse, float32"] = ad.interpret(program, *args, precision="float32")
            found["reverse, float32, native"] = reverse(*narrowed(args))
            found["forward, float32, native"] = forward(*narrowed(args))
    return found


def second(f: Function, *given: Any, first: int = 0, then: int = 0) -> dict[str, Array]:
    """d2 f / d args[first] d args[then], by the four pairs of modes."""
    args = wide(given)
    modes = {"reverse": ad.jacrev, "forward": ad.jacfwd}
    with np.errstate(all="ignore"):
        return {
            f"{after} over {before}": modes[after](modes[before](f, first), then)(*args)
            for after in modes
            for before in modes
        }


def _same(rows: Array) -> Array:
    """The last of rows that must be equal."""
    for row in rows[:-1]:
        np.testing.assert_array_equal(row, rows[-1])
    return rows[-1]


def hold(found: dict[str, Any], case: str, what: str) -> None:
    """Fail unless every road gives the right answer; all that do not are named."""
    failures = []
    for road, got in found.items():
        try:
            right(case, what).holds(got, road, narrow="float32" in road)
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, "\n".join(failures)
