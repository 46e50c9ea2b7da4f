"""The backward of a PyTorch function, watched node by node."""

import os
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from checks.gradients.diagnosis.culprit import described
from checks.gradients.diagnosis.notfinite import Backward, Step
from checks.gradients.target import Target, wide

Array = np.ndarray[Any, Any]
NODES = 2000
SELECTS = ("Where", "SWhere", "MaskedFill")
_FRAME = re.compile(r'File "(.+)", line (\d+), in (\S+)')


def backward(target: Target, cotangents: Sequence[Array]) -> Backward | None:
    """Its first node whose gradients are not finite, and the gradients if 0 stays 0 there."""
    plain, strong = _Watch(target, False), _Watch(target, True)
    plain.run(cotangents)
    undone = strong.run(cotangents)
    return Backward(plain.origin, undone, strong.selects)


class _Watch:
    """One backward with a hook on every node; a `strong` one mends NaN where the incoming cotangent
    is 0.
    """

    def __init__(self, target: Target, strong: bool) -> None:
        self.target, self.strong = target, strong
        self.origin: Step | None = None
        self.selects = False

    def run(self, cotangents: Sequence[Array]) -> list[Array]:
        """The gradients."""
        import torch

        target = self.target
        points = [p.clone().detach().requires_grad_() for p in target.native(target.points)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autograd.detect_anomaly(check_nan=False):  # keeps each node's traceback
                outs = target.flat([p.view_as(p) for p in points])
        known = [k for k, y in enumerate(outs) if getattr(y, "requires_grad", False)]
        nodes = _nodes([outs[k].grad_fn for k in known])
        below = set(_nodes([n for n in nodes if n.name().startswith(SELECTS)]))
        for node in nodes:
            node.register_hook(self._hook(node, node in below))
        like = target.originals[target.positions[0]]
        cts = [
            target.framework.native(np.asarray(cotangents[k], target.centre[k].dtype), like)
            for k in known
        ]
        gradients = torch.autograd.grad([outs[k] for k in known], points, cts, allow_unused=True)
        return [
            wide(np.zeros_like(x)) if g is None else wide(target.to_numpy(g))
            for g, x in zip(gradients, target.points, strict=True)
        ]

    def _hook(self, node: Any, selected: bool) -> Any:
        import torch

        def hook(inputs: Any, outputs: Any) -> Any:
            made = [_finite(g) for g in inputs]
            if all(made):
                return None
            if self.origin is None and all(_finite(g) for g in outputs):
                values = tuple(self.target.to_numpy(g) for g in inputs if g is not None)
                name = re.sub(r"Backward\d*$", "", node.name()).lower()
                self.origin = Step((), tuple(range(len(values))), values, name, _line(node))
            if not self.strong or len(outputs) != 1 or outputs[0] is None:
                return None
            self.selects |= selected
            zero = outputs[0] == 0
            return tuple(
                g
                if g is None or g.shape != zero.shape
                else torch.where(zero & ~torch.isfinite(g), torch.zeros_like(g), g)
                for g in inputs
            )

        return hook


def _finite(gradient: Any) -> bool:
    return gradient is None or bool(gradient.isfinite().all())


def _nodes(roots: Sequence[Any]) -> list[Any]:
    """The graph behind some results."""
    todo = [r for r in roots if r is not None]
    seen: list[Any] = []
    known: set[Any] = set()
    while todo and len(seen) < NODES:
        node = todo.pop()
        if node not in known:
            known.add(node)
            seen.append(node)
            todo += [n for n, _ in node.next_functions if n is not None]
    return seen


def _line(node: Any) -> str | None:
    """The user's line that made a node."""
    for text in reversed(node.metadata.get("traceback_", [])):
        found = _FRAME.search(text)
        if found and not is_hidden(found[1]):
            return described(found[1], int(found[2]), found[3])
    return None


def is_hidden(path: str) -> bool:
    """Whether a file is PyTorch's, ours, or no file."""
    import torch

    home = os.path.dirname(os.path.abspath(str(torch.__file__))) + os.sep
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    return os.path.abspath(path).startswith((home, ours)) or path.startswith("<")
