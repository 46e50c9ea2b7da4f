"""PyTorch functions: `torch.autograd` for what stands alone, `torch.func` for what must nest.

Reverse mode is `torch.autograd.grad` and forward mode dual numbers, which serve every
`torch.autograd.Function`; both nest in one another. Inside a transform of `torch.func` (vmap, and
forward over forward, which dual numbers do not nest to) the inner ones are `torch.func`'s too.

PyTorch's gradient of a complex argument is the conjugate of this project's: both sides of a
pullback are conjugated, so that `Re sum(u * v)` pairs them.
"""

import contextlib
import contextvars
import dataclasses
import functools
import os
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from autodiff.optional import require
from checks.gradients.framework import Flat, Framework
from checks.gradients.frameworks.torch_module import prepare
from checks.gradients.modes import ModeError, UndefinedModeError, first_line
from checks.gradients.report import NOT_DIFFERENTIABLE, WRONG, WRONG_SHAPE

torch = require("torch", "torch", "a gradient check of a PyTorch function")

Array = np.ndarray[Any, Any]
Pullback = Callable[[Sequence[Any]], list[Any]]

# What PyTorch says of a function that lacks one transform; the others may be defined.
_NO_SUCH_MODE = (
    "it must override the setup_context staticmethod",
    "does not have vmap support",
    "@once_differentiable",
    "would mutate a captured Tensor",
    "inside of a function being transformed by a functorch transform",
)
_WRONG_COUNT = ("returned an invalid gradient", "returned an incorrect number of gradients")


# --- arrays --------------------------------------------------------------------------------


