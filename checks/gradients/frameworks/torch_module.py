"""Modules and `autograd.Function`s of PyTorch as functions of plain tensors."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from autodiff.optional import require

torch = require("torch", "torch", "a gradient check of a PyTorch function")


class _Holder(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A module whose call is a bound method of another, so that its parameters can be replaced."""

    def __init__(self, method: Any) -> None:
        super().__init__()
        self.held = method.__self__
        self.method = method.__func__

    def forward(self, *args: Any) -> Any:
        return self.method(self.held, *args)


class ModuleCall:
    """A module as a function of its arguments and then its trainable parameters.

    Every call gets the module's buffers as they were at first; the module itself never changes.

    Attributes:
        argument_names: of the arguments, then of the parameters (`weight`, `layers.0.bias`).
        parameters: the trainable parameters.
        notes: what calls did besides returning values.
    """

    def __init__(self, module: Any, prefix: str, name: str, arguments: Sequence[str]) -> None:
        self.__name__ = name
        self._module, self._count = module, len(arguments)
        trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self._names, self.parameters = list(trained), tuple(trained.values())
        shown = [n.removeprefix(prefix) for n in trained]
        self.argument_names = [*arguments, *(f"{name}.{n}" if n in arguments else n for n in shown)]
        self._frozen = {n: p.detach() for n, p in module.named_parameters() if not p.requires_grad}
        self._buffers = {n: b.detach().clone() for n, b in module.named_buffers()}
        self._prefix = prefix
        self.notes: list[str] = []

    def __call__(self, *args: Any) -> Any:
        """The module's result; only copies of its buffers are written to."""
        given = dict(zip(self._names, args[self._count :], strict=True))
        buffers, frozen = self._held(args[self._count :])
        state = {**given, **frozen, **buffers}
        result = torch.func.functional_call(self._module, state, args[: self._count])
        if not (self.notes or torch.compiler.is_compiling()):
            self._note([n for n, b in buffers.items() if b._version])
        return result

    def _held(self, parameters: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Fresh buffers and the frozen parameters, in other dtypes where the trained ones are."""
        cast = {p.dtype: n.dtype for p, n in zip(self.parameters, parameters, strict=True)}
        buffers = {n: b.to(cast.get(b.dtype, b.dtype), copy=True) for n, b in self._buffers.items()}
        frozen = {n: p.to(cast.get(p.dtype, p.dtype)) for n, p in self._frozen.items()}
        return buffers, frozen

    def _note(self, written: Sequence[str]) -> None:
        if written:
            names = ", ".join(n.removeprefix(self._prefix) for n in written)
            self.notes.append(
                f"each call writes into the buffers {names} (training mode): they were kept as "
                "they are; .eval() checks the module as it is used later"
            )


def prepare(function: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """A module, or a bound method of one, with its trainable parameters as further arguments; an
    `autograd.Function`'s `apply` with its own name and those of its arguments.
    """
    owner = getattr(function, "__self__", None)
    if isinstance(function, torch.nn.Module):
        name, names = type(function).__name__, _names(function.forward, len(args))
        call = ModuleCall(function, "", name, names)
    elif isinstance(owner, torch.nn.Module) and inspect.ismethod(function):
        name = f"{type(owner).__name__}.{function.__name__}"
        call = ModuleCall(_Holder(function), "held.", name, _names(function, len(args)))
    elif isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        return _applied(function, owner, len(args)), args
    else:
        return function, args
    return call, (*args, *call.parameters)


def _applied(apply: Callable[..., Any], owner: Any, count: int) -> Callable[..., Any]:
    def function(*args: Any) -> Any:
        return apply(*args)

    inherited = owner.setup_context is torch.autograd.Function.setup_context
    names = _names(owner.forward, count + inherited)[inherited:]  # without ctx
    function.__name__ = owner.__name__
    function.__dict__["argument_names"] = names
    return function


def _names(function: Any, count: int) -> list[str]:
    from checks.gradients.target import parameter_names

    return parameter_names(function, count)
