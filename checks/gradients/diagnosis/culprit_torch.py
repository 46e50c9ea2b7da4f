"""The first `autograd.Function` of a PyTorch function whose own derivative is wrong."""

import contextlib
import inspect
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
    for cls, args in list(calls):
        if spent():
            return None
        found = _checked(cls, args, target, modes)
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


@contextlib.contextmanager
def _recorded(classes: Sequence[Any]) -> Iterator[list[tuple[Any, tuple[Any, ...]]]]:
    """Record the arguments that the forward of each class is called with."""
    import torch

    calls: list[tuple[Any, tuple[Any, ...]]] = []
    own = {}

    def recording(cls: Any, forward: Callable[..., Any]) -> Any:
        separate = cls.setup_context is not torch.autograd.Function.setup_context

        def wrapper(*args: Any) -> Any:
            given = args if separate else args[1:]
            calls.append(
                (
                    cls,
                    tuple(a.detach().clone() if isinstance(a, torch.Tensor) else a for a in given),
                )
            )
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


def _checked(cls: Any, args: Sequence[Any], target: Target, modes: Sequence[str]) -> Culprit | None:
    """One application of a Function held against differences of itself."""
    import torch

    moving = [
        i
        for i, a in enumerate(args)
        if isinstance(a, torch.Tensor) and (a.is_floating_point() or a.is_complex())
    ]
    if not moving:
        return None

    def apply(*given: Any) -> Any:
        full = list(args)
        for i, x in zip(moving, given, strict=True):
            full[i] = x
        return cls.apply(*full)

    found = failed_checks(
        cls.__name__, target.framework, apply, [args[i] for i in moving], target, modes
    )
    if found is None:
        return None
    return Culprit(titled(f"{cls.__name__}.backward", _line(cls.backward)), found)


def _line(function: Any) -> str | None:
    """`file:line in function` of a definition."""
    try:
        path, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        return None
    return None if path is None else described(path, line, function.__name__)
