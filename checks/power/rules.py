"""The rules of an op, as its record gives them or as the engine derives them; calls of them.

A rule that a record lacks is derived as the engine would: the jvp and the batching rule of a
composite from its body, a vjp by transposing the jvp. So every op has rules that can be wrong.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff.batch import batch_eval
from autodiff.forward import jvp_eval
from autodiff.op import Op, body_program
from autodiff.program import Program, Spec
from autodiff.reverse import Undefined, vjp_eval
from autodiff.trace import bind, program_of, spec_of

Rule = Callable[..., Any]
NAMES = ("jvp", "transpose", "vjp", "batch")


def rule_of(op: Op, name: str) -> Rule | None:
    """The rule of that name: the record's own, or derived; None where the op has none."""
    own: Rule | None = getattr(op, name)
    if own is not None:
        return own
    if name == "batch":
        return functools.partial(_derived_batch, op) if op.body is not None else None
    if op.derivative != "rule" or op.control or name == "transpose":
        return None
    if name == "jvp":
        return functools.partial(_derived_jvp, op) if op.body is not None else None
    # a linear op is pulled back by its transpose: a vjp of its own would say the same
    return functools.partial(_derived_vjp, op) if op.transpose is None else None


def rules_of(op: Op) -> dict[str, Rule]:
    """Every rule of the op by name."""
    found = {name: rule_of(op, name) for name in NAMES}
    return {name: rule for name, rule in found.items() if rule is not None}


def is_own(op: Op, name: str) -> bool:
    """Whether the record gives the rule itself."""
    return getattr(op, name) is not None


def _derived_jvp(op: Op, primals: Any, tangents: Any, outputs: Any, **params: Any) -> Any:
    del outputs
    body = body_program(op, tuple(spec_of(p) for p in primals), params)
    dots = jvp_eval(body, primals, tangents)[1]
    return dots if op.multiple else dots[0]


def _derived_vjp(op: Op, cotangents: Any, primals: Any, outputs: Any, **params: Any) -> Any:
    del outputs
    single = _single(op, tuple(spec_of(p) for p in primals), tuple(sorted(params.items())))
    cts = cotangents if op.multiple else (cotangents,)
    return vjp_eval(single, primals)[1](cts)


@functools.lru_cache(maxsize=256)
def _single(op: Op, specs: tuple[Spec, ...], params: tuple[tuple[str, Any], ...]) -> Program:
    """The program of one call of the op."""
    return program_of(lambda *a: bind(op, *a, **dict(params)), specs, op.kind.lower())


def _derived_batch(op: Op, size: int, args: Any, batched: Any, **params: Any) -> Any:
    specs = [spec_of(a) for a in args]
    rows = [s.with_shape(s.shape[1:]) if b else s for s, b in zip(specs, batched, strict=True)]
    outs, flags = batch_eval(body_program(op, tuple(rows), params), size, args, batched)
    return (outs, flags) if op.multiple else (outs[0], flags[0])


# --- results -------------------------------------------------------------------------------


def results_of(op: Op, name: str, result: Any) -> tuple[Any, ...]:
    """What a rule computed, flat: tangents, cotangents (None where zero) or batched values."""
    if name == "batch":
        return tuple(result[0]) if op.multiple else (result[0],)
    if name == "jvp":
        if op.control:
            return tuple(result[1])
        return tuple(result) if op.multiple else (result,)
    return tuple(result)


def with_results(op: Op, name: str, result: Any, new: Sequence[Any]) -> Any:
    """A rule's result with other tangents, cotangents or values in it."""
    if name == "batch":
        return (tuple(new) if op.multiple else new[0]), result[1]
    if name == "jvp":
        if op.control:
            return result[0], tuple(new)
        return tuple(new) if op.multiple else new[0]
    return tuple(new)


# --- calls ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Call:
    """One call of a rule on arrays: at which sample it came up, with what, and what is right."""

    rule: str
    sample: str
    args: tuple[Any, ...]
    params: dict[str, Any]
    right: tuple[Any, ...]

    @property
    def size(self) -> int:
        """How many numbers went in."""
        return sum(np.size(leaf) for leaf in flat_values(self.args))


def flat_values(value: Any) -> list[Any]:
    """The arrays and traced values in nested tuples; None, specs and undefined operands apart."""
    if isinstance(value, tuple | list):
        return [leaf for v in value for leaf in flat_values(v)]
    if value is None or isinstance(value, Undefined | bool | int | str):
        return []
    return [value]


@dataclasses.dataclass(frozen=True, eq=False)
class FlatCall:
    """A rule call as a function of flat values: `values[known:]` are those it is linear in.

    `apply(values)` is the rule's whole result for such values; `key` tells calls apart that trace
    to different programs.
    """

    key: Any
    values: list[Any]
    known: int
    apply: Callable[[Sequence[Any]], Any]


def flatten(name: str, rule: Rule, args: Any, params: dict[str, Any]) -> FlatCall:
    """A call of a rule (not of a control op) as a function of flat values."""
    known, linear, call = _parts(name, rule, args, params)
    first, second = flat_values(known), flat_values(linear)

    def apply(values: Sequence[Any]) -> Any:
        rest = iter(values)
        return call(_refill(known, rest), *_refill((linear,), rest))

    specs = tuple(spec_of(v) for v in (*first, *second))
    static = (args[0], tuple(args[2])) if name == "batch" else None
    key = (specs, _form(known), _form(linear), static, tuple(sorted(params.items())))
    return FlatCall(key, [*first, *second], len(first), apply)


def _parts(
    name: str, rule: Rule, args: Any, params: dict[str, Any]
) -> tuple[tuple[Any, ...], Any, Callable[[Any, Any], Any]]:
    """The known values of a call, those it is linear in, and the call as a function of both."""
    if name == "jvp":
        primals, tangents, outputs = args
        return (primals, outputs), tangents, lambda k, t: rule(k[0], t, k[1], **params)
    if name == "vjp":
        cotangents, primals, outputs = args
        return (primals, outputs), cotangents, lambda k, ct: rule(ct, k[0], k[1], **params)
    if name == "transpose":
        cotangents, inputs = args
        return (inputs,), cotangents, lambda k, ct: rule(ct, k[0], **params)
    size, operands, batched = args
    return (operands,), (), lambda k, _: rule(size, k[0], batched, **params)


def _refill(structure: Any, values: Any) -> Any:
    if isinstance(structure, tuple | list):
        return tuple(_refill(part, values) for part in structure)
    return next(values) if flat_values(structure) else structure


def _form(structure: Any) -> Any:
    if isinstance(structure, tuple | list):
        return tuple(_form(part) for part in structure)
    if isinstance(structure, Undefined):
        return structure.spec
    return bool(flat_values(structure))
