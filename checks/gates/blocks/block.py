"""A block: one part of a model as a function of tensors that a dump holds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from checks.gates.errors import GateError
from checks.gates.formats.manifest import check_name


@dataclass(frozen=True, slots=True)
class Block:
    """One part of the candidate: the function that makes one dumped tensor of others.

    Arguments:
        output: the tensor it makes, by its canonical name; "name#1" is the name's second call.
        inputs: the tensors it makes it of, in the order of `call`'s arguments.
        call: takes the inputs (NumPy arrays) and returns the output: an array of NumPy, JAX or
            PyTorch. With `weights`, it takes these first: call(weights, *inputs).
        weights: what it is parameterised by, by name; None where `call` holds its own. A wrong
            weight is found only where the weights stand here, since it is found by replacing them.
        vjp: takes the inputs and the output's cotangent and returns the inputs' cotangents (None
            where there is none); with `weights`, it takes these first. None: ours, of `call`.

    Raises:
        GateError: a name is no name of a tensor, `call` or `vjp` cannot be called, a weight's name
            is no text.
    """

    output: str
    inputs: tuple[str, ...]
    call: Callable[..., Any]
    weights: Mapping[str, Any] | None = None
    vjp: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        where = f"Block({self.output!r})"
        check_key(self.output)
        if not isinstance(self.inputs, tuple):
            what = f"inputs are no tuple: {self.inputs!r:.60}"
            raise GateError(what, where, 'write inputs=("enc.in",)')
        for name in self.inputs:
            check_key(name)
            if name == self.output:
                what = f"{name!r} is both an input and the output"
                raise GateError(what, where, f'name the call before it: "{name}#0"')
        for field, function in (("call", self.call), ("vjp", self.vjp)):
            if not callable(function) and not (field == "vjp" and function is None):
                what = f"{field} cannot be called: {function!r:.60}"
                raise GateError(what, where, f"{field}=lambda x: ...")
        if self.weights is not None and not _is_table(self.weights):
            what = f"weights are no table of arrays by name: {self.weights!r:.60}"
            raise GateError(what, where, 'weights={"w": w}')

    def run(self, *inputs: Any, weights: Mapping[str, Any] | None = None) -> Any:
        """Call it, with other weights where given."""
        if self.weights is None:
            return self.call(*inputs)
        return self.call(self.weights if weights is None else weights, *inputs)


def check_key(key: object) -> str:
    """Return `key`, where it is a tensor's name or a later call of one: "name#1".

    Raises:
        GateError: it is neither.
    """
    name, mark, call = key.partition("#") if isinstance(key, str) else (key, "", "")
    check_name(name)
    if mark and not call.isdigit():
        what = f"{key!r} names no call of a tensor"
        raise GateError(what, "name", f'write "{name}#1" for its second call')
    return str(key)


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(k, str) for k in value)
