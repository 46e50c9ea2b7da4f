"""Blocks of any framework called on NumPy arrays: converted on the way in and out."""

import contextlib
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autodiff.forward import is_inexact
from checks.gates.blocks.block import Block
from checks.gates.capture.arrays import as_array
from checks.gates.errors import GateError
from checks.gates.formats.stored import Array
from checks.gradients.framework import Framework, framework

# Functions are followed so far into what they call, and not into these packages.
_DEPTH = 6
_KNOWN = ("numpy", "scipy", "autodiff", "checks", "builtins")


@dataclass(frozen=True, slots=True)
class Runner:
    """A block with the framework that its arrays belong to.

    Arguments:
        block: what is called.
        framework: of its arrays: "numpy", "jax" or "torch".
    """

    block: Block
    framework: Framework

    def value(self, inputs: Sequence[Array], weights: Mapping[str, Any] | None = None) -> Array:
        """Return the block's output, with some weights changed where given.

        Raises:
            GateError: the output is no array.
            Exception: whatever the block raises.
        """
        with self._scope(inputs), self._quiet():
            found = self.block.run(*self._native(inputs), weights=self._like(weights))
            return _one_array(found, self.block.output)

    def cotangents(
        self, inputs: Sequence[Array], cotangent: Array
    ) -> tuple[dict[int, Array], dict[str, Array]]:
        """Return the cotangents of the floating inputs by place, and of the weights by name.

        Raises:
            GateError: an explicit `vjp` returns another number of cotangents.
            Exception: whatever the block, or its derivative, raises.
        """
        with self._scope([*inputs, cotangent]):
            if self.block.vjp is not None:
                return self._given(inputs, cotangent), {}
            return self._derived(inputs, cotangent)

    def _given(self, inputs: Sequence[Array], cotangent: Array) -> dict[int, Array]:
        block = self.block
        assert block.vjp is not None
        given = (*self._native(inputs), *self._native([cotangent]))
        found = block.vjp(*given) if block.weights is None else block.vjp(block.weights, *given)
        found = found if isinstance(found, tuple | list) else (found,)
        if len(found) != len(inputs):
            what = f"vjp returned {len(found)} cotangents for {len(inputs)} inputs"
            fix = "return one for each input, None where there is none"
            raise GateError(what, f"Block({block.output!r})", fix)
        return {n: as_array(c, block.inputs[n]) for n, c in enumerate(found) if c is not None}

    def _derived(
        self, inputs: Sequence[Array], cotangent: Array
    ) -> tuple[dict[int, Array], dict[str, Array]]:
        """By the framework's own reverse mode, with respect to what is floating."""
        block, kind = self.block, self.framework
        weights = {k: kind.numpy(v) for k, v in (block.weights or {}).items() if kind.owns(v)}
        places = [n for n, x in enumerate(inputs) if is_inexact(x.dtype)]
        named = [k for k, w in weights.items() if is_inexact(w.dtype)]
        natives = self._native(inputs)

        def flat(arrays: Sequence[Any]) -> list[Any]:
            full = list(natives)
            for n, a in zip(places, arrays, strict=False):
                full[n] = a
            changed = dict(zip(named, arrays[len(places) :], strict=True))
            return [block.run(*full, weights={**(block.weights or {}), **changed})]

        points = [natives[n] for n in places]
        points += [kind.native(np.asarray(weights[k]), (block.weights or {})[k]) for k in named]
        outs, pull = kind.vjp(flat, points)
        shape, dtype = tuple(outs[0].shape), kind.numpy(outs[0]).dtype
        if shape != cotangent.shape:
            what = f"the block's output is {list(shape)}, its cotangent {list(cotangent.shape)}"
            fix = "correct the block's shape first"
            raise GateError(what, f"Block({block.output!r})", fix)
        pulled = pull(self._native([cotangent.astype(dtype)]))
        known = [None if c is None else as_array(c, block.output) for c in pulled]
        at = {n: c for n, c in zip(places, known, strict=False) if c is not None}
        named_cts = zip(named, known[len(places) :], strict=True)
        return at, {k: c for k, c in named_cts if c is not None}

    def _native(self, inputs: Sequence[Array]) -> list[Any]:
        like = _example(self.block)
        return [self.framework.native(x, like) for x in inputs]

    def _like(self, weights: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """The block's weights with some changed, NumPy's as the framework's own."""
        if weights is None:
            return None
        own, kind = self.block.weights or {}, self.framework
        made = dict(own)
        for k, w in weights.items():
            convert = isinstance(w, np.ndarray) and kind.owns(own.get(k))
            made[k] = kind.native(w, own.get(k)) if convert else w
        return made

    def _scope(self, inputs: Sequence[Array]) -> contextlib.AbstractContextManager[Any]:
        """x64 for a JAX block only where its inputs are: it changes what its constants are."""
        wide = any(x.dtype in (np.float64, np.complex128) for x in inputs)
        if self.framework.name == "jax" and not wide:
            return contextlib.nullcontext()
        return self.framework.scope()

    def _quiet(self) -> contextlib.AbstractContextManager[Any]:
        if self.framework.name != "torch":
            return contextlib.nullcontext()
        import torch

        quiet: contextlib.AbstractContextManager[Any] = torch.no_grad()
        return quiet


def runner(block: Block, name: str | None = None) -> Runner:
    """Return a block with its framework: the one named, else that of its function.

    A function belongs to the framework of its own type (a module), of what it is bound to or closes
    over, of its weights, or else to one that its code names.

    Raises:
        FrameworkError: there is no such framework.
        MissingPackageError: it is not installed.
    """
    return Runner(block, framework(name or _root(block)))


def _root(block: Block) -> str:
    roots: set[str] = set()
    waiting: list[tuple[Any, int]] = [(block.call, 0)]
    waiting += [(w, 0) for w in (block.weights or {}).values()]
    seen = set[int]()
    while waiting:
        held, depth = waiting.pop()
        if id(held) in seen:
            continue
        seen.add(id(held))
        roots |= {cls.__module__.partition(".")[0] for cls in type(held).__mro__}
        home = held.__name__ if isinstance(held, types.ModuleType) else _home(held)
        roots.add(home.partition(".")[0])
        if depth < _DEPTH and home.partition(".")[0] not in _KNOWN:
            waiting += [(v, depth + 1) for v in _held(held)]
    if "torch" in roots:
        return "torch"
    return "jax" if roots & {"jax", "jaxlib"} else "numpy"


def _home(held: Any) -> str:
    module = getattr(held, "__module__", None) if callable(held) else None
    return module if isinstance(module, str) else ""


def _held(call: Any) -> list[Any]:
    """What a function is bound to, closes over, has as defaults and names in its code."""
    if hasattr(call, "func") and hasattr(call, "args"):  # functools.partial
        return [call.func, *call.args, *call.keywords.values()]
    function = getattr(call, "__func__", call)
    found = [call.__self__] if hasattr(call, "__self__") else []
    if not isinstance(function, types.FunctionType):
        return found
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # a cell that is not filled yet
            found.append(cell.cell_contents)
    found += function.__defaults__ or ()
    names = function.__code__.co_names
    return found + [function.__globals__[n] for n in names if n in function.__globals__]


def _example(block: Block) -> Any:
    """An array that tells where the block's arrays live: a parameter of a module."""
    for held in (block.call, getattr(block.call, "__self__", None)):
        parameters = getattr(held, "parameters", None)
        if parameters is not None:
            return next(iter(parameters()), None)
    return None


def _one_array(found: Any, name: str) -> Array:
    if isinstance(found, tuple | list | dict):
        what = f"the block returned a {type(found).__name__} of {len(found)}, no array"
        raise GateError(what, f"Block({name!r})", "return the one array that it is named after")
    return as_array(found, name)


def raised(error: BaseException) -> str:
    """Return "ValueError: text (file.py:12)" of an exception: its last line of Python."""
    where, trace = "", error.__traceback__
    while trace is not None:
        where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    text = (str(error).splitlines() or [""])[0]
    return (
        f"{type(error).__name__}: {text} ({where})" if text else f"{type(error).__name__} ({where})"
    )
