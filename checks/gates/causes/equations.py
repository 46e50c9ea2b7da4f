"""What one equation of a program may be otherwise: another parameter, op, operand, or not there."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autodiff.op import Op, get
from autodiff.program import Equation, Literal
from autodiff.trace import bind
from checks.gates.causes.trials import masks, scalar_choices
from checks.gates.formats.stored import Array

Compute = Callable[[list[Any]], Sequence[Any]]  # operands to results

_ACTIVATIONS = ("RELU", "GELU", "SILU", "SIGMOID", "TANH")  # one operand, no parameters
_REDUCTIONS = ("SUM", "WIDE_SUM", "MEAN", "MAX")
_ORDERED = ("SUB", "DIV", "MATMUL", "POW", "ATAN2")  # operands that do not commute
_ROPE_BASES = (10000.0, 500000.0, 1000000.0)  # in use in published models
_ROUNDED = ("RESHAPE", "CAST", "COPY", "TAP", "STOP_GRADIENT", "BROADCAST", "EXPAND", "GUARD")


@dataclass(frozen=True, slots=True)
class Alternative:
    """One equation computed otherwise.

    Arguments:
        name: of the cause.
        text: what is other.
        compute: the results of the operands.
    """

    name: str
    text: str
    compute: Compute


def alternatives(eq: Equation) -> Iterator[Alternative]:
    """Yield what an equation may be otherwise, results of the same shapes alone."""
    if eq.op.kind == "GUARD":
        return
    yield from _parameters(eq)
    yield from _ops(eq)
    yield from _operands(eq)
    yield from _left_out(eq)


def computed(op: Op, params: Mapping[str, Any]) -> Compute:
    """Return the op as a function of its operands."""

    def compute(values: list[Any]) -> Sequence[Any]:
        found = bind(op, *values, **params)
        return found if op.multiple else (found,)

    return compute


def _parameters(eq: Equation) -> Iterator[Alternative]:
    kind = eq.op.kind
    for key, value in eq.params.items():
        for name, other in _choices(eq, key, value):
            text = f"{kind} with {key} = {other!r} instead of {value!r}"
            yield Alternative(name, text, computed(eq.op, {**eq.params, key: other}))


def _choices(eq: Equation, key: str, value: Any) -> list[tuple[str, Any]]:
    if key == "approximate":
        return [("activation", {"tanh": "none", "none": "tanh"}[value])]
    if key == "eps":
        return scalar_choices(float(value))
    if key == "interleaved":
        return [("rope pairing", not value)]
    if key == "is_causal":
        return [("wrong mask", not value)]
    if key == "ddof":
        return [("biased variance", 1 - value)] if value in (0, 1) else []
    if key == "scale" and isinstance(value, float):
        others = (1.0, value * value, value**0.5) if value > 0 else ()
        return [("scale", v) for v in others if v != value]
    if key == "base" and eq.op.kind == "ROPE":
        return [("rope base", b) for b in _ROPE_BASES if b != value]
    if key == "axis" and _shaped_alike(eq):
        ndim = eq.outputs[0].spec.ndim
        axes = [(n,) if isinstance(value, tuple) else n for n in range(ndim)]
        return [("wrong axis", a) for a in axes if a != value]
    return []


def _shaped_alike(eq: Equation) -> bool:
    """Whether one operand and one result have the same shape."""
    return len(eq.outputs) == 1 and eq.inputs[0].spec.shape == eq.outputs[0].spec.shape


def _ops(eq: Equation) -> Iterator[Alternative]:
    kind, found = eq.op.kind, list[tuple[str, str, Mapping[str, Any]]]()
    if kind in _ACTIVATIONS:
        found += [("activation", k, {}) for k in _ACTIVATIONS if k not in (kind, "GELU")]
        if kind != "GELU":
            found += [("activation", "GELU", {"approximate": a}) for a in ("none", "tanh")]
    if kind in _REDUCTIONS:
        found += [("reduction", k, eq.params) for k in _REDUCTIONS if k != kind]
    if kind == "LAYERNORM" and len(eq.inputs) < 3:
        found.append(("norm", "RMSNORM", eq.params))
    if kind == "RMSNORM":
        found.append(("norm", "LAYERNORM", eq.params))
    for name, other, params in found:
        text = (
            f"{other}{' (tanh)' if params.get('approximate') == 'tanh' else ''} instead of {kind}"
        )
        yield Alternative(name, text, computed(get(other), params))


def _operands(eq: Equation) -> Iterator[Alternative]:
    kind, plain = eq.op.kind, computed(eq.op, eq.params)
    for n, atom in enumerate(eq.inputs):
        value = atom.value if isinstance(atom, Literal) else None
        for name, text, change in _operand_changes(eq, n, value):
            yield Alternative(name, f"{text} in {kind}", _changing(plain, n, change))
    specs = [a.spec for a in eq.inputs]
    if kind in (*_ORDERED, "CONCAT") and len(specs) == 2 and specs[0] == specs[1]:
        text = f"the operands of {kind} exchanged"
        yield Alternative("operand order", text, lambda v: plain(v[::-1]))
    outs = [v.spec for v in eq.outputs]
    if len(outs) > 1 and len(set(outs)) == 1:
        text = f"the parts of {kind} in the other order"
        yield Alternative("operand order", text, lambda v: list(plain(v))[::-1])


def _operand_changes(
    eq: Equation, n: int, value: Array | None
) -> Iterator[tuple[str, str, Callable[[Any], Any]]]:
    spec = eq.inputs[n].spec
    if eq.op.kind == "ROPE" and n == 1:
        for by in (1, -1):
            yield "positions off by one", f"positions {by:+d}", _moved(by)
    elif spec.dtype.kind == "b" and spec.ndim:
        for text, change in masks(spec.shape):
            yield "wrong mask", f"the mask {text}", change
    elif value is not None and value.ndim == 2 and value.shape[0] == value.shape[1] > 1:
        size = " x ".join(map(str, value.shape))
        yield "transposed weight", f"operand {n}, a constant of {size}, transposed", _transposed
    if value is not None and value.size == 1 and value.dtype.kind == "f" and value.item():
        item = value.item()
        for name, other in scalar_choices(item):
            changed = np.asarray(other, value.dtype)
            yield name, f"{other!r} instead of {item!r}", _constant(changed)


def _moved(by: int) -> Callable[[Any], Any]:
    return lambda x: x + by


def _transposed(x: Any) -> Any:
    return x.T


def _constant(value: Array) -> Callable[[Any], Any]:
    return lambda x: value


def _operand(n: int) -> Compute:
    return lambda values: (values[n],)


def _changing(plain: Compute, n: int, change: Callable[[Any], Any]) -> Compute:
    return lambda values: plain([change(v) if i == n else v for i, v in enumerate(values)])


def _left_out(eq: Equation) -> Iterator[Alternative]:
    """The equation not there: its result is one of its operands. So a bias, a residual, a scale, a
    norm, an activation or a rope that one side forgot.
    """
    if len(eq.outputs) != 1 or eq.op.kind in _ROUNDED:
        return
    several = len(eq.inputs) > 1
    for n, atom in enumerate(eq.inputs):
        if isinstance(atom, Literal) or atom.spec != eq.outputs[0].spec:
            continue
        text = f"{eq.op.kind} left out"
        text += f", its operand {n} kept" if several else ""
        yield Alternative("left out", text, _operand(n))
