"""Functions of a module run by the StableHLO reference interpreter, many together."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autodiff.lower import mlir
from autodiff.lower.child import CHILD, ChildError, ChildTimeout
from autodiff.lower.stablehlo import INTERPRETED, UnsupportedError
from checks import kept

Array = np.ndarray[Any, Any]
TIMEOUT = 120.0
# name of a function and the arrays to call it on
Call = tuple[str, Sequence[Array]]


@dataclasses.dataclass(frozen=True)
class Emitted:
    """What a program's StableHLO holds and gives.

    Attributes:
        types: floating element types of its tensors ("f32"; none for an integer program).
        ops: names of its operations, after chlo operations were rewritten.
        results: the flat results, or the UnsupportedError that says why the reference interpreter
            has none.
    """

    types: frozenset[str]
    ops: frozenset[str]
    results: tuple[Array, ...] | Exception


def interpret(
    functions: Mapping[str, mlir.Function], calls: Sequence[Call], key: str | None
) -> list[Emitted]:
    """What each call gives. Functions with operations that the interpreter lacks are not tried.

    `key` addresses the module in the cache: results are kept by it and the arguments, but never
    where a run took too long, since another may not.
    """
    if key is not None:
        arrays = [a for _, group in calls for a in group]
        names = "-".join(name for name, _ in calls)
        key = f"{key[:32]}-{kept.arrays_digest([*arrays, np.array(names)])[:32]}"
    found = kept.load(key)
    if found is None:
        reasons = [_lacking(functions, name) for name, _ in calls]
        able = [i for i, reason in enumerate(reasons) if reason is None]
        done = dict(zip(able, _together(functions, [calls[i] for i in able]), strict=True))
        found = [done.get(i, reason) for i, reason in enumerate(reasons)]
        if not any(isinstance(r, ChildTimeout) for r in found):
            kept.save(key, [str(r) if isinstance(r, ChildError) else r for r in found])
    return [
        Emitted(functions[name].types, functions[name].ops, _answer(functions[name], result))
        for (name, _), result in zip(calls, found, strict=True)
    ]


def _lacking(functions: Mapping[str, mlir.Function], name: str) -> str | None:
    """Why the interpreter is not tried on a function: an op would end its process."""
    found = functions[name]
    missing = sorted(found.ops - INTERPRETED)
    if missing:
        return f"it lacks {', '.join(missing)}"
    single = any("complex<f32>" in functions[c].source for c in found.called)
    if "stablehlo.fft" in found.ops and single:
        return "its Fourier transform takes float64 alone"
    if any(_odd_inverse(functions[c].source) for c in found.called):
        return "its inverse transform to an odd length of real values is wrong"
    if any(_empty_product(functions[c].source) for c in found.called):
        return "a product that contracts an axis of extent 0 ends its process"
    return None


def _empty_product(source: str) -> bool:
    """Whether a text holds a product of empty operands that has entries: jaxlib 0.10's interpreter
    reads an entry of the operands there, and ends its process.
    """
    return any(
        "0x" in _SIZES.findall(takes) and "0x" not in _SIZES.findall(gives)
        for takes, gives in _PRODUCT.findall(source)
    )


def _odd_inverse(source: str) -> bool:
    """Whether a text holds an IRFFT of odd length: jaxlib 0.10's interpreter gives other numbers
    than XLA and NumPy there (and ends its process at some shapes).
    """
    return any(int(n) % 2 for n in _IRFFT.findall(source))


_PRODUCT = re.compile(r"stablehlo\.dot_general .* : \((.*)\) -> (.*)")
_SIZES = re.compile(r"(?<=[<x])\d+x")
_IRFFT = re.compile(r"type = *IRFFT, length = \[(?:\d+, )*(\d+)\]")


def _together(
    functions: Mapping[str, mlir.Function], calls: Sequence[Call]
) -> list[tuple[Array, ...] | ChildError]:
    """Results of calls in one module, of each alone where it does not run: a process that ends
    takes as long to start again as some hundred calls.
    """
    if not calls:
        return []
    names = [name for name, _ in calls]
    try:
        text = mlir.calling(functions, names)
        values = iter(CHILD.run(text, [a for _, group in calls for a in group], TIMEOUT))
    except ChildError as error:
        if len(calls) == 1:
            return [error]
        return [result for call in calls for result in _together(functions, [call])]
    counts = [mlir.result_count(functions[name]) for name in names]
    return [tuple(next(values) for _ in range(n)) for n in counts]


def _answer(function: mlir.Function, result: Any) -> tuple[Array, ...] | UnsupportedError:
    if isinstance(result, tuple):
        return result
    missing = tuple(sorted(function.ops - INTERPRETED))
    return UnsupportedError(
        f"the StableHLO reference interpreter does not run {', '.join(missing) or 'this module'}",
        str(result),
        "it is run by XLA in its stead",
        ops=missing,
        reason=str(result),
    )