def _owns(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _native(values: Array, like: Any) -> Any:
    """A tensor in the memory layout of `like` where that has no overlaps."""
    device = like.device if isinstance(like, torch.Tensor) else torch.get_default_device()
    plain = _from_numpy(np.array(values, order="C")).to(device)
    if not isinstance(like, torch.Tensor) or like.layout != torch.strided:
        return plain
    if like.shape != plain.shape or like.is_contiguous() or _overlaps(like):
        return plain
    laid = torch.empty_strided(like.shape, like.stride(), dtype=plain.dtype, device=device)
    return laid.copy_(plain)


def _overlaps(tensor: Any) -> bool:
    """Whether two entries may lie in one place of memory (expanded, unfolded)."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def _from_numpy(values: Array) -> Any:
    if values.dtype.kind != "V":
        return torch.from_numpy(values)
    bits = np.dtype(f"i{values.dtype.itemsize}")  # ml_dtypes: PyTorch has the same bits
    return torch.from_numpy(values.view(bits)).view(getattr(torch, values.dtype.name))


def _numpy(value: Any) -> Array:
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    value = value.detach()
    if value.layout != torch.strided:
        value = value.to_dense()
    if value._is_zerotensor():  # forward mode's mark for "no tangent": it has no memory
        return np.zeros(value.shape, _numpy(torch.empty(0, dtype=value.dtype)).dtype)
    value = value.cpu().resolve_conj().resolve_neg()
    if value.dtype == torch.complex32:  # NumPy has none
        value = value.to(torch.complex64)
    name = str(value.dtype).removeprefix("torch.")
    if name == "bfloat16" or name.startswith("float8"):
        import ml_dtypes

        bits = {1: torch.int8, 2: torch.int16}[value.element_size()]
        made: Array = value.view(bits).numpy().view(getattr(ml_dtypes, name))
        return made
    return np.asarray(value.numpy())


def _conjugate(value: Any) -> Any:
    """The conjugate, in the same memory; None and real tensors as they are."""
    return value.conj() if value is not None and value.is_complex() else value


def _tensor(value: Any) -> Any:
    """A result as a tensor: functions may return Python numbers."""
    return value if isinstance(value, torch.Tensor) else torch.as_tensor(value)


# --- nesting -------------------------------------------------------------------------------


@dataclasses.dataclass
class _Level:
    """One transform that is running a function.

    Arguments:
        functional: it is one of `torch.func`, or lies inside one.
        differentiates: the function itself takes derivatives.
    """

    functional: bool = False
    differentiates: bool = False


_LEVEL: contextvars.ContextVar[_Level | None] = contextvars.ContextVar("level", default=None)


@contextlib.contextmanager
def _running(functional: bool = False) -> Iterator[_Level]:
    outer = _LEVEL.get()
    if outer is not None:
        outer.differentiates = True
    level = _Level(functional or (outer is not None and outer.functional))
    token = _LEVEL.set(level)
    try:
        yield level
    finally:
        _LEVEL.reset(token)


def _is_functional() -> bool:
    level = _LEVEL.get()
    return level is not None and level.functional


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """PyTorch's refusals as what they mean for a check; other exceptions pass."""
    try:
        yield
    except NotImplementedError as error:
        raise UndefinedModeError(first_line(error)) from error
    except RuntimeError as error:
        text = str(error)
        if any(words in text for words in _NO_SUCH_MODE):
            raise UndefinedModeError(first_line(error)) from error
        if any(words in text for words in _WRONG_COUNT):
            raise ModeError(WRONG_SHAPE, first_line(error)) from error
        raise


@contextlib.contextmanager
def _backward() -> Iterator[None]:
    """What a backward of the user's raises, as a verdict; PyTorch's own refusals pass."""
    try:
        yield
    except (ModeError, UndefinedModeError, NotImplementedError):
        raise
    except Exception as error:
        text = str(error)
        if any(words in text for words in (*_NO_SUCH_MODE, *_WRONG_COUNT, "does not require grad")):
            raise
        where = [f for f in traceback.extract_tb(error.__traceback__) if f.name == "backward"]
        at = f" at {os.path.basename(where[-1].filename)}:{where[-1].lineno}" if where else ""
        raise ModeError(WRONG, f"the backward raises {first_line(error)}{at}") from error


# --- reverse mode --------------------------------------------------------------------------


def _vjp(flat: Flat, primals: Sequence[Any]) -> tuple[list[Any], Pullback]:
    with _translated():
        return _functional_vjp(flat, primals) if _is_functional() else _graph_vjp(flat, primals)


def _graph_vjp(flat: Flat, primals: Sequence[Any]) -> tuple[list[Any], Pullback]:
    """By `torch.autograd.grad`; inside another transform the graph of the gradient is kept."""
    nested = _LEVEL.get() is not None
    with torch.enable_grad(), _running() as level:
        inputs = [_tracked(x) for x in primals]
        outs = [_tensor(y) for y in flat(inputs)]
    known = [i for i, y in enumerate(outs) if y.requires_grad]
    if not known and not level.differentiates:
        text = "no result has a grad_fn: it is detached, or does not depend on the arguments"
        raise ModeError(NOT_DIFFERENTIABLE, text)

    def pullback(cotangents: Sequence[Any]) -> list[Any]:
        if not known:  # the gradient of a linear function
            return [None] * len(inputs)
        with _translated(), _backward():
            gradients = torch.autograd.grad(
                [outs[i] for i in known],
                inputs,
                [_conjugate(_tracked(cotangents[i]) if nested else cotangents[i]) for i in known],
                retain_graph=True,
                create_graph=nested,
                allow_unused=True,
            )
        if nested:
            _refuse_once(gradients)
        return [_conjugate(g) for g in gradients]

    if not nested:
        pullback.__dict__["custom"] = _is_custom(outs)
    return outs, pullback


def _is_custom(outs: Sequence[Any]) -> bool:
    """Whether an `autograd.Function` of the user's has a part in the graph."""
    seen, todo = set(), [y.grad_fn for y in outs]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return True
        seen.add(node)
        todo += [follower for follower, _ in node.next_functions]
    return False


def _refuse_once(gradients: Sequence[Any]) -> None:
    """Raise where a backward was `@once_differentiable`: the node that would say so is connected
    to nothing, so that `allow_unused` makes it a silent zero.
    """
    seen: set[Any] = set()
    todo = [g.grad_fn for g in gradients if g is not None]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        if node.name().rpartition("::")[2] == "Error":
            text = "the backward of a torch.autograd.Function is marked @once_differentiable"
            raise UndefinedModeError(text)
        seen.add(node)
        todo += [follower for follower, _ in node.next_functions]


def _tracked(x: Any) -> Any:
    """A tensor of its own in the graph, with the tangent that an outer forward mode gave it."""
    if x.requires_grad:
        return x.view_as(x)
    primal, tangent = torch.autograd.forward_ad.unpack_dual(x)
    leaf = primal.detach().requires_grad_()
    return leaf if tangent is None else torch.autograd.forward_ad.make_dual(leaf, tangent)


def _functional_vjp(flat: Flat, primals: Sequence[Any]) -> tuple[list[Any], Pullback]:
    with _running(functional=True):
        outs, pull = torch.func.vjp(_listed(flat), *primals)

    def pullback(cotangents: Sequence[Any]) -> list[Any]:
        with _translated():
            return [_conjugate(g) for g in pull(tuple(_conjugate(c) for c in cotangents))]

    return list(outs), pullback


def _listed(flat: Flat) -> Callable[..., tuple[Any, ...]]:
    def function(*arrays: Any) -> tuple[Any, ...]:
        return tuple(_tensor(y) for y in flat(list(arrays)))

    return function


# --- forward mode --------------------------------------------------------------------------


def _jvp(
    flat: Flat, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    _decompositions()
    with _translated():
        if _DUAL.get():
            raise _NestedDualError
        if not _is_functional():
            with contextlib.suppress(_NestedDualError):
                return _dual_jvp(flat, primals, tangents)
        return _functional_jvp(flat, primals, tangents)


@functools.cache
def _decompositions() -> None:
    """Load what PyTorch loads at its first dual number: it warns of its own deprecated parts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
        with torch.autograd.forward_ad.dual_level():
            torch.autograd.forward_ad.make_dual(torch.zeros(()), torch.zeros(()))


class _NestedDualError(Exception):
    """A dual number of a dual number was asked for; the outer transform starts again without."""


def _dual_jvp(
    flat: Flat, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """By dual numbers, with gradients recorded only where an outer transform wants them."""
    forward_ad = torch.autograd.forward_ad
    token = _DUAL.set(True)
    try:
        with torch.enable_grad(), _running(), forward_ad.dual_level():
            inputs = [
                x if t is None else forward_ad.make_dual(x, t)
                for x, t in zip(primals, tangents, strict=True)
            ]
            pairs = [forward_ad.unpack_dual(_tensor(y)) for y in flat(inputs)]
            return [p.primal for p in pairs], [p.tangent for p in pairs]
    finally:
        _DUAL.reset(token)


_DUAL: contextvars.ContextVar[bool] = contextvars.ContextVar("dual", default=False)


def _functional_jvp(
    flat: Flat, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    dots = [torch.zeros_like(x) if t is None else t for x, t in zip(primals, tangents, strict=True)]
    with _running(functional=True):
        outs, out_dots = torch.func.jvp(_listed(flat), tuple(primals), tuple(dots))
    return list(outs), list(out_dots)


# --- the rest ------------------------------------------------------------------------------


def _vmap(flat: Flat, in_axes: Sequence[int | None]) -> Flat:
    mapped = torch.func.vmap(_listed(flat), in_dims=tuple(in_axes))

    def function(arrays: Sequence[Any]) -> list[Any]:
        with _translated(), _running(functional=True), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
            try:
                return list(mapped(*arrays))
            except RuntimeError as error:  # no rule, a branch on a value, .item(), sparse results
                raise UndefinedModeError(first_line(error)) from error

    return function


def _inside(flat: Flat, arrays: Sequence[Any]) -> set[str]:
    """The dtypes of what each operator of one call gives back."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found: set[str] = set()

    class Recorder(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made = operator(*args, **(kwargs or {}))
            several = made if isinstance(made, tuple | list) else (made,)
            found.update(str(y.dtype) for y in several if isinstance(y, torch.Tensor))
            return made

    with Recorder():
        flat(arrays)
    return {name.removeprefix("torch.") for name in found}


@contextlib.contextmanager
def _scope() -> Iterator[None]:
    """Gradients are recorded whatever the caller does; the global random numbers stay as found."""
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        yield


def compiled_function(function: Any, backend: str) -> Callable[..., Any]:
    """A function under `torch.compile`, for fixed shapes."""
    inner = function if hasattr(function, "__code__") else function.__call__
    made: Callable[..., Any] = torch.compile(inner, backend=backend, dynamic=False)
    return made


FRAMEWORK = Framework(
    name="torch",
    owns=_owns,
    native=_native,
    numpy=_numpy,
    vjp=_vjp,
    jvp=_jvp,
    vmap=_vmap,
    prepare=prepare,
    inside=_inside,
    scope=_scope,
)
