"""Public functions called with what they cannot take: three lines each, of the engine's own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import AutodiffError, OpError, UnknownNameError
from autodiff.trace import bind

X = np.ones(3)
TAKERS: dict[str, Callable[[Any], Any]] = {
    "trace": lambda f: ad.trace(f, X),
    "jvp": lambda f: ad.jvp(f, (X,), (X,)),
    "vjp": lambda f: ad.vjp(f, X),
    "linearize": lambda f: ad.linearize(f, X),
    "grad": ad.grad,
    "value_and_grad": ad.value_and_grad,
    "jacfwd": ad.jacfwd,
    "jacrev": ad.jacrev,
    "hessian": ad.hessian,
    "hvp": lambda f: ad.hvp(f, (X,), (X,)),
    "vmap": ad.vmap,
    "compile": ad.compile,
    "checkpoint": ad.checkpoint,
    "custom_jvp": ad.custom_jvp,
    "custom_vjp": ad.custom_vjp,
    "scan": lambda f: ad.scan(f, 1.0, X),
    "cond": lambda f: ad.cond(True, f, lambda: 1.0),
    "while_loop": lambda f: ad.while_loop(lambda c: c < 3, f, 1.0),
}


@pytest.mark.parametrize("value", [3, None, X, "f"], ids=["int", "None", "array", "str"])
@pytest.mark.parametrize("name", TAKERS)
def test_what_is_no_function_is_refused(name: str, value: Any):
    with pytest.raises(AutodiffError) as caught:
        TAKERS[name](value)
    what, where, fix = str(caught.value).splitlines()
    assert what.startswith(f"{name} takes a function, got ")
    assert what.endswith(f" of type {type(value).__name__}")
    assert "test_bad_calls.py" in where
    assert fix == f"pass a function of arrays: {name}(lambda x: ...)"


WRONG: Any = "x"
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "cond of an array": (
        lambda: ad.cond(X, lambda: 1.0, lambda: 2.0),
        "the predicate of a cond is bool[3], not a bool scalar",
    ),
    "cond of a bool array": (
        lambda: ad.cond(X > 0, lambda: 1.0, lambda: 2.0),
        "the predicate of a cond is bool[3], not a bool scalar",
    ),
    "empty tap": (lambda: ad.tap("", X), "tap name '' is not a non-empty string"),
    "tap of a number": (lambda: ad.tap(3, X), "tap name 3 is not a non-empty string"),
    "unknown op function": (lambda: ops.sofmax, "autodiff.ops has no function 'sofmax'"),
    "unknown function": (lambda: ad.jacfdw, "autodiff has no function 'jacfdw'"),
    "op named as a transform": (lambda: ad.erfinv, "autodiff has no function 'erfinv'"),
    "unknown parameter": (
        lambda: bind("SUM", X, ax=0),
        "op SUM has no parameter 'ax'",
    ),
    "unknown parameter of a traced value": (
        lambda: ad.trace(lambda x: bind("SUM", x, axis=(0,), keepdim=True), X),
        "op SUM has no parameter 'keepdim'",
    ),
    "missing parameter": (
        lambda: ad.trace(lambda x: bind("SUM", x), X),
        "op SUM was not given all its parameters",
    ),
    "unknown op": (lambda: bind("SUMM", X), "unknown op 'SUMM'"),
    "primals that are no tuple": (lambda: ad.jvp(np.sin, X, X), "primals is a ndarray"),
    "argnums of another type": (lambda: ad.grad(np.sum, WRONG)(X), "argnums='x' of 'sum' is no"),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_have_three_lines(name: str):
    call, start = BAD[name]
    with pytest.raises(AutodiffError) as caught:
        call()
    what, where, fix = str(caught.value).splitlines()
    assert what.startswith(start), what
    assert where and fix


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'softmax'"):
        _ = ops.sofmax
    with pytest.raises(UnknownNameError, match="did you mean 'jacfwd'"):
        _ = ad.jacfdw
    with pytest.raises(UnknownNameError, match="it is an op: autodiff.ops.erfinv"):
        _ = ad.erfinv
    with pytest.raises(OpError, match="did you mean 'keepdims'"):
        ad.trace(lambda x: bind("SUM", x, axis=(0,), keepdim=True), X)
    assert not hasattr(ops, "sofmax") and not hasattr(ad, "__wrapped__")
