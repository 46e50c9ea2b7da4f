"""Fan-out in a PyTorch function: the operations that it calls, those in the forward of an
`autograd.Function` too, run again so that the derivatives are PyTorch's own.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from checks.gradients.diagnosis.culprit import described
from checks.gradients.diagnosis.notfinite_torch import is_hidden
from checks.gradients.diagnosis.uses import USES, Use
from checks.gradients.modes import ModeError, UndefinedModeError
from checks.gradients.target import Target, pair

Array = np.ndarray[Any, Any]
Env = dict[int, Any]
CALLS = 2000
OPERATORS = (
    *("add", "sub", "mul", "truediv", "div", "floordiv", "mod", "pow", "matmul"),
    *("and", "or", "xor", "lshift", "rshift"),
)


@dataclasses.dataclass(frozen=True)
class Call:
    """One operation: the function, its arguments with tensors as they were, its results, and the
    user's line.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[Any, ...]
    line: str | None


def uses(
    target: Target, cotangents: Sequence[Array], directions: Sequence[Sequence[Array]]
) -> Iterator[Use]:
    """The uses of every tensor that is read more than once, as `diagnosis.uses` has them."""
    import torch

    points = target.native(target.points)
    calls, outs = _recorded(target, points)
    if calls is None:
        return
    sites = _sites(calls, points)
    like = target.originals[target.positions[0]]
    zeros = [torch.zeros_like(t).requires_grad_() for t, _ in sites]
    more = {place: z for (_, place), z in zip(sites, zeros, strict=True)}

    def every(given: Sequence[Any]) -> list[Any]:
        made = _run(calls, points, given, {})
        return [made[id(t)] for t, _ in sites]

    try:
        env = _run(calls, points, points, more)
        found = [env.get(id(y), y) for y in outs]
        known = [k for k, y in enumerate(found) if y.requires_grad]
        cts = [target.framework.native(cotangents[k], like) for k in known]
        bars = torch.autograd.grad([found[k] for k in known], zeros, cts, allow_unused=True)
        dots = [target.framework.jvp(every, points, target.native(d))[1] for d in directions]
    except (RuntimeError, NotImplementedError, TypeError, ModeError, UndefinedModeError):
        return  # an operation without one of the modes
    paths = {id(p): path for p, path in zip(points, target.point_paths, strict=True)}
    makers = {id(y): c.function for c in calls for y in c.results}
    for k, ((tensor, (n, _)), bar) in enumerate(zip(sites, bars, strict=True)):
        made = getattr(makers.get(id(tensor)), "__name__", "an operation")
        name = paths.get(id(tensor)) or f"the result of {made}"
        if bar is not None:
            through = tuple(
                0.0 if d[k] is None else pair([target.to_numpy(bar)], [target.to_numpy(d[k])])
                for d in dots
            )
            yield Use(name, calls[n].line, through)


def _recorded(target: Target, points: Sequence[Any]) -> tuple[list[Call] | None, list[Any]]:
    """The calls of a function, and its results; None where one of them writes in place."""
    import torch

    calls: list[Call] = []
    whole = True

    class Tape(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal whole
            result = function(*args, **(kwargs or {}))
            made = result if isinstance(result, tuple | list) else (result,)
            written = _writes(getattr(function, "__name__", "")) or "out" in (kwargs or {})
            whole &= not written and len(calls) < CALLS
            if all(isinstance(y, torch.Tensor) for y in made):
                calls.append(Call(function, tuple(args), kwargs or {}, tuple(made), _line()))
            return result

    with torch.no_grad(), Tape():
        outs = [y for y in target.flat(points) if isinstance(y, torch.Tensor)]
    whole &= len(outs) == len(target.centre)
    return (calls if whole else None), outs


def _writes(name: str) -> bool:
    """Whether an operation of that name writes into its first argument."""
    plain = name.removesuffix("__").removeprefix("__")
    if plain == name:
        return name.endswith("_")
    return plain == "setitem" or (plain.startswith("i") and plain[1:] in OPERATORS)


def _sites(calls: Sequence[Call], points: Sequence[Any]) -> list[tuple[Any, tuple[int, int]]]:
    """The uses of tensors that depend on the points and are read more than once."""
    import torch

    live, tensors = {id(p) for p in points}, {id(p): p for p in points}
    found: dict[int, list[tuple[int, int]]] = {}
    for n, call in enumerate(calls):
        reads = [i for i, a in enumerate(call.args) if id(a) in live]
        nested = [x for x in _inner(call) if id(x) in live]
        for i in reads:
            found.setdefault(id(call.args[i]), []).append((n, i))
        for y in call.results if reads or nested else ():
            if isinstance(y, torch.Tensor) and (y.is_floating_point() or y.is_complex()):
                live.add(id(y))
                tensors[id(y)] = y
    return [(tensors[t], p) for t, ps in found.items() if 2 <= len(ps) <= USES for p in ps]


def _inner(call: Call) -> list[Any]:
    """Tensors in lists (of `torch.cat`) and by name."""
    lists = [x for a in call.args if isinstance(a, tuple | list) for x in a]
    return [*lists, *call.kwargs.values()]


def _run(
    calls: Sequence[Call], points: Sequence[Any], given: Sequence[Any], more: Mapping[Any, Any]
) -> Env:
    """Every tensor at other points, with something added to what some calls read."""
    import torch

    env: Env = {id(p): g for p, g in zip(points, given, strict=True)}

    def read(value: Any) -> Any:
        if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
            return type(value)([read(v) for v in value]) if type(value) in (tuple, list) else value
        return env.get(id(value), value)

    with torch.enable_grad():
        for n, call in enumerate(calls):
            args = [read(a) for a in call.args]
            args = [a + more[n, i] if (n, i) in more else a for i, a in enumerate(args)]
            if getattr(call.function, "__name__", "") == "detach":  # the function, not its rule
                env[id(call.results[0])] = args[0]
                continue
            result = call.function(*args, **{k: read(v) for k, v in call.kwargs.items()})
            made = result if isinstance(result, tuple | list) else (result,)
            env.update({id(old): new for old, new in zip(call.results, made, strict=True)})
    return env


def _line() -> str | None:
    """The user's line that called an operation."""
    frame = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename
        if not is_hidden(path):
            return described(path, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return None
