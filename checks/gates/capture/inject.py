"""The reference's values in place of a Python program's own, where GATE_INJECT_DIR names them."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from checks.gates.capture.arrays import as_array
from checks.gates.capture.folder import INJECT_DIR
from checks.gates.errors import INVALID, GateError
from checks.gates.formats.readers import open_side
from checks.gradients.framework import detect

_calls: dict[tuple[str, str], int] = {}


def inject(name: str, x: Any) -> Any:
    """Return the reference's value of a tensor where GATE_INJECT_DIR holds one, else `x`.

    The n-th call of a name in a process takes the n-th call's values.

    Arguments: the tensor's name; what was computed, an array of NumPy, JAX or PyTorch. Returns an
    array of its framework and dtype.

    Raises:
        GateError: the shape is another, or the folder cannot be used.
    """
    folder = os.environ.get(INJECT_DIR)
    if not folder:
        return x
    call = _calls.get((folder, name), 0)
    _calls[folder, name] = call + 1
    key = f"{name}#{call}" if call else name
    side = open_side(folder)
    if key not in side.tensors:
        return x
    return as_like(side.tensors[key].load(), x, key)


@contextlib.contextmanager
def injecting(model: Any, points: Mapping[str, str], *, pick: str = "all") -> Iterator[None]:
    """Within it, the outputs of a PyTorch model's modules are what `inject` makes of them.

    Enter it after `Dump.attach`, whose hooks then see what was computed.

    Arguments: the model, the points and `pick` of `Dump.attach`; an output that is a tuple or list
    may have its tensor in one place, as in "layers.*:0".

    Raises:
        GateError: as `inject`; a model, points or `pick` that `Dump.attach` refuses; a place lies
            deeper.
    """
    from checks.gates.capture.torch_modules import check_points, matched, picked

    check_points(model, points, "injecting")
    modules = dict(model.named_modules())
    handles = []
    try:
        for name, pattern in points.items():
            path, _, inner = pattern.partition(":")
            for found, module in picked(matched(name, path, list(modules)), pick):
                handles.append(modules[module].register_forward_hook(_hook(found, inner)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _hook(name: str, inner: str) -> Any:
    def hook(module: Any, args: Any, output: Any) -> Any:
        del module, args
        if not inner:
            return inject(name, output)
        if not isinstance(output, tuple | list) or not inner.isdigit():
            what = f"the output of {name!r} is a {type(output).__name__}: no place {inner!r} in it"
            raise GateError(what, "injecting(points=...)", "inject by hand: x = gates.inject(...)")
        place = int(inner)
        changed = [inject(name, x) if n == place else x for n, x in enumerate(output)]
        kind = type(output)
        return kind(*changed) if hasattr(output, "_fields") else kind(changed)

    return hook


def as_like(values: np.ndarray[Any, Any], x: Any, key: str) -> Any:
    """Return values as an array of the framework, dtype and place of `x`.

    Raises:
        GateError: the shape is another.
    """
    plain = as_array(x, key)
    if plain.shape != values.shape:
        what = f"{key!r} is {list(values.shape)} in the reference, {list(plain.shape)} here"
        raise GateError(what, f"inject({key!r}, ...)", "correct the shape first", code=INVALID)
    found = values.astype(plain.dtype, copy=False)
    return detect(None, (x,)).native(found, x)
