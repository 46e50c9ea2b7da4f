"""Rules of single equations on concrete arrays, kept as replayed programs where used again.

A rule applied op by op costs several times its arithmetic on small arrays; tracing it once costs
more than one use. So the first uses at given specs go by rule, later ones by the replay.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff.native import Replay
from autodiff.program import Equation, Spec
from autodiff.trace import find_trace, program_of

KEPT_FROM = 3  # uses at the same specs before a rule is kept

Flat = Callable[..., Sequence[Any]]


class _Kept:
    """What is kept of one rule: its uses, then the replay and which of its results are there."""

    __slots__ = ("replay", "returned", "uses")

    def __init__(self) -> None:
        self.uses = 0
        self.replay: Replay | None = None
        self.returned: tuple[bool, ...] = ()


@functools.lru_cache(maxsize=8192)
def _kept(*key: Any) -> _Kept:
    return _Kept()


def replayed(
    rule: str, eq: Equation, flags: tuple[Any, ...], args: Sequence[Any], flat: Flat
) -> tuple[Any, ...] | None:
    """The results of a rule by its replay; None where it has to be applied as it is.

    Arguments:
        rule: which rule of the op; with `flags` and the equation's specs it decides everything.
        eq: the equation.
        args: what the rule is applied to, no None among it.
        flat: the rule as a function of `args`; None stands for a result that is zero.

    A traced argument, a parameter without a hash, and the first uses have no replay.
    """
    if find_trace(args) is not None:
        return None
    specs = tuple([a.spec for a in (*eq.inputs, *eq.outputs)])
    # 1, 1.0 and True are equal: their types keep them apart
    params = (*eq.params.items(), *map(type, eq.params.values())) if eq.params else ()
    try:
        kept = _kept(rule, eq.op, specs, params, flags)
    except TypeError:
        return None
    kept.uses += 1
    if kept.uses < KEPT_FROM:
        return None
    arrays = [a if type(a) is np.ndarray else np.asarray(a) for a in args]
    if kept.replay is None:
        _keep(kept, f"{rule}_{eq.op.kind.lower()}", arrays, flat)
        assert kept.replay is not None
    if not kept.replay.takes(arrays):
        return None
    found = iter(kept.replay(arrays))
    return tuple([next(found) if r else None for r in kept.returned])


def _keep(kept: _Kept, name: str, arrays: Sequence[np.ndarray[Any, Any]], flat: Flat) -> None:
    def f(*args: Any) -> tuple[Any, ...]:
        results = flat(*args)
        kept.returned = tuple(r is not None for r in results)
        return tuple(r for r in results if r is not None)

    kept.replay = Replay(program_of(f, [Spec(a.shape, a.dtype) for a in arrays], name=name))
