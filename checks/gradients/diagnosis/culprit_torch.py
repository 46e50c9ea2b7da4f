"""The first `autograd.Function` of a PyTorch function whose own derivative is wrong."""

import contextlib
import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from checks.gradients.diagnosis.culprit import Culprit, described, failed_checks, titled
from checks.gradients.target import Target

NODES = 2000


def in_graph(target: Target, modes: Sequence[str], spent: Callable[[], bool]) -> Culprit | None:
    """Record what each custom Function of the graph was applied to, and check it alone."""
    import torch

    points = [p.clone().detach().requires_grad_() for p in target.native(target.points)]
    classes = _functions([y for y in target.flat(points) if isinstance(y, torch.Tensor)])
    if not classes:
        return None
    with _recorded(classes) as calls:
        target.tally.calls += 1
        target.flat(points)
    for call in list(calls):
        if spent():
            return None
        found = _checked(call, target, modes)
        if found is not None:
            return found
    return None


def _functions(outputs: Sequence[Any]) -> list[Any]:
    """The Function classes of the graph behind some results."""
    todo = [y.grad_fn for y in outputs if y.grad_fn is not None]
    seen: set[Any] = set()
    found: list[Any] = []
    while todo and len(seen) < NODES:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        cls = getattr(type(node), "_forward_cls", None)
        if cls is not None and cls not in found:
            found.append(cls)
        todo += [n for n, _ in node.next_functions if n is not None]
    return found


@dataclasses.dataclass(frozen=True)
class Call:
    """One application of a Function: its class, arguments, and which of them need a gradient."""

    cls: Any
    args: tuple[Any, ...]
    moving: tuple[int, ...]


@contextlib.contextmanager
def _recorded(classes: Sequence[Any]) -> Iterator[list[Call]]:
    """Record the arguments that the forward of each class is called with."""
    import torch

    calls: list[Call] = []
    own = {}

    def recording(cls: Any, forward: Callable[..., Any]) -> Any:
        separate = cls.setup_context is not torch.autograd.Function.setup_context

        def wrapper(*args: Any) -> Any:
            given = args if separate else args[1:]
            tensors = [isinstance(a, torch.Tensor) for a in given]
            kept = tuple(
                a.detach().clone() if t else a for a, t in zip(given, tensors, strict=True)
            )
            moving = tuple(i for i, t in enumerate(tensors) if t and given[i].requires_grad)
            calls.append(Call(cls, kept, moving))
            return forward(*args)

        return staticmethod(wrapper)

    for cls in classes:
        own[cls] = cls.__dict__.get("forward")
        cls.forward = recording(cls, cls.forward)
    try:
        yield calls
    finally:
        for cls, forward in own.items():
            if forward is None:
                del cls.forward
            else:
                cls.forward = forward


def _checked(call: Call, target: Target, modes: Sequence[str]) -> Culprit | None:
    """One application of a Function held against differences of itself: only what a gradient was
    asked of moves, for the others None is right.
    """
    if not call.moving:
        return None
    cls = call.cls

    def apply(*given: Any) -> Any:
        full = list(call.args)
        for i, x in zip(call.moving, given, strict=True):
            full[i] = x
        return cls.apply(*full)

    args, names = [call.args[i] for i in call.moving], _names(call)
    found = failed_checks(cls.__name__, target.framework, apply, args, target, modes, names)
    if found is None:
        return None
    rule = "jvp" if tuple(modes) == ("forward",) else "backward"
    return Culprit(titled(f"{cls.__name__}.{rule}", _line(getattr(cls, rule))), found)


def _names(call: Call) -> tuple[str, ...]:
    """What the forward calls the arguments that move; nothing where it gives them no names."""
    import torch

    cls = call.cls
    try:
        names = list(inspect.signature(cls.forward).parameters)
    except (TypeError, ValueError):
        return ()
    if cls.setup_context is torch.autograd.Function.setup_context:
        names = names[1:]
    return tuple(names[i] for i in call.moving) if len(names) >= len(call.args) else ()


def _line(function: Any) -> str | None:
    """`file:line in function` of a definition."""
    try:
        path, (lines, line) = inspect.getsourcefile(function), inspect.getsourcelines(function)
    except (OSError, TypeError):
        return None
    decorators = itertools.takewhile(lambda text: not text.lstrip().startswith("def "), lines)
    line += len(list(decorators)) % len(lines)
    return None if path is None else described(path, line, function.__name__)
