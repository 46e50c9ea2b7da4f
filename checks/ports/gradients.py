"""Cotangents at the tapped points of a program, as the gradient hooks of a framework give them.

    found = gradients(lambda weights: loss(weights, config, tokens), weights)
    found.put(d)  # `grad.NAME` of every `ad.tap(NAME, x)`, `grad.param.NAME` of every weight

The cotangent at a tap is that of a zero added to what it returns: all uses downstream count.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import autodiff as ad
from autodiff.forward import is_inexact
from autodiff.program import Equation, Program, Var
from autodiff.trace import bind

if TYPE_CHECKING:
    from checks.gates.capture.dump import Dump


@dataclass(frozen=True, slots=True)
class Gradients:
    """One forward and backward pass.

    Arguments:
        value: of the function.
        taps: cotangent by tap, "name#1" for the second of one name; the last tap first, as backward
            meets them.
        params: cotangent by weight, in the weights' order.
    """

    value: Any
    taps: Mapping[str, Any]
    params: Mapping[str, Any]

    def put(self, dump: "Dump", params: bool = True) -> None:
        """Put them into an open dump, under the names that `Dump.grads` gives to PyTorch's."""
        for key, x_bar in self.taps.items():
            name, _, call = key.partition("#")
            dump.put(f"grad.{name}", x_bar, call=int(call or 0))
        for name, x_bar in self.params.items() if params else ():
            dump.put(f"grad.param.{name}", x_bar)


def gradients(
    f: Callable[[Any], Any], weights: Mapping[str, Any], cotangent: Any = 1.0
) -> Gradients:
    """Return the value of `f(weights)`, and the cotangents of its taps and of its weights.

    Taps inside `ad.scan`, `ad.while_loop` and `ad.cond` have a cotangent per step and are left out.

    Arguments: a function of a flat table of weights, with one array as its result; the weights;
    the result's cotangent, which broadcasts to it.
    """
    names = list(weights)
    program = ad.trace(lambda *leaves: f(dict(zip(names, leaves, strict=True))), *weights.values())
    points = _points(program)
    zeros = [np.zeros(v.spec.shape, v.spec.dtype) for v in points.values()]
    y, pullback = ad.vjp(
        lambda added, leaves: _run(program, points, added, leaves), zeros, list(weights.values())
    )
    y_bar = np.broadcast_to(np.asarray(cotangent, y.dtype), y.shape)
    added_bar, weights_bar = pullback(y_bar)
    taps = dict(zip(points, added_bar, strict=True))
    params = dict(zip(names, weights_bar, strict=True))
    return Gradients(y, dict(reversed(taps.items())), params)


def _points(program: Program) -> dict[str, Var]:
    """What taps return, by name and call, in the order of execution; where anything uses it."""
    used = {a for eq in program.equations for a in eq.inputs} | set(program.outputs)
    found: dict[str, Var] = {}
    calls: dict[str, int] = {}
    for eq in program.equations:
        if eq.op.kind == "TAP" and is_inexact(eq.outputs[0].spec.dtype):
            name = eq.params["name"]
            n = calls.get(name, 0)
            calls[name] = n + 1
            if eq.outputs[0] in used:
                found[f"{name}#{n}" if n else name] = eq.outputs[0]
    return found


def _run(
    program: Program, points: Mapping[str, Var], added: Sequence[Any], leaves: Sequence[Any]
) -> Any:
    """The program, with a value added to what each tap returns."""
    env: dict[Var, Any] = dict(zip(program.inputs, leaves, strict=True))
    at = dict(zip(points.values(), added, strict=True))
    for eq in program.equations:
        for var, value in zip(eq.outputs, _results(eq, env), strict=True):
            env[var] = value + at[var] if var in at else value
    (result,) = program.outputs
    return env[result] if isinstance(result, Var) else result.value


def _results(eq: Equation, env: Mapping[Var, Any]) -> tuple[Any, ...]:
    values = [env[a] if isinstance(a, Var) else a.value for a in eq.inputs]
    result = bind(eq.op, *values, **eq.params)
    return tuple(result) if eq.op.multiple else (result,)
